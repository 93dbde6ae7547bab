"""Requests over several engines, and what became of them in one record.

The attention ranks of an instance (``Parallelism.dp``) are engines of their own: each has its requests and its KV
cache, and its step is priced with all ranks' tokens at the experts. They are taken to be alike, so that each is
simulated alone; a router inside the instance gives them requests, or clients, in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tonnage.spec.workload import Split, Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.results.requests import Requests


def pooled(parts: Sequence[Requests]) -> Requests:
    """The requests of several instances as one record, in order of arrival; ``instance`` says whose each is."""
    import numpy as np

    due = np.concatenate([part.due_ns for part in parts])
    order = np.argsort(due, kind="stable")
    names = [f.name for f in fields(parts[0]) if f.name not in ("gaps", "window_ns", "instance")]
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts])[order] for name in names}
    owner = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])[order]
    return replace(parts[0], **columns, instance=owner, gaps=np.sum([part.gaps for part in parts], axis=0))


def split_trace(trace: Trace, instances: int, split: Split, seed: int) -> list[Trace]:
    """The requests of an open loop over instances; those that get none are left out."""
    import numpy as np

    count = len(trace)
    owner: NDArray[np.int64] = np.arange(count) % instances
    if split == "random":
        owner = np.random.default_rng([seed, instances]).integers(0, instances, count)
    rows = [np.flatnonzero(owner == i) for i in range(instances)]
    return [_part(trace, r, i, instances) for i, r in enumerate(rows) if r.size]


def _part(trace: Trace, rows: NDArray[np.int64], which: int, parts: int) -> Trace:
    """Some requests of a trace, with draws of their own: they are counted from 0 again. What they have in common is left out."""
    seed = trace.seed * parts + which
    return replace(trace, due_ps=trace.due_ps[rows], isl=trace.isl[rows], osl=trace.osl[rows], seed=seed, contents=None)


def rank_traces(trace: Trace, ranks: int) -> list[Trace]:
    """What each attention rank of an instance gets: requests in turn, in a closed loop clients with their requests.

    Ranks that get none are left out.
    """
    import numpy as np

    if ranks == 1 or trace.concurrency == 0:
        return split_trace(trace, ranks, "round-robin", 0) if ranks > 1 else [trace]
    client = np.arange(len(trace)) % trace.concurrency
    found = []
    for rank in range(min(ranks, trace.concurrency)):
        rows = np.flatnonzero(client % ranks == rank)
        clients = len(range(rank, trace.concurrency, ranks))
        found.append(replace(_part(trace, rows, rank, ranks), concurrency=clients))
    return [part for part in found if len(part)]
