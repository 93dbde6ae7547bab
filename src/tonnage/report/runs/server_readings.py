"""Reads what a server said of itself while a run lasted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tonnage.errors import DataError

FILE = "server_metrics.parquet"

Readings = Mapping[str, tuple[tuple[float, float], ...]]
"""By name without labels: seconds of the run, and the values of all labels at that moment, one after the other."""


def read_server_metrics(folder: Path) -> Readings:
    """The readings of a run folder; empty where it holds none.

    Raises:
        DataError: the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        table = pq.ParquetFile(path).read()
        columns = (
            table.column("time_ns").to_pylist(),
            table.column("name").cast(pa.string()).to_pylist(),
            table.column("value").to_pylist(),
        )
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{path}: is damaged ({' '.join(str(error).split())[:160]}); measure again") from None
    found: dict[str, list[tuple[float, float]]] = {}
    for time_ns, name, value in zip(*columns, strict=True):
        found.setdefault(name.partition("{")[0], []).append((time_ns / 1e9, value))
    return {name: tuple(rows) for name, rows in found.items()}
