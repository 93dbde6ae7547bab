"""The classes and limits of a trace in arrays, and the engines that are not compiled with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError, option
from tonnage.simulator.kernel.build import plain
from tonnage.simulator.kernel.memory import NEVER
from tonnage.simulator.kernel.ranks import BY_CLASS, BY_DEADLINE, BY_TIME, NOTE, Ranks

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs
    from tonnage.spec.workload import Trace

ORDERS = {"priority": BY_CLASS, "deadline": BY_DEADLINE}


def is_compiled_with(knobs: EngineKnobs, *, drafted: bool, shares: bool) -> bool:
    """Whether the compiled loop knows this engine's priorities, deadlines and shedding; else the reference alone does.

    Args:
        knobs: the engine's.
        drafted: whether it has speculative decoding.
        shares: whether prompts have something in common.
    """
    pre_empts = knobs.scheduler == "vllm" and knobs.queue_order in ORDERS
    return not knobs.ranks or not (shares or (pre_empts and drafted))


def ranks_of(trace: Trace, knobs: EngineKnobs, slots: int, *, drafted: bool) -> Ranks:
    """What an engine is told of the requests of a trace; without classes all are of one, and without limits none has one.

    Raises:
        InputError: an engine or a trace that the reference alone simulates with them.
    """
    if not is_compiled_with(knobs, drafted=drafted, shares=trace.contents is not None):
        whose = ", ".join(map(option, ("queue_order", "shed")))
        raise InputError(
            f"{whose}: with prefix caches, and in vLLM with speculative decoding, priorities and deadlines are not compiled; "
            "the readable simulator has them"
        )
    count = len(trace)
    note = np.zeros(1, NOTE)[0]
    note["order"], note["shed"] = ORDERS.get(knobs.queue_order, BY_TIME), knobs.shed
    note["sorted"], note["soonest"] = knobs.scheduler != "sglang", NEVER
    return Ranks(
        note=note,
        priority=np.zeros(count, np.int64) if trace.priority is None else plain(trace.priority, np.int64),
        ttft=np.full(count, -1) if trace.ttft_ps is None else plain(trace.ttft_ps, np.int64),
        key=np.zeros(count, np.int64),
        latest=np.full(count, NEVER),
        given=np.zeros(slots, np.int64),
    )
