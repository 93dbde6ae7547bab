"""A machine whose requests are not known when it is made: more rows, and a log that is read and emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.simulator.kernel.build import ring_size, rows_for
from tonnage.simulator.kernel.memory import Log, Machine, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray


def grown(m: Machine, count: int, *, log: int) -> Machine:
    """The machine with room for so many rows, and for ``log`` entries beside what one turn of its loop may write."""
    size = len(m.log.at)
    needed = int(m.cfg["slots"]) + count - int(m.state["arrived"]) + log
    if needed > size:
        m = m._replace(log=Log(*np.zeros((4, ring_size(needed)), np.int64)))
    if count <= len(m.rows.isl):
        return m
    rows = rows_for(*np.zeros((4, ring_size(count)), np.int64))
    columns: Any = zip(m.rows, rows, strict=True)
    for old, new in columns:
        new[: len(old)] = old
    return m._replace(rows=rows)


def without_first(m: Machine, count: int) -> None:
    """Take the first rows, whose requests have all ended, out of the memory; those behind them move up.

    Of an engine by itself, without a prefix cache: nobody else knows the places of its rows.
    """
    s, rows = m.state, m.rows
    last = int(s["arrived"] + s["coming"])
    fresh: Any = rows_for(*np.zeros((4, count), np.int64))
    columns: Any = zip(rows, fresh, strict=True)
    for column, new in columns:
        if column.size:
            column[: last - count] = column[count:last].copy()
            column[last - count : last] = new
    rows.next[: last - count] -= count
    s["arrived"] -= count
    if s["queued"]:
        s["head"] -= count
        s["tail"] -= count
    m.slots["row"][m.lists.running[: s["running"]]] -= count


def copied(rows: Rows) -> Rows:
    """Rows of their own."""
    columns: Any = (column.copy() for column in rows)
    return Rows(*columns)


def log_of(m: Machine) -> NDArray[np.int64]:
    """Entries of the log: number of the request, when, tokens, status; int64 of shape (4, entries)."""
    rows, *others = (column[: m.state["logged"]] for column in m.log)
    return np.array([m.rows.id[rows], *others])
