"""How good the predictions of a measured table are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tonnage.errors import in_python
from tonnage.validation.errors import Errors, errors_json
from tonnage.validation.scored_row import ScoredRow, Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReport:
    """How good the predictions of a measured table are.

    Attributes:
        rows, predicted: how many rows the table has, and how many of them were predicted.
        overall: errors over all predicted rows.
        steady, not_steady: the same over the steady rows and over the others.
        coverage: share of the measured values inside their 80 % intervals, in percent, by metric.
        groups: errors by kind of group (family, model, gpu, precision, tp, engine, load, lengths, regime, cache, deployment) and name.
        worst: the rows with the largest error of any metric, largest first.
        unknown: names that are in no catalog, by kind ("model", "GPU", …), with the number of rows that have them.
        skipped: the rows that were not predicted.
        remarks: what was left out of account, one sentence each; options in them are not spelled yet.
        apart: reports of rows of another kind, by the name of the kind; nothing above counts these rows.
    """

    rows: int
    predicted: int
    overall: Errors
    steady: Errors
    not_steady: Errors
    coverage: dict[str, float]
    groups: dict[str, dict[str, Errors]]
    worst: tuple[ScoredRow, ...]
    unknown: dict[str, dict[str, int]]
    skipped: tuple[Skipped, ...]
    remarks: tuple[str, ...] = ()
    apart: Mapping[str, ScoreReport] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rows": self.rows,
            "predicted": self.predicted,
            "overall": errors_json(self.overall),
            "steady": errors_json(self.steady),
            "not_steady": errors_json(self.not_steady),
            "coverage": self.coverage,
            "groups": {kind: {name: errors_json(e) for name, e in named.items()} for kind, named in self.groups.items()},
            "worst": [row.to_json() for row in self.worst],
            "unknown": self.unknown,
            "skipped": [{"line": s.line, "reason": s.reason} for s in self.skipped],
            "remarks": list(map(in_python, self.remarks)),
            **({"apart": {kind: report.to_json() for kind, report in self.apart.items()}} if self.apart else {}),
        }
