"""The classes and limits of a trace in arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.simulator.kernel.build import plain
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.ranks import BY_CLASS, BY_DEADLINE, BY_TIME, NOTE, Ranks
from tonnage.simulator.ranked import is_for_reference

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs
    from tonnage.spec.workload import Trace

ORDERS = {"priority": BY_CLASS, "deadline": BY_DEADLINE}


def ranks_of(trace: Trace, knobs: EngineKnobs, slots: int, *, drafted: bool) -> Ranks:
    """What an engine learns of the requests of a trace; without classes all are of one, and without limits none has one.

    Raises:
        InputError: an engine or a trace that the reference alone simulates with them.
    """
    if is_for_reference(knobs, drafted=drafted, shares=trace.contents is not None):
        whose = ", ".join(map(option, ("queue_order", "shed")))
        raise InputError(
            f"{whose}: not compiled where prompts have something in common, and in vLLM with speculative decoding; the readable simulator "
            "has them"
        )
    count = len(trace)
    note = np.zeros(1, NOTE)[0]
    note["order"], note["shed"] = ORDERS.get(knobs.queue_order, BY_TIME), knobs.shed
    note["sorted"], note["soonest"] = knobs.scheduler != "sglang", NEVER
    priority = np.zeros(count, np.int64) if trace.priority is None else plain(np.unique(trace.priority, return_inverse=True)[1], np.int64)
    return Ranks(
        note=note,
        priority=priority,
        ttft=np.full(count, -1) if trace.ttft_ps is None else plain(trace.ttft_ps, np.int64),
        key=np.zeros(count, np.int64),
        latest=np.full(count, NEVER),
        waits=np.zeros(count, np.int8),
        newest=np.full(int(priority.max(initial=0)) + 1, -1),
        given=np.zeros(slots, np.int64),
    )
