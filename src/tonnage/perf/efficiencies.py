"""What one deployment reaches of its datasheets, and its host times: what the coefficients of a step are made of."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.perf.experts import ExpertTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Efficiencies and host times of one (GPU, precision, link, engine); all are fitted.

    Attributes:
        compute, compute_16: share of the datasheet's matrix rate that the linear layers reach, in this precision and in 16 bits.
        memory, memory_16: share of the memory bandwidth that reading weights reaches.
        norm: exponent that joins arithmetic and weight traffic.
        activation: passes of the activations through memory, relative to the count of ``coefficients``.
        gelu: elements that GELU reads and writes per element of its input, in kernels of its own.
        attention: share of the 16-bit matrix rate in prefill attention.
        kv_bandwidth: share of the memory bandwidth in decode attention.
        head_arithmetic: decode attention of one query head after another, as a share of the 16-bit
            matrix rate; infinite where the kernel takes all heads of a KV head at once.
        walk_s: seconds per token and layer that one block takes to walk a context with heads 128 wide; 0 where contexts are split.
        link_bytes_s: bytes/s per GPU and direction that all-reduces reach.
        slow_bytes_s: the same for messages below ``CHANGE_BYTES``.
        small_bytes_s: the same for small all-reduces, which move (tp − 1) copies.
        small_bytes: largest message of a small all-reduce, in bytes.
        one_shot_tokens: tokens of a step up to which every all-reduce is a small one.
        small_s, large_s: latency of a small and of a large all-reduce.
        block_bytes_s: bytes/s of one block of the two-shot all-reduce; 0 where the kernel is another.
        layer_s, step_s, sequence_s, prefill_s: host seconds per layer, step, sequence, step with prefill.
        experts: those of a mixture of experts.
        launch_s: seconds to launch the kernels of a step with prefill one by one.
        eager_s: seconds that such a step takes longer for what latent attention launches.
        frontend_s: see ``StepModel``.
    """

    compute: float
    compute_16: float
    memory: float
    memory_16: float
    norm: float
    activation: float
    gelu: float
    attention: float
    kv_bandwidth: float
    head_arithmetic: float
    walk_s: float
    link_bytes_s: float
    slow_bytes_s: float
    small_bytes_s: float
    small_bytes: float
    one_shot_tokens: float
    small_s: float
    large_s: float
    block_bytes_s: float
    layer_s: float
    step_s: float
    sequence_s: float
    prefill_s: float
    experts: ExpertTerms
    launch_s: float
    eager_s: float
    frontend_s: float
