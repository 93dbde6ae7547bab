"""What a measurement buys: 100 true step factors, ten simulated points of each, and the plan after them beside the one that knows the truth.

    ./benchmark measurement [--draws 100] [--seed 1] [--write]
    ./benchmark measurement --points

A plan proposes points to measure and says what they would buy on average. Here a true factor on every step is drawn from the errors of the
plan's own prediction. The points that it proposes are simulated with it, each metric with the scatter that a calibration counts with, and
``calibrate`` is run on them. The plan after that is compared with the plan that knows the factor. --write puts the table into
docs/intervals.md with machine and date.

--points asks the same of measurements: ten points of each deployment of 2026 (../shared/data/modern) calibrate its others. It prints how many
of their times per token lie inside the 80 % interval.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from tonnage.api.size import answer, ask
from tonnage.calibration.calibrate import calibrate, calibrated
from tonnage.calibration.measurement import contender_of
from tonnage.calibration.residuals import SIGMA
from tonnage.perf.calibrated_terms import overlaid
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms import client_turnaround_s
from tonnage.perf.terms_file import shipped
from tonnage.plan.candidate import Candidate
from tonnage.plan.measurement import Measurement
from tonnage.simulator.kernel import run
from tonnage.sizing.loads.confidence import metric_of
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.slower import slower
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.contender import Contender
from tonnage.sizing.search.narrowed import narrowed
from tonnage.spec.catalog import find_engine
from tonnage.validation.load import workload_of
from tonnage.validation.point import read_point
from tonnage.validation.reported import RATES, reported_metrics

ROOT = Path(__file__).resolve().parents[1]
PAGE, BEGIN, END = ROOT / "docs" / "intervals.md", "<!-- measurement -->\n", "<!-- end of measurement -->\n"

CHAT: dict[str, Any] = {"model": "llama-3.1-8b", "isl": 2000, "osl": 200, "ttft": "p95<=500ms", "tpot": "p95<=50ms"}
ASKED: dict[str, dict[str, Any]] = {
    "Llama 3.1 8B, 2,000 in, 200 out, H100": {**CHAT, "gpu": "h100", "peak_rps": 1500},
    "the same on L40S": {**CHAT, "gpu": "l40s", "peak_rps": 300},
    "Llama 3.1 70B, 1,000 in, 500 out, H100": {
        **{"model": "llama-3.1-70b", "isl": 1000, "osl": 500, "ttft": "p95<=1s", "tpot": "p95<=50ms"},
        **{"gpu": "h100", "peak_rps": 200},
    },
}
"""The questions, by what a row of the table calls them."""

ROUNDS = 10
"""Requests that each client of a simulated point sends: as many as the proposed command lets it send, or fewer."""

ENOUGH, TEN, MOST_OTHERS, MOST_CLIENTS = 14, 10, 20, 512
"""Points of a deployment of 2026 at least, those that calibrate it, the others at most, and clients of a point at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A question with its answer, and the deployment that is measured."""

    question: Question
    choice: Candidate
    found: Measurement
    contender: Contender

    @classmethod
    def of(cls, **asked: Any) -> Truth:
        """The answer of a question; nothing else is searched afterwards."""
        understood = ask(**asked)
        plan = answer(understood)[0]
        assert plan.choice is not None and plan.measurement is not None
        question = replace(narrowed(understood.questions[0], plan.choice), deepen=False)
        contender = contender_of(question, plan.choice, Runs())
        assert contender is not None
        return cls(question=question, choice=plan.choice, found=plan.measurement, contender=contender)

    def factor(self, share: float) -> float:
        """The quantile of the factor on times: that of the errors that decide the number of systems."""
        return self.contender.errors[metric_of(self.choice.binds)].factor(share)

    def systems(self, factor: float) -> int | None:
        """Those that carry the load where steps take so many times as long, which is known; None where none do."""
        known = Contender(question=replace(self.question, step_factor=factor), ready=self.contender.ready, runs=self.contender.runs)
        needed = known.needed()
        return needed[0] + self.question.spare if isinstance(needed, tuple) else None

    def rows(self, factor: float, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
        """The proposed points as measured."""
        d = self.contender.running.deployment
        split, knobs = d.parallelism, d.knobs
        what = {"model": d.model.name, "gpu": d.gpu.name, "precision": d.precision.name, "engine": d.engine, "knobs": knobs}
        what |= {"tp": split.tp, "pp": split.pp, "dp": split.dp, "ep": split.ep, "batch": None, "request_rate": None}
        for sweep in self.found.sweeps:
            for clients in sweep.concurrency:
                load = {"isl": sweep.isl, "osl": sweep.osl, "concurrency": clients, "requests": ROUNDS * clients}
                yield {**what, **load, **measured({**what, **load}, factor, rng)}

    def afterwards(self, factor: float, rng: np.random.Generator) -> tuple[int | None, bool]:
        """The systems of the plan after a measurement, and whether the calibration kept factors."""
        report = calibrate(list(self.rows(factor, rng)), data="simulated points")
        plan = size(replace(self.question, calibration=report.calibration), runs=Runs())
        return (None if plan.choice is None else plan.choice.systems), report.kept


def measured(row: dict[str, Any], factor: float, rng: np.random.Generator) -> dict[str, float]:
    """What a benchmark reports of one closed loop where steps take so many times as long as predicted.

    TPOT, E2E and requests/s of a point scatter together, and so do mean and p95 of the TTFT.
    """
    point = read_point(row)
    rank = point.of_rank
    instance = rank.instance
    step, memory = slower(instance.step, factor), instance.memory
    trace = workload_of(rank, step, turnaround_s=client_turnaround_s(rank.deployment)).trace(int(rng.integers(1 << 30)))
    reported = reported_metrics(run(trace, step, instance.knobs, memory.blocks, windows=memory.windows))
    of_ttft, of_steps = rng.standard_normal(2)
    scatter = {"ttft_ms": of_ttft, "ttft_p95_ms": of_ttft, "itl_ms": of_steps, "e2e_ms": of_steps, "requests_s": -of_steps}
    true = {name: reported[name] * (point.ranks if name in RATES else 1) for name in scatter}
    return {name: value * float(np.exp(SIGMA[name] * scatter[name])) for name, value in true.items()}


def row(name: str, asked: dict[str, Any], draws: int, seed: int) -> str:
    """One question as a row of the table."""
    rng = np.random.default_rng(seed)
    truth = Truth.of(**asked)
    near, exact, short, kept, counts = 0, 0, 0, 0, []
    for share in rng.uniform(size=draws):
        factor = truth.factor(float(share))
        knows = truth.systems(factor)
        after, factors = truth.afterwards(factor, rng)
        if after is not None and knows is not None:
            near, exact, short = near + (abs(after - knows) <= 1), exact + (after == knows), short + (after < knows)
            counts.append(after)
        kept += factors
    before = abs(truth.choice.systems - np.array([truth.systems(truth.factor((i + 0.5) / 40)) or 0 for i in range(40)])) <= 1
    promised, now = truth.found.expected_systems, truth.found.systems
    print(f"{name}: {kept} of {draws} calibrations kept factors; {len(counts)} plans; counts {min(counts)} to {max(counts)}", flush=True)
    between = " / ".join("–" if count is None else str(count) for count in now.values())
    return (
        f"| {name} | {between} | {100 * before.mean():.0f} % | {100 * near / draws:.0f} % | {100 * exact / draws:.0f} % "
        f"| {100 * short / draws:.0f} % | {'–' if promised is None else f'{promised:.1f}'} | {np.mean(counts):.1f} |"
    )


def table(draws: int, seed: int) -> Iterator[str]:
    """The whole table as Markdown."""
    yield f"{platform.machine()}, {date.today().isoformat()}, `./benchmark measurement --draws {draws} --seed {seed}`:"
    yield ""
    yield "| | systems at 50 / 80 / 95 % | within one, unmeasured | within one, measured | the same | too few | expected | mean of the draws |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, asked in ASKED.items():
        begun = time.perf_counter()
        yield row(name, asked, draws, seed)
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)


def write(lines: list[str]) -> None:
    """Replace the table of the page."""
    text = PAGE.read_text(encoding="utf-8")
    made = re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: BEGIN + "\n".join(lines) + "\n" + END, text, flags=re.DOTALL)
    PAGE.write_text(made, encoding="utf-8")


def main() -> None:
    """Print the table, or that of the points of 2026."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines = list(table(asked.draws, asked.seed))
    print("\n".join(lines))
    if asked.write:
        write(lines)


if __name__ == "__main__":
    main()
