"""``tonnage compare``: two run folders, measured, simulated or imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.bench.compare import Comparison


def compare_runs(first: Path, second: Path) -> Comparison:
    """Compare two run folders by their records.

    Raises:
        InputError: one of them is no run folder.
        DataError: one of their files is damaged.
    """
    from tonnage.bench.compare import compare
    from tonnage.results.store import read_run

    return compare(read_run(first).requests, read_run(second).requests)
