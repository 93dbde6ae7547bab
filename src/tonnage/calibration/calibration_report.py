"""What a calibration found, and the file that predictions read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.errors import in_python
from tonnage.perf.own_terms import SECONDS
from tonnage.spec.calibration import SCHEMA, Calibration
from tonnage.units import format_duration

DETERMINED, PARTLY = 0.6, 0.9
"""Posterior over prior width below which the data determined a term, or did so in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """What a calibration found.

    Attributes:
        calibration: what predictions use; it has no factors where the shipped terms predict better.
        kept: whether it has factors.
        own: whether terms of their own were fitted, not factors on the shipped ones.
        strength: the multiple of the prior's widths that was chosen; 0 where the shipped terms stay.
        factors: the fitted factor of every term, or its value where it is one of their own, whether kept or not.
        shrinkage: the width that is left of each, as a share of the prior's: 1 where the points say nothing about it.
        before, after: MAPE in percent by metric over the points that were used, without and with the factors.
        left_out_before, left_out: the same over points that the factors had not seen.
        units: what was left out in turn: "point", "curve" or, for terms of their own, "load".
        points, not_steady: how many points were used, and how many were set aside because they are not steady.
        rows: the line, load, lengths and errors of each point that was used.
        remarks: on what was left out because its own client called it INVALID, or was taken all the same, one
            sentence each whose options are not spelled yet.
    """

    calibration: Calibration
    kept: bool
    own: bool = False
    strength: float
    factors: dict[str, float]
    shrinkage: dict[str, float]
    before: dict[str, float]
    after: dict[str, float]
    left_out_before: dict[str, float]
    left_out: dict[str, float]
    units: str
    points: int
    not_steady: int
    rows: tuple[dict[str, Any], ...]
    remarks: tuple[str, ...] = ()

    def to_json(self, date: str) -> dict[str, Any]:
        """The content of the file that ``coefficients`` names."""
        c = self.calibration
        return {
            "schema": SCHEMA,
            "preset": c.preset,
            "gpu": c.gpu,
            "multipliers": dict(c.multipliers),
            **({"terms": dict(c.terms)} if self.own else {}),
            "deployments": list(c.deployments),
            "left_out_by": self.units,
            "left_out_errors": {name: {"rms": rms, "points": n} for name, rms, n in c.left_out},
            "data": c.data,
            "date": date,
            "points": self.points,
            "not_steady": self.not_steady,
            "verdict": self.verdict(),
            "remarks": list(map(in_python, self.remarks)),
            "fitted": {name: {self._kind: self.factors[name], "posterior_over_prior": self.shrinkage[name]} for name in self.shrinkage},
            "residuals": {"mape_before": self.before, "mape_after": self.after, "rows": list(self.rows)},
            "loo": {"left_out": self.units, "strength": self.strength, "mape_before": self.left_out_before, "mape_after": self.left_out},
        }

    @property
    def _kind(self) -> str:
        """What the numbers of ``factors`` are called."""
        return "value" if self.own else "factor"

    def shown(self, name: str) -> str:
        """The factor or the value of a term for people, such as "×1.03" or "2.07 ms"."""
        value = self.factors[name]
        if not self.own:
            return f"×{value:.3g}"
        return format_duration(value) if name in SECONDS else f"{value:.3g}"

    def verdict(self) -> list[str]:
        """Whether the fit helps, and which terms the data could and could not determine, in words."""
        lines = []
        if self.kept:
            what = "terms of its own" if self.own else "calibrated"
            lines.append(f"{what}: each {self.units} predicted without itself, {_change(self.left_out_before, self.left_out)}")
        else:
            old, new = ("transferred", "terms") if self.own else ("shipped", "factors")
            lines.append(
                f"the {old} terms stay: fitted {new} did not predict a left-out {self.units} better, "
                f"{_change(self.left_out_before, self.left_out)}"
            )
        for words, low, high in (("determined", 0.0, DETERMINED), ("in part", DETERMINED, PARTLY), ("not determined", PARTLY, 1e9)):
            names = [f"{n} {self.shown(n)}" if high <= PARTLY else n for n in self.shrinkage if low <= self.shrinkage[n] < high]
            if names:
                lines.append(f"{words}: {', '.join(names)}")
        return lines


def _change(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {before[name]:.1f} → {after[name]:.1f} %" for name in after)
