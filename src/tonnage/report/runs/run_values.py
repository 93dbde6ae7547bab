"""A run, or a sweep of runs, as JSON values: metrics, trends, and what the run folder says of the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tonnage.bench.trends import DEFINITIONS, trends

if TYPE_CHECKING:
    from tonnage.report.runs.shown_run import ShownRun


def run_values(runs: Sequence[ShownRun]) -> dict[str, Any]:
    """One run as an object like the one that ``bench`` prints; several as its "points"."""
    points = [_values(run) for run in runs]
    return points[0] if len(points) == 1 else {"points": points}


def _values(run: ShownRun) -> dict[str, Any]:
    found = {**trends(run.requests), "definitions": DEFINITIONS}
    return {"run": run.name, "kind": run.kind, "scenario": dict(run.scenario), **run.summary.to_json(), **run.facts, "trends": found}
