"""``tonnage compare``: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.printing import print_answer


def compare(
    first: Path,
    second: Path,
    /,
    *,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Two runs, measured, simulated or imported: the ratio of every latency and rate, with its interval.

    Parameters
    ----------
    first
        A run folder.
    second
        Another one; ratios are of this one to the first.
    json
        Print one JSON object, with the quantiles from 1 % to 99 % of both.
    """
    from tonnage.api.compare import compare_runs
    from tonnage.report.two_runs import two_runs

    found = compare_runs(first, second)
    values = {"first": str(first), "second": str(second)}
    print_answer(lambda: two_runs(found, first.name, second.name), lambda: {**values, **found.to_json()}, json=json)
