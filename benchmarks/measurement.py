"""What a measurement buys: 100 true step factors, ten simulated points of each, and the plan after
them beside one that knows the truth.

    ./benchmark measurement [--draws 100] [--seed 1] [--terms] [--write]
    ./benchmark measurement --points

A plan proposes points to measure and says what they would buy on average. Here a true factor on
every step is drawn from the errors of the plan's own prediction. The points that it proposes are
simulated with it, each metric with the scatter that a calibration counts with, and ``calibrate`` is
run on them. The plan after that is compared with the plan that knows the factor. --terms draws a
factor for each term instead, from the widths that a calibration counts with. --write puts the table
into docs/intervals.md.

--points asks the same of measurements: ten points of each deployment of 2026
(../shared/data/modern) calibrate its others. It prints how many of their times per token lie inside
the 80 % interval.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tonnage.api.sizing import ask
from tonnage.api.sizing import size as size_plan
from tonnage.errors import InputError
from tonnage.evidence.calibrate import calibrate, calibrated
from tonnage.evidence.measurement import contender_of
from tonnage.evidence.predict import read_point, reported_metrics, workload_of
from tonnage.evidence.rows import SIGMA, LoadedRows
from tonnage.evidence.sample import START_WIDTH, Sample
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms import client_turnaround_s
from tonnage.perf.terms_file import overlaid, shipped
from tonnage.plan.candidate import Candidate
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Measurement
from tonnage.simulator.simulate import run
from tonnage.simulator.spec import engine_spec
from tonnage.sizing.loads.confidence import metric_of, slower
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.search_space import narrowed
from tonnage.spec.calibration import MULTIPLIERS, Calibration
from tonnage.spec.catalog import find_engine
from tools.fit.modern.rows import MEDIAN, ModernRows, select_modern

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "intervals.md"

CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "isl": 2000,
    "osl": 200,
    "ttft": "p95<=500ms",
    "tpot": "p95<=50ms",
}
ASKED: dict[str, dict[str, Any]] = {
    "Llama 3.1 8B, 2,000 in, 200 out, H100": {**CHAT, "gpu": "h100", "peak_rps": 1500},
    "the same on L40S": {**CHAT, "gpu": "l40s", "peak_rps": 300},
    "Llama 3.1 70B, 1,000 in, 500 out, H100": {
        "model": "llama-3.1-70b",
        "isl": 1000,
        "osl": 500,
        "ttft": "p95<=1s",
        "tpot": "p95<=50ms",
        "gpu": "h100",
        "peak_rps": 200,
    },
}
"""The questions, by what a row of the table calls them."""

ROUNDS = 10
"""Requests that each client of a simulated point sends: as many as the proposed command lets it
send, or fewer."""

MODERN = ROOT.parent / "shared" / "data" / "modern" / "agg.csv.gz"
KEY = ("model", "gpu", "engine", "precision", "tp", "dp", "ep", "tier")
"""The points of 2026, and what makes two of them points of one deployment."""

CURRENT = ("vllm", "sglang", "tensorrt-llm-1.2")
"""Engine presets of today, whose terms are tried in place of each other's."""

ENOUGH, TEN, MOST_OTHERS, MOST_CLIENTS = 14, 10, 20, 512
"""Points of a deployment of 2026 at least, those that calibrate it, the others at most, and clients
of a point at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How it differs from the prediction: a factor on every step, and factors on the terms."""

    factor: float = 1.0
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A question with its answer, and the deployment that is measured."""

    question: Question
    choice: Candidate
    found: Measurement
    contender: Contender

    @classmethod
    def of(cls, plan: Plan, **asked: Any) -> Truth:
        """The deployment that the plan of a question chose; nothing else is searched afterwards."""
        if plan.choice is None or plan.measurement is None:
            raise ValueError("the plan proposes no measurement")
        question = replace(narrowed(ask(**asked).questions[0], plan.choice), deepen=False)
        contender = contender_of(question, plan.choice, Runs())
        if contender is None:
            raise ValueError("the plan's choice is no deployment of the question")
        return cls(
            question=question, choice=plan.choice, found=plan.measurement, contender=contender
        )

    def factor(self, share: float) -> float:
        """The quantile of the factor on times: that of the errors that decide the number of
        systems.
        """
        return self.contender.errors[metric_of(self.choice.binds)].factor(share)

    def machine(self, rng: np.random.Generator, *, terms: bool) -> Machine:
        """A true machine: a common factor from the errors of the prediction, or one of each term
        from the widths of a calibration.
        """
        if not terms:
            return Machine(factor=self.factor(float(rng.uniform())))
        d, widths = self.contender.running.deployment, shipped_residuals().widths
        factors = tuple(
            (name, float(np.exp(widths.get(name, START_WIDTH) * rng.standard_normal())))
            for name in MULTIPLIERS
        )
        preset = find_engine(d.engine).coefficients
        return Machine(
            calibration=Calibration(
                preset=preset, gpu=d.gpu.name, multipliers=factors, data="the truth"
            )
        )

    def systems(self, machine: Machine) -> int | None:
        """Those that carry the load on a machine that is known; None where none do."""
        question = replace(
            self.question, step_factor=machine.factor, calibration=machine.calibration
        )
        known = contender_of(question, self.choice, self.contender.runs)
        needed = None if known is None else known.needed()
        return needed[0] + self.question.spare if isinstance(needed, tuple) else None

    def rows(self, machine: Machine, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
        """The proposed points as measured."""
        d = self.contender.running.deployment
        split, knobs = d.parallelism, d.knobs
        what = {
            "model": d.model.name,
            "gpu": d.gpu.name,
            "precision": d.precision.name,
            "engine": d.engine,
            "knobs": knobs,
        }
        what |= {
            "tp": split.tp,
            "pp": split.pp,
            "dp": split.dp,
            "ep": split.ep,
            "batch": None,
            "request_rate": None,
        }
        for sweep in self.found.sweeps:
            for clients in sweep.concurrency:
                load = {
                    "isl": sweep.isl,
                    "osl": sweep.osl,
                    "concurrency": clients,
                    "requests": ROUNDS * clients,
                }
                yield {**what, **load, **measured({**what, **load}, machine, rng)}

    def afterwards(self, machine: Machine, rng: np.random.Generator) -> tuple[int | None, bool]:
        """The systems of the plan after a measurement, and whether the calibration kept factors."""
        report = calibrate(list(self.rows(machine, rng)), data="simulated points")
        plan = size(replace(self.question, calibration=report.calibration), runs=Runs())
        return (None if plan.choice is None else plan.choice.systems), report.kept


def measured(row: dict[str, Any], machine: Machine, rng: np.random.Generator) -> dict[str, float]:
    """What a benchmark reports of one closed loop on a machine.

    TPOT, E2E and requests/s of a point scatter together, and so do mean and p95 of the TTFT.
    """
    point = read_point(row, machine.calibration)
    instance, d = point.instance, point.deployment
    step = slower(instance.step, machine.factor)
    trace = workload_of(point, step, turnaround_s=client_turnaround_s(d)).trace(
        int(rng.integers(1 << 30))
    )
    reported = reported_metrics(run(engine_spec(d, step, instance.knobs, instance.memory), trace))
    of_ttft, of_steps = rng.standard_normal(2)
    scatter = {
        "ttft_ms": of_ttft,
        "ttft_p95_ms": of_ttft,
        "itl_ms": of_steps,
        "e2e_ms": of_steps,
        "requests_s": -of_steps,
    }
    return {
        name: reported[name] * float(np.exp(SIGMA[name] * draw)) for name, draw in scatter.items()
    }


def row(name: str, asked: dict[str, Any], draws: int, seed: int, *, terms: bool) -> str:
    """One question as a row of the table."""
    rng = np.random.default_rng(seed)
    truth = Truth.of(size_plan(**asked), **asked)
    before, near, exact, short, kept, counts = 0, 0, 0, 0, 0, list[int]()
    for machine in [truth.machine(rng, terms=terms) for _ in range(draws)]:
        knows = truth.systems(machine)
        after, factors = truth.afterwards(machine, rng)
        before += knows is not None and abs(truth.choice.systems - knows) <= 1
        if after is not None and knows is not None:
            near, exact, short = (
                near + (abs(after - knows) <= 1),
                exact + (after == knows),
                short + (after < knows),
            )
            counts.append(after)
        kept += factors
    promised, now = truth.found.expected_systems, truth.found.systems
    print(
        f"{name}: {kept} of {draws} calibrations kept factors; {len(counts)} plans; counts"
        f" {min(counts)} to {max(counts)}",
        flush=True,
    )
    between = " / ".join("–" if count is None else str(count) for count in now.values())
    return (
        f"| {name} | {between} | {100 * before / draws:.0f} % | {100 * near / draws:.0f} % |"
        f" {100 * exact / draws:.0f} % | {100 * short / draws:.0f} % |"
        f" {'–' if promised is None else f'{promised:.1f}'} | {np.mean(counts):.1f} |"
    )


def table(draws: int, seed: int, *, terms: bool) -> Iterator[str]:
    """The whole table as Markdown."""
    command = f"./benchmark measurement --draws {draws} --seed {seed}{' --terms' if terms else ''}"
    yield f"{platform.machine()}, {date.today().isoformat()}, `{command}`:"
    yield ""
    header = (
        "",
        "systems at 50 / 80 / 95 %",
        "within one before",
        "within one after",
        "equal",
        "too few",
        "expected",
        "mean of the draws",
    )
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for name, asked in ASKED.items():
        begun = time.perf_counter()
        yield row(name, asked, draws, seed, terms=terms)
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)


def points_table() -> Iterator[str]:
    """How ten points of each deployment of 2026 calibrate its others, as Markdown."""
    yield (
        "| | deployments | points | half the width, before | inside, before | half the width, after"
        " | inside, after |"
    )
    yield "|---|---|---|---|---|---|---|"
    known, swapped = points_of_2026(), points_of_2026(swapped=True)
    kinds = {
        "factors kept": [one for one in known if one.kept],
        "shipped terms confirmed": [one for one in known if not one.kept],
        "terms of another engine, factors kept": [one for one in swapped if one.kept],
    }
    for name, found in kinds.items():
        before, after = (
            np.array([(low, high) for low, high in ends])
            for ends in zip(*((o.before, o.after) for o in found), strict=True)
        )
        wrong = np.array([one.error for one in found])
        inside = [
            ((of[:, 0] <= error) & (error <= of[:, 1])).mean()
            for of, error in ((before, wrong[:, 0]), (after, wrong[:, 1]))
        ]
        half = [float((of[:, 1] - of[:, 0]).mean() / 2) for of in (before, after)]
        counts = f"{len({one.deployment for one in found})} | {len(found)}"
        yield (
            f"| {name} | {counts} | {half[0]:.3f} | {100 * inside[0]:.0f} % | {half[1]:.3f} |"
            f" {100 * inside[1]:.0f} % |"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """The time per token of a point that did not calibrate: log(predicted / measured), and the ends
    of its 80 % interval.

    Attributes:
        deployment: the key of what was measured.
        kept: whether the calibration kept factors.
        error: before and after it.
        before, after: the 10th and 90th percentile.
    """

    deployment: tuple[Any, ...]
    kept: bool
    error: tuple[float, float]
    before: tuple[float, float]
    after: tuple[float, float]


def points_of_2026(*, swapped: bool = False) -> list[Other]:
    """Ten points of each deployment drawn at random, and its others; ``swapped`` gives each engine
    the terms of another one.
    """
    groups = defaultdict(list)
    for one in select_modern(MODERN).rows:
        if one["concurrency"] <= MOST_CLIENTS:
            # a calibration reads no medians
            groups[tuple(one[name] for name in KEY)].append({**one, MEDIAN: None})
    rng, terms, found = random.Random(1), shipped(), []
    for key in sorted(key for key, rows in groups.items() if len(rows) >= ENOUGH):
        rows = groups[key]
        rng.shuffle(rows)
        preset = find_engine(key[KEY.index("engine")]).coefficients
        used = terms
        if swapped:
            others = [
                name
                for name in CURRENT
                if name != preset and terms["engines"][name] != terms["engines"][preset]
            ]
            used = {
                **terms,
                "engines": {**terms["engines"], preset: terms["engines"][rng.choice(others)]},
            }
        with contextlib.suppress(InputError):
            found += _others(
                rows[:TEN], rows[TEN : TEN + MOST_OTHERS], key, preset, used, swapped=swapped
            )
    return found


def _others(
    mine: list[dict[str, Any]],
    rest: list[dict[str, Any]],
    key: tuple[Any, ...],
    preset: str,
    terms: dict[str, Any],
    *,
    swapped: bool,
) -> Iterator[Other]:
    gpu = key[KEY.index("gpu")]
    report = calibrated(ModernSample(mine, terms, preset=preset, gpu=gpu), data="ten points")
    loaded = ModernRows(rest)
    errors = []
    for used in (terms, overlaid(terms, report.calibration, gpu)):
        loaded.simulate(used)
        errors.append(np.log(loaded.predict(used)["itl_ms"] / loaded.measured["itl_ms"]))
    table = shipped_residuals()
    for i, point in enumerate(loaded.points):
        if not np.isfinite(errors[0][i]):
            continue
        load = {"isl": rest[i]["isl"], "osl": rest[i]["osl"], "clients": rest[i]["concurrency"]}
        regimes = [
            regime_of(replace(point.deployment, calibration=c), **load)
            for c in (None, report.calibration)
        ]
        if swapped:
            regimes = [replace(regime, known_engine=False) for regime in regimes]
        ends = [
            (table.log_error("itl_ms", regime, 0.1), table.log_error("itl_ms", regime, 0.9))
            for regime in regimes
        ]
        wrong = float(errors[0][i]), float(errors[1][i])
        yield Other(deployment=key, kept=report.kept, error=wrong, before=ends[0], after=ends[1])


class ModernSample(Sample):
    """Points of 2026, with the lengths and knobs of their benchmarks."""

    loaded: ClassVar[type[LoadedRows]] = ModernRows


def write(lines: list[str], place: str) -> None:
    """Replace a table of the page."""
    begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->\n"
    text = PAGE.read_text(encoding="utf-8")
    made = re.sub(
        f"{re.escape(begin)}.*?{re.escape(end)}",
        lambda _: begin + "\n".join(lines) + "\n" + end,
        text,
        flags=re.DOTALL,
    )
    PAGE.write_text(made, encoding="utf-8")


def main() -> None:
    """Print the table, or that of the points of 2026."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--terms", action="store_true", help="a true factor for each term in place of a common one"
    )
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    lines = list(
        points_table() if asked.points else table(asked.draws, asked.seed, terms=asked.terms)
    )
    print("\n".join(lines))
    if asked.write:
        write(
            lines,
            (
                "measured points"
                if asked.points
                else "measured terms"
                if asked.terms
                else "measurement"
            ),
        )


if __name__ == "__main__":
    main()
