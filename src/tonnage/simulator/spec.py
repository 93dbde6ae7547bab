"""What an engine is when it runs, assembled once for everybody who simulates one.

The attention ranks of an instance (``Parallelism.dp``) have separate requests and KV caches, and go
in lockstep (``reference.Ranks``); a router inside the instance gives them requests, or clients, in
turn. Where ranks are separate endpoints, in ``serve``, ``demo`` and two pools, each is an engine by
itself and its step is priced as if all ranks were alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.perf.memory import MemoryPlan, memory_plan
from tonnage.perf.terms import step_model
from tonnage.results.requests import ROW_COLUMNS, SIMULATED_COLUMNS, Requests, Turns
from tonnage.spec.deployment import NO_WINDOWS, Deployment, EngineKnobs, Windows
from tonnage.spec.workload import Trace, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.perf.pipeline import EstimatedInstance
    from tonnage.perf.step import StepModel
    from tonnage.simulator.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSpec:
    """An engine: an instance, or one of its attention ranks."""

    step: StepModel  # what a step costs
    # its scheduler and limits; without a prefix cache for a model whose states of a sequence are no
    # blocks of tokens
    knobs: EngineKnobs
    blocks: int  # blocks of ``knobs.tokens_per_block`` tokens that its KV cache has
    # blocks that a sequence holds for its sliding windows, in addition to those of its context
    windows: Windows = NO_WINDOWS
    max_context: int = 0  # longest prompt plus output; it rejects longer requests
    ranks: int = 1  # attention ranks of the instance, each an engine by this spec
    tiers: Sequence[Tier] = ()  # memory below the KV cache, where prompts share something

    def plain_engine(self, **more: Any) -> Any:
        """An engine of the reference at time 0; ``more`` are further arguments of
        ``reference.Engine``, such as ``contents``.
        """
        from tonnage.simulator import reference

        return reference.Engine(
            self.step,
            self.knobs,
            self.blocks,
            windows=self.windows,
            max_context=self.max_context,
            **more,
        )


def spec_of(
    deployment: Deployment, priced: EstimatedInstance | None = None, *, tiers: Sequence[Tier] = ()
) -> EngineSpec:
    """The engine of a deployment, with steps, memory and knobs of ``priced`` where they are not
    those of one stage (``perf.pipeline``).

    Raises DoesNotFit: the weights exceed the memory.
    """
    if priced is None:
        return engine_spec(
            deployment,
            step_model(deployment),
            deployment.knobs,
            memory_plan(deployment),
            tiers=tiers,
        )
    return engine_spec(deployment, priced.step, priced.knobs, priced.memory, tiers=tiers)


def instance_spec(
    deployment: Deployment, workload: Workload, *, tiers: Sequence[Tier] = ()
) -> EngineSpec:
    """The engine of an instance for the requests of a workload: a pipeline as one engine, by their
    mean prompt.

    Raises DoesNotFit: the weights exceed the memory; InputError: as ``estimated_instance``.
    """
    from tonnage.perf.pipeline import estimated_instance
    from tonnage.spec.catalog import system_of

    if deployment.parallelism.pp == 1:
        return spec_of(deployment, tiers=tiers)
    prompts = workload.isl if workload.pairs is None else workload.pairs.lengths()[0]
    gpus = system_of(deployment.gpu).gpus
    return spec_of(
        deployment,
        estimated_instance(deployment, gpus_per_system=gpus, prompt_tokens=round(prompts.mean)),
        tiers=tiers,
    )


def engine_spec(
    deployment: Deployment,
    step: StepModel,
    knobs: EngineKnobs,
    memory: MemoryPlan,
    *,
    tiers: Sequence[Tier] = (),
) -> EngineSpec:
    """The engine of a deployment whose step model and memory plan are known."""
    return EngineSpec(
        step=step,
        knobs=replace(knobs, prefix_caching=False) if memory.state_bytes else knobs,
        blocks=memory.blocks,
        windows=memory.windows,
        max_context=deployment.model.max_context,
        ranks=deployment.parallelism.dp,
        tiers=tiers,
    )


def pooled(parts: Sequence[Requests]) -> Requests:
    """The requests of several instances as one record, in order of arrival; ``instance`` says whose
    each is.
    """
    import numpy as np

    due = np.concatenate([part.due_ns for part in parts])
    order = np.argsort(due, kind="stable")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])[order] for name in ROW_COLUMNS
    }
    for name in SIMULATED_COLUMNS:
        there = [getattr(part, name) for part in parts if getattr(part, name) is not None]
        columns[name] = np.concatenate(there)[order] if len(there) == len(parts) else None
    columns["instance"] = np.repeat(
        np.arange(len(parts), dtype=np.int32), [len(part) for part in parts]
    )[order]
    return replace(
        parts[0],
        **columns,
        turns=_pooled_turns(parts, order),
        gaps=np.sum([part.gaps for part in parts], axis=0),
    )


def _pooled_turns(parts: Sequence[Requests], order: NDArray[np.int64]) -> Turns | None:
    """Whose session each of the requests of several instances is of: no two have one together."""
    import numpy as np

    turns = [part.turns for part in parts if part.turns is not None]
    if len(turns) < len(parts):
        return None
    counts = [int(turn.session.max(initial=-1)) + 1 for turn in turns]
    before = np.cumsum([0, *counts])
    session = np.concatenate(
        [turn.session + begin for turn, begin in zip(turns, before, strict=False)]
    )
    first, alone = (
        np.concatenate([getattr(turn, name) for turn in turns]) for name in ("first", "alone_ns")
    )
    return Turns(session=session[order], first=first[order], alone_ns=alone[order])


def _part(trace: Trace, rows: NDArray[np.int64], which: int, parts: int) -> Trace:
    """Some requests of a trace, with their own draws: they are counted from 0 again. What they have
    in common is left out.
    """
    seed = trace.seed * parts + which
    return replace(
        trace,
        due_ps=trace.due_ps[rows],
        isl=trace.isl[rows],
        osl=trace.osl[rows],
        seed=seed,
        contents=None,
    )


def rank_traces(trace: Trace, ranks: int) -> list[Trace]:
    """What each attention rank of an instance gets: requests in turn, in a closed loop clients with
    their requests.

    Ranks that get none are left out.
    """
    import numpy as np

    if ranks == 1:
        return [trace]
    turn = np.arange(len(trace)) % (trace.concurrency or ranks)
    traces = []
    for rank in range(ranks):
        rows = np.flatnonzero(turn % ranks == rank)
        clients = len(range(rank, trace.concurrency, ranks))
        traces.append(replace(_part(trace, rows, rank, ranks), concurrency=clients))
    return [part for part in traces if len(part)]
