"""One look at a deployment: two readings laid beside the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.watch.calibrate import Advice, advice
from tonnage.watch.expected import Expected, Predictor
from tonnage.watch.present import Present, present
from tonnage.watch.watched import FEW, Watched, latencies

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.spec.deployment import LimitMetric
    from tonnage.watch.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """What does not change between looks.

    Attributes:
        plan: of the deployment.
        predictor: of its choice.
        urls: that are watched.
        plan_file: path of the plan, for the commands that are told.
    """

    plan: Plan
    predictor: Predictor
    urls: tuple[str, ...]
    plan_file: str

    def look(self, before: Reading, now: Reading) -> Watched:
        """The deployment between two readings, beside its plan."""
        found = present(before, now)
        instances = max(1, found.answering)
        lengths = (found.mean_isl, found.mean_osl) if found.requests >= FEW else (None, None)
        share = found.requests_per_second / instances
        expected = self.predictor.at(share, isl=lengths[0], osl=lengths[1])
        told = self._advice(found, expected)
        slower = None
        if told is not None:
            slower = self.predictor.at(0.0, isl=lengths[0], osl=lengths[1], slower=round(told.ratio, 2) or 0.01).capacity
        return Watched(
            plan=self.plan,
            present=found,
            expected=expected,
            latencies=latencies(self.plan, found, expected),
            instances=instances,
            at_measured_speed=slower,
            advice=told,
        )

    def _advice(self, found: Present, expected: Expected) -> Advice | None:
        """Mean gaps stand in for the TPOT of an engine that does not publish it."""
        if expected.summary is None or "tpot_ms" not in expected.intervals:
            return None
        metric: LimitMetric = "tpot" if "tpot" in found.latencies else "itl"
        if metric not in found.latencies or found.latencies[metric].count < FEW:
            return None
        measured = found.latencies[metric].mean
        return advice(
            measured=1e3 * measured,
            predicted=expected.summary.statistic_ms("tpot", "mean"),
            interval=expected.intervals["tpot_ms"],
            metric=metric.upper(),
            model=self.plan.candidates[0].pool.model,
            urls=self.urls,
            plan=self.plan_file,
            lengths=f"--isl {expected.isl:.0f} --osl {expected.osl:.0f}",
        )
