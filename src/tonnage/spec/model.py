"""An LLM architecture and what it weighs: parameter counts and KV-cache elements."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tonnage.errors import InputError, option
from tonnage.spec.attention_layers import (
    Cache,
    FullAttention,
    LatentAttention,
    LatentLayer,
    SlidingAttention,
)
from tonnage.spec.layers import WITH_LATENT, WITH_STATE, Layers
from tonnage.spec.precision import EXPERTS, KvFormat
from tonnage.spec.typed_values import strict


@strict
class Model:
    """A decoder-only model: dense or mixture of experts, with layers of one or several kinds
    (``spec.layers``).
    """

    name: str  # lower-case id with the size, such as "llama-3.1-70b"
    # number of decoder layers, each with its norm: what an engine launches one after another
    layers: int
    hidden: int  # width of the residual stream
    heads: int  # query heads per layer
    kv_heads: int  # key/value heads per layer (``heads`` for MHA, 1 for MQA)
    head_dim: int  # width of one head; of a value head for latent attention
    ffn: int  # inner width of the MLP, of one expert for a mixture of experts
    gated: bool  # three MLP matrices (SwiGLU) instead of two
    vocab: int  # rows of the embedding table
    max_context: int  # longest prompt plus output, in tokens
    experts: int = 1  # experts per layer; 1 for a dense model
    experts_per_token: int = 1  # experts that each token uses
    # experts of width ``ffn`` that every token uses next to the routed ones
    shared_experts: int = 0
    # inner width of what every token uses next to the routed experts, where it is no multiple of
    # ``ffn``; 0 elsewhere
    shared_ffn: int = 0
    # width to which tokens are narrowed for the routed experts; 0 where they keep the model's own
    expert_latent: int = 0
    dense_layers: int = 0  # layers of a mixture of experts that have one plain MLP instead
    dense_ffn: int = 0  # inner width of that MLP
    mlp_layers: int = 0  # layers that have an MLP or experts; 0 where all of them do
    # layers by kind, where they are not all alike or of another kind than attention; empty where
    # ``heads``, ``kv_heads``, ``head_dim``, ``latent`` and ``window`` say it all
    mixers: tuple[Layers, ...] = ()
    # the dimensions of multi-head latent attention; None for attention with key/value heads
    latent: LatentAttention | None = None
    # tokens that a layer with sliding-window attention attends to; 0 where none has it
    window: int = 0
    # how many layers have it: attention reads, and the KV cache keeps, the last ``window`` tokens
    # of a sequence
    windowed_layers: int = 0
    tied_embeddings: bool = False  # the output head shares the embedding table
    # attention and MLP of a layer add to one residual, so that a layer has one all-reduce
    parallel_block: bool = False
    # every query and key head is normalised before attention, by their own kernels (Qwen3)
    head_norms: bool = False
    # those norms are over all heads at once, so that the GPUs of an instance add up their squares
    # first (MiniMax M2)
    joint_norms: bool = False
    # residual streams side by side that layers read and write (hyper-connections of DeepSeek V4)
    residual_streams: int = 1
    # weights of tables that are looked up and never multiplied, next to the embedding (Gemma 4 E4B)
    further_embeddings: int = 0
    # weights of encoders of images and sound and of what leads on to the decoder, in 16 bits;
    # engines load them whether or not a prompt has images
    encoder_parameters: int = 0
    # positions whose cosines and sines every GPU keeps where the longest context is stretched
    # linearly, which makes them many times the context (Gemma 3); 0 elsewhere, where they are few
    rotary_rows: int = 0
    # modules for multi-token prediction in the checkpoint; they are loaded for speculative decoding
    # alone
    mtp_layers: int = 0
    # its FP8 checkpoint scales blocks of 128 × 128 weights and of 128 activations, not whole
    # matrices
    block_fp8: bool = False
    # number format of the published checkpoint, as ``spec.precision`` writes it; "" where that has
    # no name there
    released: str = "bf16"
    released_kv: KvFormat = "fp16"  # format of the KV cache that the published checkpoint declares
    # engine families that take this format where nobody says one, optionally with the first version
    kv_readers: tuple[str, ...] = ()
    # source, date: where the figures come from and when they were taken down
    source: str = ""
    date: str = ""
    notes: str = ""  # anything a user should know, such as what is approximated
    # "owner/name" by which it was named, with a checkpoint in ``released``; "" for the catalog's
    # own name
    repository: str = ""
    # how a name or a file was read as this model, where an answer must say it; "" for an entry of
    # the catalog
    reading: str = ""
    # architecture, layout: the architecture of its file where that is not known here or was to be
    # read as another one, and the known one that is nearest, or as which it was read; "" elsewhere
    architecture: str = ""
    layout: str = ""
    layout_requested: bool = False  # the file was read as ``layout`` because someone said so

    @property
    def usual_precision(self) -> str:
        """The format that it is run in where nobody says otherwise: the published one, FP16 for any
        16 bits.

        Raises InputError: the checkpoint is quantized in a way that has no name here.
        """
        if not self.released:
            raise InputError(
                f"{self.source or self.name}:"
                f" {self.notes or 'the checkpoint is quantized in a way that has no name here'}"
                f" {option('precision')} says what to count, such as {option('precision')} gptq,"
                " int4-g64 or fp8-wo"
            )
        return "fp16" if self.released in ("bf16", "fp16") else self.released

    @property
    def layout_mark(self) -> str:
        """The doubt about its layers, in words; "" where its architecture is known."""
        if self.layout_requested:
            return f"its architecture {self.architecture} is read as {self.layout}, as requested"
        near = f"nearest known layout {self.layout}" if self.layout else "no known layout is near"
        return (
            f"its architecture {self.architecture} is not known: counted by its fields alone;"
            f" {near}"
            if self.architecture
            else ""
        )

    @property
    def is_moe(self) -> bool:
        """Whether tokens are routed to experts."""
        return self.experts > 1

    @property
    def by_kind(self) -> tuple[Layers, ...]:
        """The layers that mix tokens, by kind."""
        return self.mixers or _alike(
            (self.layers, self.heads, self.kv_heads, self.head_dim),
            self.latent,
            (self.window, self.windowed_layers),
        )

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its layers that mix tokens."""
        return frozenset(layer_group.mixer.kind for layer_group in self.by_kind)

    @property
    def has_latent_cache(self) -> bool:
        """Whether a layer caches one vector for all heads, so that tensor parallelism does not
        divide its cache.
        """
        return not self.kinds.isdisjoint(WITH_LATENT)

    @property
    def mixing_layers(self) -> int:
        """Layers that mix tokens."""
        return sum(layer_group.layers for layer_group in self.by_kind)

    @property
    def inner_layers(self) -> int:
        """Layers that have an MLP or experts."""
        return self.mlp_layers or self.layers

    @property
    def expert_layers(self) -> int:
        """Layers that have routed experts; of a dense model those with an MLP."""
        return self.inner_layers - self.dense_layers

    @property
    def expert_width(self) -> int:
        """Width of a token as the routed experts see it."""
        return self.expert_latent or self.hidden

    @property
    def shared_inner(self) -> int:
        """Inner width of what every token uses next to the routed experts."""
        return self.shared_ffn or self.shared_experts * self.ffn

    @property
    def attention_parameters(self) -> int:
        """Weights of the projections of all layers that mix tokens."""
        return sum(
            layer_group.layers * layer_group.mixer.parameters(self.hidden)
            for layer_group in self.by_kind
        )

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert (of the whole MLP for a dense model), summed over layers."""
        return self.expert_layers * self._matrices * self.expert_width * self.ffn

    @property
    def router_parameters(self) -> int:
        """Weights of the routers of all layers; 0 for a dense model."""
        return self.expert_layers * self.hidden * self.experts if self.is_moe else 0

    @property
    def common_parameters(self) -> int:
        """All weights of the decoder layers but those of routed experts: what every token is
        multiplied with.
        """
        mlp = (
            self._matrices
            * self.hidden
            * (self.dense_layers * self.dense_ffn + self.expert_layers * self.shared_inner)
        )
        mlp += 2 * self.expert_layers * self.hidden * self.expert_latent
        return (
            self.attention_parameters
            + self.router_parameters
            + mlp
            + (0 if self.is_moe else self.expert_parameters)
        )

    @property
    def group_parameters(self) -> dict[str, int]:
        """Weights of the decoder layers by the groups of ``spec.precision.GROUPS``, over all
        experts; routers are in none of them.
        """
        state = sum(
            layer_group.layers * layer_group.mixer.parameters(self.hidden)
            for layer_group in self.by_kind
            if layer_group.mixer.kind in WITH_STATE
        )
        dense = self._matrices * self.hidden * self.dense_layers * self.dense_ffn
        shared = (
            self._matrices * self.hidden * self.expert_layers * self.shared_inner
            + 2 * self.expert_layers * self.hidden * self.expert_latent
        )
        return {
            "attention": self.attention_parameters - state,
            "state": state,
            "mlp": dense if self.is_moe else dense + self.expert_parameters,
            "shared": shared,
            EXPERTS: self.experts * self.expert_parameters if self.is_moe else 0,
        }

    @property
    def linear_parameters(self) -> int:
        """All weights of the decoder layers: the bytes read when every expert is touched."""
        return self.common_parameters + (
            self.experts * self.expert_parameters if self.is_moe else 0
        )

    @property
    def active_parameters(self) -> int:
        """Weights of the decoder layers that one token is multiplied with (N_lin of the step
        model).
        """
        return self.common_parameters + (
            self.experts_per_token * self.expert_parameters if self.is_moe else 0
        )

    @property
    def inner(self) -> int:
        """Inner width of the MLPs that one token passes in one layer; the wider where layers
        differ.
        """
        return max(self.ffn * self.experts_per_token + self.shared_inner, self.dense_ffn)

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def head_parameters(self) -> int:
        """Weights of the output head (N_head of the step model)."""
        return self.vocab * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding table and the head together; counted once where they are
        tied.
        """
        return self.head_parameters * (1 if self.tied_embeddings else 2)

    @property
    def parameters(self) -> int:
        """All weights; norms and biases, below 0.1 %, are left out."""
        return self.linear_parameters + self.embedding_parameters + self.further_embeddings

    def kv_elements_per_gpu(self, tp: int) -> float:
        """Elements of the KV cache per token on each of ``tp`` GPUs: at least one key/value head,
        or the whole latent vector.
        """
        caches = self.caches(16, tp)
        return sum(layers * (cache.token + cache.window_token) for layers, cache in caches) / 2

    def caches(self, kv_bits: int, tp: int) -> tuple[tuple[int, Cache], ...]:
        """How many layers keep what on each of ``tp`` GPUs, with a KV cache of ``kv_bits`` bits an
        element.
        """
        return tuple(
            (layer_group.layers, layer_group.mixer.cache(kv_bits, tp))
            for layer_group in self.by_kind
        )

    @property
    def growing_layers(self) -> int:
        """Layers whose cache grows with every token of a sequence."""
        return sum(layers for layers, cache in self.caches(16, 1) if cache.token > 0)

    @property
    def mixed_width(self) -> int:
        """Elements that the heads of all layers give for one token."""
        return sum(layer_group.layers * layer_group.mixer.width for layer_group in self.by_kind)

    def part(self, layers: int) -> Model:
        """The model cut to ``layers`` layers; its shares of plain and windowed layers are rounded
        down, because those take less.
        """
        plain, windowed, inner = (
            count * layers // self.layers
            for count in (self.dense_layers, self.windowed_layers, self.mlp_layers)
        )
        return replace(
            self,
            layers=layers,
            dense_layers=plain,
            windowed_layers=windowed,
            mlp_layers=max(inner, 1) if self.mlp_layers else 0,
            mixers=_shared_out(self.mixers, layers, self.layers),
        )


@cache
def _alike(
    sizes: tuple[int, int, int, int], latent: LatentAttention | None, windows: tuple[int, int]
) -> tuple[Layers, ...]:
    """The layers of a model of one kind, or of windows (tokens, layers) and layers without; made
    once, as fits ask often.
    """
    (layers, heads, kv_heads, head_dim), (window, windowed) = sizes, windows
    if latent is not None:
        return (Layers(layers=layers, mixer=LatentLayer(heads=heads, widths=latent)),)
    plain = FullAttention(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    if not 0 < windowed < layers:
        return (Layers(layers=layers, mixer=plain),)
    sliding = SlidingAttention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window)
    return Layers(layers=layers - windowed, mixer=plain), Layers(layers=windowed, mixer=sliding)


def _shared_out(mixers: tuple[Layers, ...], layers: int, whole: int) -> tuple[Layers, ...]:
    """The share of each kind in ``layers`` of ``whole`` layers, rounded up, because that takes
    more; of one layer that with a cache.
    """
    if layers == 1:
        return tuple(
            replace(mixer, layers=1) for mixer in mixers if mixer.mixer.kind not in WITH_STATE
        )[:1]
    return tuple(replace(mixer, layers=-(-mixer.layers * layers // whole)) for mixer in mixers)
