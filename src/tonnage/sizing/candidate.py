"""A deployment that meets the limits, as the plan's candidate: its fleet, its metrics, its memory in words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.perf.pipeline import MARK
from tonnage.perf.provenance import marks
from tonnage.plan.former_candidate import Candidate
from tonnage.sizing.search_space import runs_on
from tonnage.sizing.systems import fleet, fleet_of
from tonnage.spec.catalog import accuracy_and_calibration
from tonnage.units import format_gb

if TYPE_CHECKING:
    from tonnage.sizing.bounds import Carried
    from tonnage.sizing.capacity import Capacity, Instance
    from tonnage.sizing.question import Question


def candidate(question: Question, carried: Carried) -> Candidate:
    """What the plan says of a deployment that meets the limits."""
    d, system = carried.ready.trial.deployment, carried.ready.trial.system
    instance, capacity = carried.ready.instance, carried.capacity
    gpus = d.parallelism.gpus
    need = fleet(question.demand.sizing_requests_per_second, capacity.rate, gpus, system.gpus, question.spare)
    summary = capacity.summary
    impact, calibration = accuracy_and_calibration(d.precision)
    saturated = capacity.saturation * need.instances / question.demand.sizing_requests_per_second
    return Candidate(
        gpu=d.gpu.name,
        system=system.name,
        gpus_per_system=system.gpus,
        precision=d.precision.name,
        tp=d.parallelism.tp,
        pp=d.parallelism.pp,
        dp=d.parallelism.dp,
        ep=d.parallelism.ep,
        engine=runs_on(d),
        engine_preset=d.engine,
        knobs=d.knobs,
        instances=need.instances,
        systems=need.systems,
        systems_exact=need.systems_exact,
        requests_per_second_per_instance=capacity.rate,
        requests_per_second_per_gpu=capacity.rate / gpus,
        requests_per_second_per_8_gpus=capacity.rate / gpus * 8,
        output_tokens_per_second_per_8_gpus=capacity.rate / gpus * 8 * question.osl.mean,
        saturation_requests_per_second_per_instance=capacity.saturation,
        concurrency_per_instance=capacity.concurrency,
        utilisation=need.utilisation,
        headroom_to_saturation=saturated - 1.0,
        ttft_ms=summary.ttft_ms.to_json(),
        itl_ms=summary.itl_ms.to_json(),
        tpot_ms=summary.tpot_ms.to_json(),
        e2e_ms=summary.e2e_ms.to_json(),
        binds=capacity.binds,
        load=_load_in_words(question, capacity),
        marks=(*marks(d), *((MARK,) if d.parallelism.pp > 1 else ())),
        memory=_memory_in_words(instance),
        accuracy_impact=impact,
        calibration=calibration,
    )


def resized(question: Question, found: Candidate, systems: int) -> Candidate:
    """The candidate on another number of systems, spare ones not counted."""
    peak, rate = question.demand.sizing_requests_per_second, found.requests_per_second_per_instance
    need = fleet_of(
        systems + question.spare,
        found.systems_exact,
        peak,
        rate_per_instance=rate,
        gpus_per_instance=found.parallelism.gpus,
        gpus_per_system=found.gpus_per_system,
    )
    saturated = found.saturation_requests_per_second_per_instance * need.instances / peak
    return replace(
        found, systems=need.systems, instances=need.instances, utilisation=need.utilisation, headroom_to_saturation=saturated - 1.0
    )


def _load_in_words(question: Question, capacity: Capacity) -> str:
    if question.offline:
        return "all requests queued from the start"
    if question.recording is not None:
        return f"its share of the trace, {capacity.rate:.3g} requests/s on average"
    if question.load == "closed":
        return f"closed loop of {capacity.concurrency:.0f} clients"
    process = question.process if question.process != "gamma" else f"gamma (CV {question.cv:g})"
    return f"open loop, {process} arrivals at {capacity.rate:.3g} requests/s"


def _memory_in_words(instance: Instance) -> str:
    m = instance.memory
    drafter = f"{format_gb(m.drafter_bytes)} drafter + " if m.drafter_bytes else ""
    return (
        f"{format_gb(m.weight_bytes)} weights + {drafter}{format_gb(m.activation_bytes + m.reserve_bytes)} activations and reserve + "
        f"{format_gb(m.kv_budget_bytes)} KV cache per GPU ({m.tokens:,} tokens)"
    )
