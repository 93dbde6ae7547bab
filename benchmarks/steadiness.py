"""How steady answers are: random questions at a given GPU, engine and format, each asked again with
one thing changed.

    ./benchmark steadiness [--questions 20] [--seed 0] [--verbose]

For each change it prints how often the number of systems, and the exact one, went the wrong way,
and by how much at most; for N times the load and for another seed, how far the answer moved. Looser
limits, less load, a lower confidence and faster steps must never need more; requests a fifth
shorter must not either, but other lengths make other batches, so that a hair of noise is theirs.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.api.sizing import ask
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.sensitivity import changed_question

GPUS = ("h100-sxm-80gb", "l40s", "b200-sxm-180gb", "h200-sxm-141gb")
ENGINES = ("vllm", "tensorrt-llm", "sglang")
LENGTHS = (
    (500, 200),
    (2000, 100),
    (50, 50),
    (3500, 10),
    ("lognormal:1500,1500", "lognormal:200,150"),
    ("800+-300", "400+-200"),
)
LIMITS: tuple[dict[str, str], ...] = (
    {"ttft": "p95<=500ms"},
    {"ttft": "p99<=1s", "tpot": "p95<=40ms"},
    {"itl": "p99<=100ms"},
    {"e2e": "p95<=8s"},
    {"tpot": "mean<=25ms"},
    {"ttft": "p95<=1s", "itl": "p99<=50ms"},
    {},
)
SYSTEMS = 20
"""About how many systems a question needs: its load is that many times what a first answer's system
carries."""


def drawn(rng: random.Random) -> Question:
    """A question."""
    isl, osl = rng.choice(LENGTHS)
    asked: dict[str, Any] = {
        "model": rng.choice(("llama-3.1-8b", "llama-3.1-8b", "gemma-2-9b", "llama-3.1-70b")),
        "gpu": rng.choice(GPUS),
        "precision": "fp8",
        "engine": rng.choice(ENGINES),
        "isl": isl,
        "osl": osl,
        "peak_rps": 10,
        **rng.choice(LIMITS),
    }
    if rng.random() < 0.25:
        asked |= {"arrivals": "gamma", "cv": 2}
    return replace(ask(**asked).questions[0], deepen=False)


def times(question: Question, factor: float) -> Question:
    """The question at so many times the load."""
    return changed_question(question, "rate", factor - 1)


def looser(question: Question, factor: float) -> Question:
    """The question with every limit so many times as high."""
    return replace(
        question,
        slo=tuple(replace(limit, seconds=limit.seconds * factor) for limit in question.slo),
    )


LESS: dict[str, Callable[[Question], Question]] = {
    "limits x 1.03": lambda q: looser(q, 1.03),
    "limits x 1.3": lambda q: looser(q, 1.3),
    "load x 0.9": lambda q: times(q, 0.9),
    "confidence 50 %": lambda q: replace(q, confidence=0.5),
    "steps x 0.83": lambda q: changed_question(q, "step_time", -1 / 6),
    "prompts - 20 %": lambda q: changed_question(q, "isl", -0.2),
    "outputs - 20 %": lambda q: changed_question(q, "osl", -0.2),
}
"""What must not need more systems."""


@dataclass
class Tally:
    """What one change did over all questions: ratios of the exact systems, and rises of the whole
    ones.
    """

    exact: list[float] = field(default_factory=list)
    rises: int = 0

    def add(self, before: tuple[int, float], after: tuple[int, float]) -> bool:
        """Note a change; whether the whole number rose."""
        self.exact.append(after[1] / before[1])
        self.rises += after[0] > before[0]
        return after[0] > before[0]


def answered(question: Question) -> tuple[int, float] | None:
    """Systems and exact systems of the choice; None where there is none."""
    choice = size(question).choice
    return None if choice is None else (choice.systems, choice.systems_exact)


def at_scale(question: Question) -> Question | None:
    """The question at a load of about ``SYSTEMS`` systems; None where nothing meets its limits."""
    first = answered(question)
    return None if first is None else times(question, SYSTEMS / first[1])


def main() -> None:
    """Ask, and print."""
    parser = argparse.ArgumentParser(description="how steady the answers of tonnage size are")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--verbose", action="store_true", help="name the questions that went the wrong way"
    )
    given = parser.parse_args()
    rng = random.Random(given.seed)
    less, scaled, seeds = {name: Tally() for name in LESS}, [], []
    asked = 0
    while asked < given.questions:
        question = at_scale(drawn(rng))
        before = None if question is None else answered(question)
        if question is None or before is None:
            continue
        asked += 1
        place = f"{question.model.name} {question.gpus[0].name} {question.engines[0]}"
        said = f"{place} {question.isl}/{question.osl} {question.slo} {question.process}"
        for name, change in LESS.items():
            after = answered(change(question))
            if (
                after is not None
                and (less[name].add(before, after) or less[name].exact[-1] > 1.0)
                and given.verbose
            ):
                print(f"  {name}: {before} -> {after}: {said}", flush=True)
        for factor in (0.25, 3.0):
            after = answered(times(question, factor))
            scaled.append(after[1] / before[1] / factor if after else 0.0)
        for seed in (1, 2):
            after = answered(replace(question, seed=seed))
            seeds.append(after[1] / before[1] - 1 if after else 1.0)
            if abs(seeds[-1]) > 0.05 and given.verbose:
                print(f"  seed {seed}: {before} -> {after}: {said}", flush=True)
    print(f"{asked} questions of about {SYSTEMS} systems")
    for name, tally in less.items():
        wrong = sum(ratio > 1 + 1e-9 for ratio in tally.exact)
        print(
            f"{name:16} more systems {tally.rises:3}, more exactly {wrong:3}, at most"
            f" {100 * (max(tally.exact) - 1):+.1f} %"
        )
    print(f"N x load         exact systems over N times {min(scaled):.3f} to {max(scaled):.3f}")
    spread = [abs(one) for one in seeds]
    beyond = f"beyond 5 %: {sum(one > 0.05 for one in spread)} of {len(spread)}"
    print(
        f"another seed     median {100 * statistics.median(spread):.1f} %, worst"
        f" {100 * max(spread):.1f} %, {beyond}"
    )


if __name__ == "__main__":
    main()
