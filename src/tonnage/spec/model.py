"""An LLM architecture and what it weighs: parameter counts and KV-cache elements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): keys and values of all heads are cached as one compressed vector per token.

    Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; the names are those of its ``config.json``.

    Attributes:
        q_lora_rank: width to which queries are compressed; 0 where they are not.
        kv_lora_rank: width of the cached vector of keys and values.
        qk_nope_head_dim: width of a query or key head without position.
        qk_rope_head_dim: width of the part with position, which all heads share in the cache.
        v_head_dim: width of a value head.
    """

    __pydantic_config__ = FORBID

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def cached(self) -> int:
        """Elements that one layer caches per token."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def parameters(self, hidden: int, heads: int) -> int:
        """Weights of the projections of one layer."""
        query = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        queries = self.q_lora_rank * (hidden + query) if self.q_lora_rank else hidden * query
        expanded = self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        return queries + hidden * self.cached + expanded + heads * self.v_head_dim * hidden

    @property
    def prefill_width(self) -> int:
        """Products per head and pair of tokens where keys and values are expanded: query times key, weight times value."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim + self.v_head_dim

    @property
    def decode_width(self) -> int:
        """The same where the expansion is absorbed into queries and output and the heads attend to the cached vector itself."""
        return 2 * self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only transformer: dense or mixture of experts, with full, grouped, multi-query or latent attention.

    Attributes:
        name: lower-case id with the size, such as "llama-3.1-70b".
        layers: number of decoder layers.
        hidden: width of the residual stream.
        heads: query heads per layer.
        kv_heads: key/value heads per layer (``heads`` for MHA, 1 for MQA).
        head_dim: width of one head; of a value head for latent attention.
        ffn: inner width of the MLP, of one expert for a mixture of experts.
        gated: three MLP matrices (SwiGLU) instead of two.
        vocab: rows of the embedding table.
        max_context: longest prompt plus output, in tokens.
        experts: experts per layer; 1 for a dense model.
        experts_per_token: experts that each token uses.
        shared_experts: experts of width ``ffn`` that every token uses beside the routed ones.
        dense_layers: layers of a mixture of experts that have one plain MLP instead.
        dense_ffn: inner width of that MLP.
        latent: the dimensions of multi-head latent attention; None for attention with key/value heads.
        window: tokens that a layer with sliding-window attention attends to; 0 where none has it.
        windowed_layers: how many layers have it: attention reads, and the KV cache keeps, the last ``window`` tokens of a sequence.
        tied_embeddings: the output head shares the embedding table.
        parallel_block: attention and MLP of a layer add to one residual, so that a layer has one all-reduce.
        head_norms: every query and key head is normalised before attention, by kernels of their own (Qwen3).
        joint_norms: those norms are over all heads at once, so that the GPUs of an instance add up their squares first (MiniMax M2).
        block_fp8: its FP8 checkpoint scales blocks of 128 × 128 weights and of 128 activations, not whole matrices.
        released: number format of the published checkpoint, as ``spec.precision`` writes it; "" where that has no name there.
        source, date: where the figures come from and when they were taken down.
        notes: anything a user should know, such as what is approximated.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    vocab: int
    max_context: int
    experts: int = 1
    experts_per_token: int = 1
    shared_experts: int = 0
    dense_layers: int = 0
    dense_ffn: int = 0
    latent: LatentAttention | None = None
    window: int = 0
    windowed_layers: int = 0
    tied_embeddings: bool = False
    parallel_block: bool = False
    head_norms: bool = False
    joint_norms: bool = False
    block_fp8: bool = False
    released: str = "bf16"
    source: str = ""
    date: str = ""
    notes: str = ""

    @property
    def usual_precision(self) -> str:
        """The format that it is run in where nobody says otherwise: the published one, FP16 for any 16 bits."""
        return "fp16" if self.released in ("", "bf16", "fp16") else self.released

    @property
    def is_moe(self) -> bool:
        """Whether tokens are routed to experts."""
        return self.experts > 1

    @property
    def attention_parameters(self) -> int:
        """Weights of the Q, K, V and output projections of all layers."""
        if self.latent is not None:
            return self.layers * self.latent.parameters(self.hidden, self.heads)
        width = self.heads * self.head_dim
        kv_width = self.kv_heads * self.head_dim
        return self.layers * self.hidden * (2 * width + 2 * kv_width)

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert (of the whole MLP for a dense model), summed over layers."""
        return (self.layers - self.dense_layers) * self._matrices * self.hidden * self.ffn

    @property
    def router_parameters(self) -> int:
        """Weights of the routers of all layers; 0 for a dense model."""
        return (self.layers - self.dense_layers) * self.hidden * self.experts if self.is_moe else 0

    @property
    def common_parameters(self) -> int:
        """All weights of the decoder layers but those of routed experts: what every token is multiplied with."""
        mlp = self.dense_layers * self._matrices * self.hidden * self.dense_ffn + self.shared_experts * self.expert_parameters
        return self.attention_parameters + self.router_parameters + mlp + (0 if self.is_moe else self.expert_parameters)

    @property
    def linear_parameters(self) -> int:
        """All weights of the decoder layers: what is read when every expert is touched."""
        return self.common_parameters + (self.experts * self.expert_parameters if self.is_moe else 0)

    @property
    def active_parameters(self) -> int:
        """Weights of the decoder layers that one token is multiplied with (N_lin of the step model)."""
        return self.common_parameters + (self.experts_per_token * self.expert_parameters if self.is_moe else 0)

    @property
    def inner(self) -> int:
        """Inner width of the MLPs that one token passes in one layer; the wider where layers differ."""
        return max(self.ffn * (self.experts_per_token + self.shared_experts), self.dense_ffn)

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def head_parameters(self) -> int:
        """Weights of the output head (N_head of the step model)."""
        return self.vocab * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding table and the head together; counted once where they are tied."""
        return self.head_parameters * (1 if self.tied_embeddings else 2)

    @property
    def parameters(self) -> int:
        """All weights; norms and biases, below 0.1 %, are left out."""
        return self.linear_parameters + self.embedding_parameters

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of the KV cache per token, over all layers."""
        return int(self.kv_elements_per_gpu(1))

    def kv_elements_per_gpu(self, tp: int) -> float:
        """Elements of the KV cache per token on each of ``tp`` GPUs: at least one key/value head, or the whole latent vector."""
        if self.latent is not None:
            return float(self.layers * self.latent.cached)
        return 2 * self.layers * max(self.kv_heads / tp, 1.0) * self.head_dim

    @property
    def growing_layers(self) -> int:
        """Layers whose KV cache grows with the sequence; all of them also where every one has a window."""
        return self.layers - self.windowed_layers or self.layers

    @property
    def prefill_flops_per_pair(self) -> int:
        """Arithmetic of attention per pair (new token, token it attends to) in prefill, over heads and layers."""
        if self.latent is not None:
            return 2 * self.layers * self.heads * self.latent.prefill_width
        return 4 * self.layers * self.heads * self.head_dim

    @property
    def decode_flops_per_pair(self) -> int:
        """The same in decode."""
        if self.latent is not None:
            return 2 * self.layers * self.heads * self.latent.decode_width
        return self.prefill_flops_per_pair

    def part(self, layers: int) -> Model:
        """The model cut to ``layers`` layers; its shares of plain and windowed layers are rounded down, because those take less."""
        plain, windowed = (count * layers // self.layers for count in (self.dense_layers, self.windowed_layers))
        return replace(self, layers=layers, dense_layers=plain, windowed_layers=windowed)
