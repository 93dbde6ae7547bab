"""Random questions answered with and without pruning: how many answers are the same, and the CPU
seconds of both.

    ./benchmark pruning [--questions 50] [--seed 1] [--minutes 60]

Without pruning every deployment that fits, with every setting of every knob, is simulated at 90 %
of the load that it would have to carry to be the best, and in full where it carries that. The
answer is the deployment that is chosen, with its number of systems. Its GPUs before rounding may
differ by what the search itself leaves open, ``TOLERANCE``; an answer that differs is printed with
both, and marked where it takes more GPUs. The seconds are those of all threads; compilation is not
counted.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.api.sizing import ask
from tonnage.errors import InputError
from tonnage.simulator.kernel import warm_up
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.search.search import Search

if TYPE_CHECKING:
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.deployment_capacity import Sized

TOLERANCE = 0.015
"""Share by which the GPUs before rounding may differ: one step of the lattice of loads is 1.1 %."""

MODELS = (
    "llama-3.1-8b",
    "qwen3-4b",
    "qwen3-14b",
    "qwen3-32b",
    "llama-3.1-70b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "qwen3-30b-a3b",
)
GPUS = ("h100", "h200", "b200", "mi300x", "l40s", "a100")
ENGINES = ("tensorrt-llm", "vllm", "sglang")
LENGTHS = ((200, 2_000), (1_000, 8_000), (8_000, 60_000))
"""Ranges of the prompts, each taken as often."""


def drawn(rng: np.random.Generator) -> dict[str, Any]:
    """The arguments of one question."""
    low, high = LENGTHS[rng.integers(len(LENGTHS))]
    isl, osl = (
        int(10 ** rng.uniform(np.log10(a), np.log10(b))) for a, b in ((low, high), (50, 1_000))
    )
    spread = rng.random() < 0.5
    limits: dict[str, Any] = {
        "ttft": (
            f"p{rng.choice([50, 90, 95, 99])}<={10 ** rng.uniform(-0.7, 0.8) * max(1.0, isl / 8_000):.2g}s"
        )
    }
    other = rng.integers(4)
    if other < 3:
        limits[("tpot", "itl", "e2e")[other]] = (
            "p95<={:.3g}ms",
            "p99<={:.3g}ms",
            "mean<={:.3g}ms",
        )[other].format(
            (
                10 ** rng.uniform(1.2, 2.2),
                10 ** rng.uniform(1.8, 3.0),
                10 ** rng.uniform(1.2, 2.0) * osl + 1_000,
            )[other]
        )
    return {
        "model": str(rng.choice(MODELS)),
        "gpu": ",".join(sorted(rng.choice(GPUS, size=rng.integers(1, 3), replace=False))),
        "engine": str(rng.choice(ENGINES)),
        "isl": f"lognormal:{isl},{isl // 2}" if spread else isl,
        "osl": f"lognormal:{osl},{osl // 2}" if spread else osl,
        "peak_rps": float(f"{10 ** rng.uniform(0.0, 2.5) * min(1.0, 4_000 / isl):.3g}"),
        **limits,
    }


def answered(question: Question, prune: bool) -> tuple[Sized | None, float]:
    """The choice, and the CPU seconds that it took."""
    began = time.process_time()
    best = Search(question=question, runs=Runs(), prune=prune, rows=False).answer().best
    return best, time.process_time() - began


def shown(best: Sized | None) -> str:
    """One answer in words."""
    if best is None:
        return "none"
    knobs, trial = best.ready.trial.deployment.knobs, best.ready.trial
    knob = f", budget {knobs.max_num_tokens:,}, batch {knobs.max_batch_size:,}"
    return f"{best.systems} systems, {best.gpus} GPUs ({best.gpus_exact:.4g}) × {trial.name}{knob}"


def same(one: Sized | None, other: Sized | None) -> bool:
    """Whether two answers are the same."""
    if one is None or other is None:
        return one is other
    close = abs(one.gpus_exact / other.gpus_exact - 1.0) <= TOLERANCE
    return (
        one.ready.trial.identity == other.ready.trial.identity
        and one.systems == other.systems
        and close
    )


def dearer(one: Sized | None, other: Sized | None) -> bool:
    """Whether the first answer takes more GPUs, or is none where the other is one."""
    return other is not None and (one is None or one.gpus > other.gpus)


def main() -> None:
    """Ask, compare, and print."""
    parser = argparse.ArgumentParser(description="Answers with and without pruning")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help="begin no further question after so long",
    )
    asked = parser.parse_args()
    warm_up()
    rng, began = np.random.default_rng(asked.seed), time.monotonic()
    done = equal = cost = without_answer = 0
    seconds = np.zeros(2)
    while done < asked.questions and time.monotonic() - began < 60 * asked.minutes:
        arguments = drawn(rng)
        try:
            question = ask(**arguments).questions[0]
        except InputError as error:
            print(f"left out: {error}")
            continue
        (pruned, fast), (whole, slow) = answered(question, True), answered(question, False)
        done, equal, cost = done + 1, equal + same(pruned, whole), cost + dearer(pruned, whole)
        seconds += np.array((fast, slow))
        without_answer += pruned is None and whole is None
        mark = (
            "same"
            if same(pruned, whole)
            else "MORE GPUS"
            if dearer(pruned, whole)
            else "as few GPUs"
        )
        print(f"{done:3} {mark}  {fast:6.1f} s, {slow:6.1f} s in full  {shown(pruned)}", flush=True)
        if mark != "same":
            print(f"    in full: {shown(whole)}\n    {arguments}", flush=True)
    print(
        f"\n{equal} of {done} answers are the same; {cost} take more GPUs than the full search"
        f" finds; {without_answer} have no answer"
    )
    print(
        f"{seconds[0]:.0f} s of CPU with pruning, {seconds[1]:.0f} s without:"
        f" {seconds[1] / max(seconds[0], 1e-9):.1f} times as long"
    )


if __name__ == "__main__":
    main()
