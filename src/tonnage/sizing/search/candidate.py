"""A deployment that meets the limits, as the plan's candidate: its fleet, its metrics, its memory."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tonnage.perf.pipeline import MARK
from tonnage.perf.provenance import marks
from tonnage.plan.candidate import Candidate
from tonnage.plan.fleet import fleet
from tonnage.plan.identity import Identity
from tonnage.plan.launch import Command, command
from tonnage.plan.limit import SATURATION
from tonnage.plan.load import Load
from tonnage.plan.pool import Pool
from tonnage.results.latencies import Latencies
from tonnage.sizing.explain import memory_parts
from tonnage.sizing.loads.confidence import sureness
from tonnage.spec.catalog import accuracy_and_calibration, find_engine

if TYPE_CHECKING:
    from tonnage.plan.fleet import Fleet
    from tonnage.sizing.loads.bounds import Carried
    from tonnage.sizing.loads.capacity import Capacity
    from tonnage.sizing.question import Question


def candidate(question: Question, carried: Carried, shown: int | None = None) -> Candidate:
    """What the plan says of a deployment that meets the limits.

    Args:
        question: what was asked.
        carried: the deployment, and what one instance carries.
        shown: systems without spare ones that a simulation of the whole fleet asks for; None leaves the number to what one
            instance carries.
    """
    d, capacity = carried.ready.trial.deployment, carried.capacity
    gpus, load = d.parallelism.gpus, question.demand.sizing_requests_per_second
    sure = sureness(question, carried, shown)
    need, serving = sure.layout.of(sure.systems + question.spare), sure.layout.of(sure.systems)
    summary = capacity.summary
    impact, calibration = accuracy_and_calibration(d.precision, d.model.released)
    return Candidate(
        pools=(_pool(carried, need),),
        systems_exact=need.exactly(load, sure.sized_rate),
        sized_requests_per_second_per_instance=sure.sized_rate,
        requests_per_second_per_instance=capacity.rate,
        requests_per_second_per_gpu=capacity.rate / gpus,
        requests_per_second_per_8_gpus=capacity.rate / gpus * 8,
        output_tokens_per_second_per_8_gpus=capacity.rate / gpus * 8 * question.osl.mean,
        saturation_requests_per_second_per_instance=capacity.saturation,
        concurrency_per_instance=capacity.concurrency,
        utilisation=serving.utilisation(load, capacity.rate),
        headroom_to_saturation=capacity.saturation * need.instances / load - 1.0,
        ttft_ms=Latencies() if question.offline else summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=Latencies() if question.offline else summary.e2e_ms,
        binds=capacity.binds or SATURATION,
        load=_load(question, capacity),
        marks=(*marks(d), *((MARK,) if d.parallelism.pp > 1 else ())),
        accuracy_impact=impact,
        calibration=calibration,
        confidence=sure.confidence(),
        checked=shown is not None,
    )


def needed(question: Question, rate: float, gpus_per_instance: int, gpus_per_system: int) -> Fleet:
    """The systems that the question's load needs where an instance carries ``rate`` requests/s, spare ones included."""
    layout = fleet(gpus_per_instance, gpus_per_system)
    return layout.of(layout.carrying(question.demand.sizing_requests_per_second, rate).systems + question.spare)


def _pool(carried: Carried, need: Fleet) -> Pool:
    """The instances of the deployment on their systems."""
    trial, instance = carried.ready.trial, carried.ready.instance
    names = {part.name: getattr(trial.identity, part.name) for part in fields(Identity)}
    started = _command(carried)
    return Pool(
        **names,
        model=trial.deployment.model.name,
        system=trial.system.name,
        gpus_per_system=trial.system.gpus,
        knobs=trial.deployment.knobs,
        instances=need.instances,
        systems=need.systems,
        memory=memory_parts(instance),
        kv_tokens=instance.memory.tokens,
        launch=started.argv,
        launch_file=started.file,
    )


def _command(carried: Carried) -> Command:
    """How an instance is started."""
    d, asked = carried.ready.trial.deployment, carried.ready.instance.asked
    longest = asked.pairs.longest if asked.pairs is not None else asked.isl.longest + asked.osl.longest
    return command(
        find_engine(d.engine).launch,
        checkpoint=d.model.name,
        parallelism=d.parallelism,
        knobs=d.knobs,
        max_context=min(longest, d.model.max_context),
        kv_8bit=d.precision.kv == "fp8",
        speculation=d.speculation,
    )


def _load(question: Question, capacity: Capacity) -> Load:
    """How requests reach an instance at its highest load."""
    if question.offline:
        return Load(kind="queued")
    if question.recording is not None:
        return Load(kind="trace", requests_per_second=capacity.rate)
    if question.load == "closed":
        return Load(kind="closed", clients=capacity.concurrency)
    cv = question.cv if question.process == "gamma" else None
    return Load(kind="open", requests_per_second=capacity.rate, process=question.process, cv=cv)
