"""Step models side by side: the same measured rows, predicted with each one's step times under the
same scheduler.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from tonnage.errors import in_python
from tonnage.evidence.predict import Measured, MeasuredTable, measured_table
from tonnage.evidence.score import (
    SCORED,
    Errors,
    Progress,
    ScoredRow,
    ScoreReport,
    errors_json,
    errors_of,
    report_of,
)
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.spec.step_times import FITTED, StepSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScores:
    """How good several step models are on the same rows."""

    reports: dict[str, ScoreReport]  # the whole report of each, by name, in the order asked for
    common: int  # rows that all of them predicted
    errors: dict[str, Errors]  # of each over these rows alone, by name
    # by a pair of names, "second against first": mean of |second / first − 1| of their predictions
    # in percent, by column, over the same rows
    disagreement: dict[str, dict[str, float]]
    remarks: tuple[str, ...]  # what was left out, one sentence each
    # the same of rows of another kind, by the name of the kind; none of the above counts them
    apart: Mapping[str, ModelScores] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The scores as JSON values."""
        return {
            "models": {name: report.to_json() for name, report in self.reports.items()},
            "common": self.common,
            "errors": {name: errors_json(errors) for name, errors in self.errors.items()},
            "disagreement": self.disagreement,
            "remarks": list(map(in_python, self.remarks)),
            **(
                {"apart": {kind: scores.to_json() for kind, scores in self.apart.items()}}
                if self.apart
                else {}
            ),
        }


def compare(
    measured: Measured,
    sources: Sequence[StepSource | None],
    *,
    known_values: Mapping[str, str | int] | None = None,
    worst: int = 10,
    progress: Progress | None = None,
    remarks: tuple[str, ...] = (),
    invalid: InvalidRuns | None = None,
) -> ModelScores:
    """Predict every row with every step model and compare the errors; None among the ``sources``
    stands for the fitted terms.

    Args:
        measured, given, worst, invalid: as in ``score``.
        remarks: what the caller left out.

    Raises:
        InputError: the file cannot be read, or a table of step times is of one deployment and the
            rows of several.
    """
    table = measured_table(measured, known_values, invalid=invalid)
    apart = {kind: _compare(rows, sources, worst, progress) for kind, rows in table.apart.items()}
    return replace(
        _compare(replace(table, apart={}), sources, worst, progress), remarks=remarks, apart=apart
    )


def _compare(
    table: MeasuredTable,
    sources: Sequence[StepSource | None],
    worst: int,
    progress: Progress | None,
) -> ModelScores:
    """Compare the step models on the rows of one kind."""
    reports = {
        FITTED if source is None else source.name: report_of(
            table, step_source=source, worst=worst, progress=progress
        )
        for source in sources
    }
    rows = {name: {row.line: row for row in scored} for name, (_, scored) in reports.items()}
    common = sorted(set.intersection(*(set(mine) for mine in rows.values())))
    shared = {name: [mine[line] for line in common] for name, mine in rows.items()}
    return ModelScores(
        reports={name: report for name, (report, _) in reports.items()},
        common=len(common),
        errors={name: errors_of(row.errors for row in mine) for name, mine in shared.items()},
        disagreement={
            f"{b} against {a}": _between(shared[a], shared[b]) for a, b in combinations(shared, 2)
        },
        remarks=(),
    )


def _between(first: Sequence[ScoredRow], second: Sequence[ScoredRow]) -> dict[str, float]:
    apart: dict[str, list[float]] = {}
    for a, b in zip(first, second, strict=True):
        for name in a.predicted.keys() & b.predicted.keys():
            apart.setdefault(name, []).append(abs(b.predicted[name] / a.predicted[name] - 1))
    return {name: 100 * statistics.fmean(apart[name]) for name in SCORED if name in apart}
