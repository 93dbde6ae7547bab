"""CPU seconds of the simulator's kernel for a few loads and every scheduler, and requests per CPU
second.

    ./benchmark kernel [--baseline PATH_TO_ANOTHER_CHECKOUT] [--rounds 7] [--only WORDS]

With ``--baseline`` both checkouts take turns in processes of their own, and the last column is new
over old. Compilation and the drawing of the load are not counted; ``compile`` is the CPU seconds of
the first call in a process that finds no compiled code.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.interleaved import measure, print_table

REPEATS = 3
LOADS: dict[str, dict[str, Any]] = {
    "tensorrt-llm 512/128 Poisson 4/s": {
        "engine": "tensorrt-llm-0.15",
        "rate": 4,
        "requests": 200_000,
    },
    "vllm 512/128 Poisson 4/s": {"engine": "vllm", "rate": 4, "requests": 200_000},
    "sglang 512/128 Poisson 4/s": {"engine": "sglang", "rate": 4, "requests": 200_000},
    "tensorrt-llm 512/2048": {
        "engine": "tensorrt-llm-0.15",
        "rate": 1,
        "osl": 2_048,
        "requests": 20_000,
    },
    "vllm 512/2048": {"engine": "vllm", "rate": 1, "osl": 2_048, "requests": 20_000},
    "vllm 512/512 pre-emption": {
        "engine": "vllm",
        "concurrency": 64,
        "osl": 512,
        "requests": 20_000,
        "blocks": 1_500,
    },
    "sglang 512/512 retraction": {
        "engine": "sglang",
        "concurrency": 64,
        "osl": 512,
        "requests": 20_000,
        "blocks": 24_000,
    },
    "vllm 512/128 speculation": {
        "engine": "vllm",
        "concurrency": 32,
        "requests": 50_000,
        "drafted": 3,
    },
    "sglang 512/128 speculation": {
        "engine": "sglang",
        "concurrency": 32,
        "requests": 50_000,
        "drafted": 3,
    },
    "static 512/128 closed loop": {
        "engine": "tensorrt-llm-0.15",
        "scheduler": "static",
        "concurrency": 64,
        "requests": 100_000,
    },
    "tensorrt-llm 512/128 256 clients": {
        "engine": "tensorrt-llm-0.15",
        "concurrency": 256,
        "requests": 100_000,
    },
    "vllm 512/128 streamed, window": {
        "engine": "vllm",
        "concurrency": 64,
        "requests": 100_000,
        "stream": 2e-6,
        "window": 3_000,
    },
}


def run_of(
    *,
    engine: str,
    requests: int,
    osl: int = 128,
    rate: float = 0,
    concurrency: int = 0,
    blocks: int = 0,
    **further: Any,
) -> tuple[Any, ...]:
    """The arguments of the kernel's ``run`` for Llama-2-7B on an A100, and its keywords."""
    from tonnage.perf.memory import memory_plan
    from tonnage.perf.step import COEFFICIENTS, NORM, Drafting
    from tonnage.perf.terms import step_model
    from tonnage.spec.catalog import find_engine, find_gpu, find_model
    from tonnage.spec.deployment import Deployment, Parallelism
    from tonnage.spec.engine import default_knobs
    from tonnage.spec.precision import find_precision
    from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload

    gpu, spec, model = find_gpu("a100-sxm-80gb"), find_engine(engine), find_model("llama-2-7b")
    knobs = default_knobs(spec, gpu, ranks=1)
    if "scheduler" in further:
        knobs = replace(knobs, scheduler=further["scheduler"])
    parts = {
        "model": model,
        "gpu": gpu,
        "precision": find_precision("fp16"),
        "parallelism": Parallelism(),
        "engine": spec.name,
    }
    deployment = Deployment(**parts, knobs=knobs)
    arrivals = ClosedLoop(concurrency=concurrency) if concurrency else OpenLoop(rate=rate)
    isl, outputs = (
        Lengths(kind="normal", mean=512, std=128),
        Lengths(kind="normal", mean=osl, std=osl / 4),
    )
    trace = Workload(isl=isl, osl=outputs, arrivals=arrivals, requests=requests).trace(7)
    step = step_model(deployment)
    if "drafted" in further:
        import numpy as np

        nothing = np.zeros(COEFFICIENTS)
        nothing[NORM] = 1.0
        step = replace(
            step,
            drafting=Drafting(
                tokens=further["drafted"], acceptance=0.7, passes=0, coefficients=nothing
            ),
        )
    if "stream" in further:
        step = replace(step, stream_s=further["stream"])
    options = {
        "max_context": model.max_context,
        "window_ps": further["window"] * 10**12 if "window" in further else -1,
    }
    return (trace, step, knobs, blocks or memory_plan(deployment).blocks), options


def run_all(only: str) -> dict[str, float]:
    """CPU seconds of each load, the least of some runs in this process."""
    from tonnage.simulator.kernel import run, warm_up

    warm_up()
    found = {}
    for name, load in LOADS.items():
        if only not in name:
            continue
        arguments, options = run_of(**load)
        seconds = []
        for _ in range(REPEATS):
            began = time.process_time()
            run(*arguments, **options)
            seconds.append(time.process_time() - began)
        found[name] = min(seconds)
    return found


def compile_anew() -> dict[str, float]:
    """CPU seconds until the kernel is there, in a process that finds no compiled code."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        began = time.process_time()
        from tonnage.simulator.kernel import warm_up

        warm_up()
        return {"compile": time.process_time() - began}


def main() -> None:
    """Run as asked, or as a child of such a run."""
    parser = argparse.ArgumentParser(description="CPU seconds of the simulator's kernel")
    parser.add_argument(
        "--baseline", type=Path, help="another checkout to compare with, run in turn"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="loads whose name holds these words")
    parser.add_argument("--compile", action="store_true", help="measure the compilation instead")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(compile_anew() if asked.compile else run_all(asked.only)))
        return
    arguments = ["--compile"] if asked.compile else ["--only", asked.only]
    found = measure(Path(__file__).resolve(), asked.baseline, asked.rounds, arguments)
    print_table(
        found, None if asked.compile else {name: load["requests"] for name, load in LOADS.items()}
    )


if __name__ == "__main__":
    main()
