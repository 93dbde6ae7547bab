"""LoRA adapters and image encoders as others measured them, beside what Tonnage estimates.

    ./benchmark published [--fit]

Each line has the measured value, the estimate and its error. ``--fit`` prints the two durations of
``perf.images_and_adapters`` that the runs of vLLM 0.8 ask for. The measurements are typed here from
their sources; nothing is fitted to the others.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tonnage.results.metrics import Summary
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.images import Encoder
    from tonnage.spec.workload import ClosedLoop, OpenLoop

AGULLO = "FerranAgulloLopez/GPULLMAdapterOptimization, data of arXiv 2508.08343"
H100_64GB = {"memory_gb": 64.0, "memory_bandwidth_gb_s": 2020.0}
"""The H100 of MareNostrum 5, with HBM2e (its bandwidth recalled)."""

VLLM_08 = (
    (8, 0.482, 226, 192, 14.76),
    (16, 15.66, 225, 195, 28.56),
    (32, 1.92, 226, 194, 17.37),
    (64, 3.82, 223, 198, 22.24),
    (128, 7.51, 222, 194, 46.25),
)
"""Slots of rank 16, as many adapters, requests/s, mean prompt and output, mean TPOT in ms: Llama
3.1 8B in vLLM 0.8 (V1) of 2025-05-16."""

VLLM_05 = (
    (8, 1, 52.20, 55.62, 165),
    (8, 32, 52.20, 56.11, 165),
    (32, 1, 47.23, 51.34, 125),
    (32, 32, 47.23, 52.46, 125),
)
"""Rank, adapters, median ITL in ms without and with them, sequences that the KV cache held: Llama 2
7B in vLLM 0.5.0 of 2024-12-06."""

LOST = (
    (
        "Qwen3 30B-A3B, batch 8, B200, vLLM 0.19 (unsloth#5123)",
        "qwen3-30b-a3b",
        "b200-sxm-180gb",
        "vllm-0.19",
        1,
        8,
        0.56,
    ),
    ("Qwen3 30B-A3B, batch 32", "qwen3-30b-a3b", "b200-sxm-180gb", "vllm-0.19", 1, 32, 0.59),
    ("Qwen3 30B-A3B, batch 48", "qwen3-30b-a3b", "b200-sxm-180gb", "vllm-0.19", 1, 48, 0.60),
    (
        "Qwen2.5 32B, 2 × A100, vLLM 0.5.0 (vllm#9452)",
        "qwen2.5-32b",
        "a100-sxm-80gb",
        "vllm-0.10",
        2,
        16,
        0.84,
    ),
    (
        "Qwen2.5 32B, 2 × A100, vLLM 0.6.2 (vllm#9452)",
        "qwen2.5-32b",
        "a100-sxm-80gb",
        "vllm-0.10",
        2,
        16,
        0.45,
    ),
    (
        "Llama 2 7B, one request, 8 × A100, vLLM 0.6 (vllm#10898)",
        "llama-2-7b",
        "a100-sxm-40gb",
        "vllm-0.10",
        8,
        1,
        15 / 23,
    ),
)
"""Throughput with one adapter as a share of that without, of decode steps in this batch; where a
source states no batch, of 16."""

VIT_B, VIT_L = (12, 768, 12, 3072), (24, 1024, 16, 4096)
FASTER_TRANSFORMER = (
    ("ViT-B/16", VIT_B, 577, {1: 2.24, 8: 11.14, 32: 43.81}),
    ("ViT-B/16", VIT_B, 197, {1: 1.53, 8: 3.03, 32: 10.04}),
    ("ViT-L/16", VIT_L, 577, {1: 5.36, 8: 30.95, 32: 124.85}),
    ("ViT-L/16", VIT_L, 197, {1: 2.97, 8: 8.09, 32: 29.66}),
)
"""Layers, width, heads, MLP; patches; ms by batch: FP16 on an A100 40 GB (NVIDIA/FasterTransformer
docs/vit_guide.md, 6ea1c77c)."""

NINFER = {448: 27.2, 672: 56.0, 896: 112.0, 1120: 181.5, 1344: 300.0, 1568: 475.0}
"""Pixels of a square, and milliseconds of the encoder of Qwen3.6 27B on an RTX 3090:
ashalliants/ninfer-3090#78, 2026-09-09."""

QWEN_2_5_VL = {"layers": 32, "hidden": 1280, "heads": 16, "ffn": 3420, "gated": True}
WINDOWED, WINDOW = 28, 64
"""Layers of its encoder that attend within windows, and patches of one (112 × 112 pixels)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measurement beside its estimate.

    Attributes:
        group: what kind it is of; the page gives a mean for each.
        what: deployment and load.
        unit: of both values.
    """

    group: str
    what: str
    unit: str
    measured: float
    estimated: float

    @property
    def error(self) -> float:
        """Of the estimate, as a share of the measured value."""
        return self.estimated / self.measured - 1


def deployed(model: str, gpu: str, engine: str, tp: int = 1, **more: Any) -> Deployment:
    """A deployment in 16 bits."""
    from tonnage.api.question.deployment import deployment_of

    return deployment_of(model=model, gpu=gpu, precision="fp16", tp=tp, engine=engine, **more)


def ran(
    deployment: Deployment, arrivals: OpenLoop | ClosedLoop, requests: int, isl: int, osl: int
) -> Summary:
    """A run whose lengths vary as those of ShareGPT do, with the means that a source states."""
    from tonnage.results.metrics import summarize
    from tonnage.simulator.simulate import run
    from tonnage.simulator.spec import spec_of
    from tonnage.spec.lengths import parse_lengths
    from tonnage.spec.workload import Workload

    prompts, outputs = (parse_lengths(f"lognormal:{mean},{mean}", "lengths") for mean in (isl, osl))
    return summarize(
        run(
            spec_of(deployment),
            Workload(isl=prompts, osl=outputs, arrivals=arrivals, requests=requests).trace(0),
        )
    )


def tpot_ms(slots: int, rate: float, isl: int, osl: int) -> float:
    """Mean time per output token of a run of ``VLLM_08``."""
    from tonnage.spec.workload import OpenLoop

    found = deployed("llama-3.1-8b", "h100-sxm-80gb", "vllm-0.10", lora=f"rank=16 adapters={slots}")
    return ran(
        replace(found, gpu=replace(found.gpu, **H100_64GB)), OpenLoop(rate=rate), 1500, isl, osl
    ).tpot_ms.mean


def adapters() -> Iterator[Compared]:
    """What LoRA adapters make of a step."""
    from tonnage.spec.workload import ClosedLoop

    for slots, rate, isl, osl, measured in VLLM_08:
        what, estimate = (
            f"{slots} of rank 16, Llama 3.1 8B, {rate:g}/s, H100, vLLM 0.8",
            tpot_ms(slots, rate, isl, osl),
        )
        yield Compared(
            group="adapters, fitted",
            what=what,
            unit="ms TPOT",
            measured=measured,
            estimated=estimate,
        )
    for what, model, gpu, engine, tp, batch, measured in LOST:
        with_one, without = steps_ms(
            deployed(model, gpu, engine, tp, lora="rank=16 adapters=1"), batch
        )
        yield Compared(
            group="adapters, throughput kept",
            what=what,
            unit="of the base",
            measured=measured,
            estimated=without / with_one,
        )
    one = deployed("llama-2-7b", "a100-sxm-80gb", "vllm-0.10", lora="rank=8 adapters=1")
    offline = ran(one, ClosedLoop(concurrency=1000), 1000, 246, 235).requests_per_second
    what = "1 of rank 8, 1,000 ShareGPT prompts, A100, V1 (vllm#11613)"
    yield Compared(
        group="adapters, a job", what=what, unit="requests/s", measured=10.96, estimated=offline
    )
    for rank, count, alone, measured, held in VLLM_05:
        deployment = deployed(
            "llama-2-7b", "h100-sxm-80gb", "vllm-0.10", lora=f"rank={rank} adapters={count}"
        )
        with_them, without = steps_ms(deployment, held)
        what, estimate = f"{count} of rank {rank}, vLLM 0.5.0", alone + with_them - without
        yield Compared(
            group="adapters, other kernels",
            what=what,
            unit="ms ITL",
            measured=measured,
            estimated=estimate,
        )
    with_one, without = steps_ms(one, 32)
    what = "Punica, 2 ms a token, A100 (arXiv 2310.18547)"
    yield Compared(
        group="adapters, other kernels",
        what=what,
        unit="ms added",
        measured=2.0,
        estimated=with_one - without,
    )


def steps_ms(deployment: Deployment, batch: int) -> tuple[float, float]:
    """Milliseconds of a decode step with the deployment's adapters, and without."""
    from tonnage.perf.terms import step_model

    with_them, without = (
        step_model(one).decode_ps(batch) / 1e9
        for one in (deployment, replace(deployment, adapters=None))
    )
    return with_them, without


def transformer_of(layers: int, hidden: int, heads: int, ffn: int, **more: Any) -> Encoder:
    """An encoder by its sizes."""
    from tonnage.spec.images import Encoder

    given = {
        "gated": False,
        "patch": 16,
        "merge": 1,
        "sizing": "fixed",
        "mergers": 0,
        "name": "vit",
        "models": (),
        "source": "",
        "date": "",
    }
    return Encoder(layers=layers, hidden=hidden, heads=heads, ffn=ffn, **{**given, **more})


def encoders() -> Iterator[Compared]:
    """What image encoders take."""
    from tonnage.perf.terms import encoder_seconds, step_model
    from tonnage.spec.catalog import find_encoder

    on = deployed("llama-2-7b", "a100-sxm-40gb", "tensorrt-llm-0.9")
    for name, sizes, patches, rows in FASTER_TRANSFORMER:
        for batch, measured in rows.items():
            estimate = 1e3 * encoder_seconds(on, transformer_of(*sizes), [patches] * batch)
            what = f"{name}, {batch} of {patches} patches, A100"
            yield Compared(
                group="encoders, FasterTransformer",
                what=what,
                unit="ms",
                measured=measured,
                estimated=estimate,
            )
    found = deployed("qwen3.6-27b", "a10-24gb", "vllm-0.32")
    rtx = replace(
        found,
        gpu=replace(
            found.gpu, name="rtx-3090", fp16_tflops=71.0, memory_bandwidth_gb_s=936.0, tdp_w=350.0
        ),
    )
    encoder = find_encoder("qwen3.6-27b")
    for side, measured in NINFER.items():
        estimate = 1e3 * encoder_seconds(rtx, encoder, encoder.sequences(side, side))
        yield Compared(
            group="encoders, ninfer",
            what=f"Qwen3.6 27B, {side} px, RTX 3090",
            unit="ms",
            measured=measured,
            estimated=estimate,
        )
    h100, tokens = deployed("qwen2.5-7b", "h100-sxm-80gb", "vllm-0.19"), 2718
    patches = 4 * 69 * 39
    whole = encoder_seconds(h100, transformer_of(**QWEN_2_5_VL, merge=2, mergers=1), [patches])
    windows = encoder_seconds(
        h100, transformer_of(**QWEN_2_5_VL, merge=2, mergers=1), [WINDOW] * (patches // WINDOW)
    )
    layers = int(QWEN_2_5_VL["layers"])
    ms = 1e3 * (windows * WINDOWED + whole * (layers - WINDOWED)) / layers + 1e3 * step_model(
        h100
    ).seconds(tokens, 1, 0, tokens**2, 0)
    what = "Qwen2.5-VL 7B, 1,920 × 1,080 px with its prefill, H100 (vllm#41267)"
    yield Compared(group="encoders, vLLM", what=what, unit="ms", measured=126.0, estimated=ms)


def fit() -> Iterator[str]:
    """The two durations with the least squares of the relative errors of ``VLLM_08``, by Gauss and
    Newton's method.
    """
    import numpy as np

    from tonnage.perf import images_and_adapters as module

    values = np.array([module.GROUP_S, module.ADAPTER_S])

    def errors(at: Any) -> Any:
        module.GROUP_S, module.ADAPTER_S = at
        return np.array(
            [
                tpot_ms(slots, rate, isl, osl) / measured - 1
                for slots, rate, isl, osl, measured in VLLM_08
            ]
        )

    for _ in range(4):
        here = errors(values)
        slopes = np.column_stack(
            [
                (errors(values * (1 + 0.05 * unit)) - here) / (0.05 * values @ unit)
                for unit in np.eye(2)
            ]
        )
        values = values - np.linalg.lstsq(slopes, here, rcond=None)[0]
        yield f"GROUP_S {values[0]:.3g}, ADAPTER_S {values[1]:.3g}"


def main() -> None:
    """Run as asked."""
    parser = argparse.ArgumentParser(
        description="LoRA adapters and image encoders as others measured them"
    )
    parser.add_argument("--fit", action="store_true")
    if parser.parse_args().fit:
        for line in fit():
            print(line, flush=True)
        return
    rows = [*adapters(), *encoders()]
    for row in rows:
        print(
            f"{row.group:28} {row.what:66} {row.measured:8.2f} {row.estimated:8.2f} {row.unit:11}"
            f" {row.error:+7.1%}"
        )
    for group in dict.fromkeys(row.group for row in rows):
        sizes = [abs(row.error) for row in rows if row.group == group]
        print(f"{group}: {sum(sizes) / len(sizes):.0%} on average of {len(sizes)}", file=sys.stderr)


if __name__ == "__main__":
    main()
