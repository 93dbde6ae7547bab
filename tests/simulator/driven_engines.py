"""Engines that are driven step by step."""

from __future__ import annotations

from typing import Any

from tests.strategies import Run, examples
from tonnage.simulator import reference
from tonnage.simulator.engine import Engine
from tonnage.simulator.request import Request
from tonnage.spec.workload import Trace

ENGINES = [Engine, reference.Engine]
EASY = examples(0.2)


def engine_of(kind: Any, r: Run) -> Any:
    return kind(
        r.step,
        r.knobs,
        r.kv_blocks,
        windows=r.windows,
        max_context=r.max_context,
        seed=r.trace.seed,
    )


def requests_of(trace: Trace) -> list[Request]:
    columns = (column.tolist() for column in (trace.isl, trace.osl, trace.due_ps))
    return [
        Request(id=i, isl=isl, osl=osl, at=at)
        for i, (isl, osl, at) in enumerate(zip(*columns, strict=True))
    ]
