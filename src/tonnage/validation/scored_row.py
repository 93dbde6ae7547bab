"""A measured row beside its prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tonnage.perf.prediction_error import regime_of
from tonnage.perf.regime import Regime
from tonnage.validation.point import Point
from tonnage.validation.reasons import cache_group, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """One row that was predicted.

    Attributes:
        line: its number in the file, or its position, from 1.
        point: the row with its names looked up.
        measured, predicted: values by column, for the columns that were measured.
        steady: False for a closed loop that was not steady.
        intervals: by column, the bounds between which the measurement was expected with a probability of 80 %.
    """

    line: int
    point: Point
    measured: dict[str, float]
    predicted: dict[str, float]
    steady: bool
    intervals: dict[str, tuple[float, float]]

    @property
    def errors(self) -> dict[str, float]:
        """Signed relative error by column, in percent."""
        return {name: 100.0 * (self.predicted[name] / value - 1.0) for name, value in self.measured.items() if name in self.predicted}

    @property
    def group(self) -> dict[str, str]:
        """What the row belongs to, by kind of group."""
        d, p = self.point.deployment, self.point
        regime, cache = self.regime, cache_group(p)
        split = d.parallelism
        stages = f" pp{split.pp}" if split.pp > 1 else ""
        name = " × ".join((d.model.name, d.gpu.name, d.precision.name, f"{split.label}{stages}"))
        family = "mla" if d.model.has_latent_cache else "moe" if d.model.is_moe else "dense"
        return {
            "family": family,
            "model": d.model.name,
            "gpu": d.gpu.name,
            "precision": d.precision.name,
            "tp": str(d.parallelism.tp),
            "engine": d.engine,
            "load": p.load,
            "lengths": f"{p.isl}/{p.osl}",
            "regime": regime.load if regime.load == "open" else f"{regime.load}, {regime.mix}",
            **({"cache": cache} if cache else {}),
            "deployment": name,
        }

    @property
    def regime(self) -> Regime:
        """The regime of errors that the row belongs to."""
        p = self.point
        return regime_of(p.deployment, isl=p.isl, osl=p.osl, batch=p.batch, clients=p.concurrency)

    @property
    def worst_metric(self) -> str:
        """The metric with the largest error; empty where nothing was compared."""
        return max(self.errors, key=lambda name: abs(self.errors[name]), default="")

    @property
    def reason(self) -> str:
        """What decides that metric, and what of it was not fitted, in words."""
        return reason(self.point, self.worst_metric, steady=self.steady)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values: its place, what was measured, and its numbers."""
        p = self.point
        load = {"batch": p.batch, "concurrency": p.concurrency, "request_rate": p.request_rate}
        where = {kind: self.group[kind] for kind in ("model", "gpu", "precision", "engine")}
        return {
            "line": self.line,
            **where,
            "tp": p.deployment.parallelism.tp,
            **({"pp": p.deployment.parallelism.pp} if p.deployment.parallelism.pp > 1 else {}),
            **p.deployment.parallelism.further,
            "isl": p.isl,
            "osl": p.osl,
            **{name: value for name, value in load.items() if value is not None},
            "steady": self.steady,
            "errors": self.errors,
            "measured": self.measured,
            "predicted": {name: self.predicted[name] for name in self.errors},
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that could not be predicted, and why."""

    line: int
    reason: str
