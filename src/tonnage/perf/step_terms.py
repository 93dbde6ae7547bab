"""The terms of a step's duration, each described once.

A deployment is reduced to an array of coefficients (``perf.terms``), and ``perf.step`` turns that
array and the contents of a step into seconds. Every coefficient has one entry here: its place in
the array, its unit, what it stands for, how a pipeline changes it, which part of an explained step
it belongs to, and which fitted terms it is computed from. Whatever else needs to know about
coefficients (pipelines, slower steps, explanations, warnings, the fit) reads these entries.

To add a term, write one entry here and use its name in ``step.py`` and in ``vectorised_step.py``;
then let one of the modules that fill the array (``matrices``, ``attention``, ``experts``,
``links``, ``host``) give it a value. The array of a deployment may be longer than the entries: a
table of step times is behind them, as pairs of tokens and seconds with ascending tokens, where
somebody else measured or predicted steps that no roofline repeats (``perf.measured_steps``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Unit = Literal["s", "s/token", "s/sequence", "s/pair", "tokens", "sequences", "1"]

Part = Literal["compute", "bandwidth", "attention", "kv", "head", "link", "host"]
"""What an explained step is divided into; ``table`` and ``drafter`` come on top where there are
any."""

PARTS: tuple[Part, ...] = ("compute", "bandwidth", "attention", "kv", "head", "link", "host")

Stages = Literal["same", "times", "share", "root"]
"""How a coefficient of one stage becomes that of a round of ``pp`` micro-batches through ``pp``
stages (``perf.pipeline``).

"same": the round's tokens or sequences pay it once each. "times": every stage pays it, or the round
reaches a limit at ``pp`` times the tokens. "share": one stage in ``pp`` pays it. "root": a factor
per token, of which a stage sees one in ``pp``. """


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerm:
    """One coefficient of a step."""

    name: str  # its name in this module, in lower case
    place: int  # its index in the coefficient array
    unit: Unit  # of the coefficient; "s" and "s/…" are durations, the others shape durations
    about: str  # what it stands for
    # the part of an explained step that its seconds belong to; None for what is no duration
    part: Part | None
    stages: Stages  # how a pipeline scales it
    # the fitted terms that it is computed from (names of ``perf.fitted_terms``)
    fed_by: tuple[str, ...]

    @property
    def is_time(self) -> bool:
        """Whether the coefficient is a duration, so that it grows when every step takes longer."""
        return self.unit == "s" or self.unit.startswith("s/")


_described: list[StepTerm] = []


def _term(
    unit: Unit,
    about: str,
    part: Part | None = None,
    *,
    stages: Stages = "same",
    fed_by: tuple[str, ...] = (),
) -> int:
    """Describe the next coefficient and return its place; ``TERMS`` knows it by the name that its
    place is given here.
    """
    place = len(_described)
    _described.append(
        StepTerm(
            name="", place=place, unit=unit, about=about, part=part, stages=stages, fed_by=fed_by
        )
    )
    return place


# Fitted terms (``perf.fitted_terms``) that several coefficients are computed from.
MATRICES = ("compute", "power_compute", "watts_compute")
READING = ("memory", "power_memory", "watts_memory")
DECODE = ("kv_bandwidth", "kv_8bit", "kv_single", "head_arithmetic", "head_8bit", "generation_kv")
LATENCY = ("allreduce_s", "latency", "power", "large", "dispatch", "bridge", "pcie_latency")
BRIDGED = ("link", "efficiency", "tp", "bridge")
BANDWIDTH = (*BRIDGED, "pcie_bytes")
LAYER = (
    "generation_blocks",
    "generation_layer",
    "layer_s",
    "layer_narrow_s",
    "layer_fp4_s",
    "layer_blocks_s",
    "layer_kv_8bit_s",
    "layer_norms_s",
    "latent_layer",
    "state_layer",
    "sparse_layer",
)

LINEAR_FLOPS = _term(
    "s/token",
    "arithmetic of the decoder layers' matrices, routed experts excepted",
    "compute",
    fed_by=(*MATRICES, "compute_blocks"),
)
LINEAR_BYTES = _term(
    "s", "reading the weights that every step touches", "bandwidth", stages="times", fed_by=READING
)
EXPERT_BYTES = _term(
    "s",
    "reading the weights of all routed experts, as if the step touched every one of them",
    "bandwidth",
    stages="times",
    fed_by=(*READING, "expert_memory"),
)
EXPERT_MISS = _term(
    "1",
    "factor by which one more token shrinks the share of experts that no token has touched",
    stages="root",
    fed_by=("expert_spread",),
)
EXPERT_REST = _term(
    "1",
    "the untouched share of T tokens is EXPERT_REST · EXPERT_MISS**T",
    fed_by=("expert_spread", "expert_first"),
)
NORM = _term(
    "1", "exponent p of the norm that joins arithmetic and weight traffic", fed_by=("norm",)
)
ACTIVATION = _term(
    "s/token",
    "moving activations through memory",
    "compute",
    fed_by=("activation", "gelu", "expert_rows", "expert_skew", "attention"),
)
HEAD_FLOPS = _term(
    "s/sequence", "arithmetic of the output head", "head", stages="share", fed_by=MATRICES
)
HEAD_BYTES = _term("s", "reading the output head", "head", fed_by=READING)
ATTENTION = _term(
    "s/pair",
    "prefill attention, per pair of a new token and a token that it attends to",
    "attention",
    fed_by=("attention", "latent_attention", "index"),
)
CONTEXT = _term(
    "s/token",
    "decode attention, per context token: the KV cache's bandwidth, or the arithmetic of the query"
    " heads",
    "kv",
    fed_by=(*DECODE, "attention", "latent_bandwidth", "latent_arithmetic", "index"),
)
WALK = _term(
    "s/token",
    "latency of walking one context, per token of the mean context and wave of blocks",
    "kv",
    stages="times",
    fed_by=("walk_s",),
)
COMM_STEP = _term("s", "latency of small all-reduces", "link", stages="times", fed_by=LATENCY)
COMM_SMALL = _term(
    "s/token",
    "bytes of small all-reduces, which are one-shot kernels that move every GPU's copy",
    "link",
    fed_by=(*BANDWIDTH, "small", "one_shot"),
)
SMALL_TOKENS = _term(
    "tokens",
    "most tokens of a step for which an all-reduce may be a small one",
    stages="times",
    fed_by=("bridge",),
)
COMM_LARGE = _term("s", "latency of large all-reduces", "link", stages="times", fed_by=LATENCY)
COMM_TOKEN = _term("s/token", "bytes of large all-reduces", "link", fed_by=BANDWIDTH)
HOST_STEP = _term(
    "s",
    "scheduling and launching a step on the host",
    "host",
    stages="times",
    fed_by=(
        *LAYER,
        "step_s",
        "schedule_s",
        "expert_layer",
        "expert_layer_s",
        "expert_layer_4bit_s",
        "expert_each_s",
    ),
)
HOST_SEQUENCE = _term(
    "s/sequence",
    "what the host does for each sequence of a step",
    "host",
    fed_by=("sequence_s", "sequence_generation", "generation_sequence", "expert_sequence"),
)
HOST_PREFILL = _term(
    "s",
    "what the experts launch in a step with any prefill in it",
    "host",
    fed_by=("expert_prefill_s",),
)
EXPERT_UNEVEN = _term(
    "1",
    "how far the touched share f of the fullest GPU exceeds the mean, in units of the root of f ·"
    " (1 − f)",
)
EXPERT_FLOPS = _term(
    "s/token",
    "arithmetic of the routed experts' matrices",
    "compute",
    fed_by=(
        *MATRICES,
        "compute_blocks",
        "expert_compute",
        "expert_compute_wide",
        "expert_generation",
        "expert_skew",
    ),
)
STARVED = _term(
    "s",
    "large all-reduces whose kernel is left with few blocks",
    "link",
    stages="times",
    fed_by=("block_bytes_s",),
)
STARVED_FROM = _term("tokens", "tokens of a step above which they are", stages="times")
STARVED_TO = _term("tokens", "most tokens of a step for which they are", stages="times")
HEADS = _term(
    "s/token",
    "decode attention, per context token, while each query head is a separate block",
    "kv",
    fed_by=(*DECODE, "walk_s"),
)
WAVE = _term(
    "1",
    "waves of such blocks per decode sequence: query heads per multiprocessor",
    stages="share",
    fed_by=("walk_s",),
)
GROUPED_FROM = _term(
    "sequences",
    "decode sequences from which a block takes the query heads of a KV head together",
    stages="times",
    fed_by=("walk_s",),
)
LAUNCHES = _term(
    "s",
    "least duration of a step with any prefill in it whose kernels are launched one by one",
    "host",
    stages="times",
    fed_by=("launch_layer_s", "launch_layer", "generation_launch"),
)
COMM_SLOW = _term(
    "s/token",
    "what large all-reduces take longer below a size at which the algorithm changes",
    "link",
    fed_by=BRIDGED,
)
SLOW_TO = _term(
    "tokens", "tokens of a step below which they do", stages="times", fed_by=("bridge",)
)
ONE_SHOT_TO = _term(
    "tokens",
    "most tokens of a step for which an all-reduce is a small one even where a large one takes"
    " less",
    stages="times",
    fed_by=("one_shot_tokens",),
)
GRAPHED_TO = _term(
    "tokens",
    "most tokens of a step with any prefill in it that CUDA graphs hold: it has neither LAUNCHES"
    " nor EAGER",
    stages="times",
)
EAGER = _term(
    "s",
    "what the host does for a step with any prefill in it that no CUDA graph holds, and what its"
    " layers take longer",
    "host",
    fed_by=(
        "prefill_s",
        "prefill_ranks_s",
        "prefill_layer_s",
        "latent_prefill_s",
        "state_prefill_s",
        "generation_launch",
    ),
)
SPARSE = _term(
    "s/pair",
    "prefill attention of layers that bound what a token attends to, per pair, as if they did not",
    "attention",
    fed_by=("attention", "latent_attention"),
)
SPARSE_MOST = _term(
    "s/token",
    "the same at its bound, per new token; a step takes the smaller of the two",
    "attention",
    fed_by=("attention", "latent_attention"),
)
SCAN = _term(
    "s/token",
    "prefill of layers with a state or with windows and compressed entries, per new token",
    "attention",
    fed_by=("scan", "attention", "latent_attention"),
)
BOUNDED = _term(
    "s/sequence",
    "decode attention to windows and chosen entries, and reading and writing states",
    "kv",
    fed_by=(
        *DECODE,
        "attention",
        "latent_bandwidth",
        "latent_arithmetic",
        "walk_s",
        "gathered",
        "state_bandwidth",
    ),
)
HOST_LEAST = _term(
    "s",
    "least duration of a step of a host slower than measured, or of layers launched one by one",
    "host",
    stages="times",
    fed_by=(*LAYER, "step_s", "piece_layer_s"),
)
HOST_LEAST_SEQUENCE = _term(
    "s/sequence",
    "the same per sequence of the step",
    "host",
    fed_by=("sequence_s", "sequence_generation", "generation_sequence"),
)
ADAPTERS = _term(
    "s",
    "the pass over LoRA adapters, as if the step used every one of them",
    "compute",
    stages="times",
)
ADAPTER_MISS = _term(
    "1",
    "factor by which one more sequence shrinks the share of adapters that no sequence uses",
    stages="root",
)
ENCODER = _term("s/token", "the image encoder, spread over the new tokens of prompts", "compute")

_NAMES = {
    place: name.lower()
    for name, place in globals().items()
    if name.isupper() and isinstance(place, int)
}
TERMS: tuple[StepTerm, ...] = tuple(replace(term, name=_NAMES[term.place]) for term in _described)
"""Every term, by its place."""

COEFFICIENTS = len(TERMS)
"""Length of the coefficient array without a table behind it."""

DURATIONS: tuple[int, ...] = tuple(term.place for term in TERMS if term.is_time)
"""Places of the coefficients that are durations."""

MESSAGES = ((COMM_STEP, COMM_SMALL), (COMM_LARGE, COMM_TOKEN))
"""Places of latency and of seconds per token, for each of the two kinds of messages between GPUs:
small ones and large ones."""


ARITHMETIC = (LINEAR_FLOPS, EXPERT_FLOPS, HEAD_FLOPS, ATTENTION, SPARSE, SPARSE_MOST, SCAN, ENCODER)
"""Places of what multiprocessors compute: durations that follow their clock."""


def places_of(part: Part) -> tuple[int, ...]:
    """Places of the durations that belong to one part of an explained step."""
    return tuple(term.place for term in TERMS if term.part == part)
