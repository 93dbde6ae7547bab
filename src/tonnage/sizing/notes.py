"""What a plan says beside its numbers: the question again, provenance, notes, and the course's percentile way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tonnage.perf.provenance import coefficient_source
from tonnage.plan.former_candidate import Candidate
from tonnage.sizing.capacity import Instance, find_capacity
from tonnage.sizing.search_space import asked
from tonnage.sizing.systems import fleet
from tonnage.sizing.tuning import changes
from tonnage.spec.catalog import find_engine
from tonnage.spec.engine import default_knobs
from tonnage.spec.step_times import FITTED
from tonnage.version import VERSION

if TYPE_CHECKING:
    from tonnage.sizing.bounds import Carried
    from tonnage.sizing.question import Question
    from tonnage.sizing.search import Answer
    from tonnage.spec.scenario import Mode

MODES: dict[Mode, str] = {
    "streaming": "Streaming, so the time to the first token and the pace count",
    "sequential": "Sequential, so only the time to the whole answer counts",
    "offline": "Offline, so only throughput counts",
}


def scenario(question: Question) -> dict[str, Any]:
    """The question as JSON values."""
    return {
        "model": question.model.name,
        "gpus": [g.name for g in question.gpus],
        "precisions": [p.name for p in question.precisions],
        "tps": list(question.tps),
        "engines": list(question.engines),
        "isl": str(question.isl),
        "osl": str(question.osl),
        "limits": [str(limit) for limit in question.slo],
        "limits_that_count": [str(limit) for limit in question.limits],
        "mode": question.mode,
        "pps": list(question.pps),
        **{name: list(found) for name, found in (("dps", question.dps), ("eps", question.eps)) if found},
        "step_factor": question.step_factor,
        "step_model": FITTED if question.step_source is None else question.step_source.name,
        "load": question.load,
        "arrivals": question.process if question.recording is None else "trace",
        "cv": question.cv if question.demand.cv is None else question.demand.cv,
        "spare_systems": question.spare,
        "seed": question.seed,
        **({} if question.speculation is None else {"speculation": str(question.speculation)}),
    }


def provenance(question: Question, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Version, coefficients, data and seed."""
    engines = sorted({c.engine_preset for c in candidates}) or list(question.engines)
    return {
        "tonnage": VERSION,
        "coefficients": {engine: coefficient_source(engine) for engine in engines},
        "data": "simulated; no measurement of this deployment went in",
        "seed": question.seed,
        **({} if question.calibration is None else {"calibration": asdict(question.calibration)}),
        **({} if question.step_source is None else {"step_model": question.step_source.name}),
    }


def notes(question: Question, answer: Answer) -> tuple[str, ...]:
    """What a reader must know about the numbers, one sentence each."""
    candidates = answer.candidates
    found = []
    if question.load == "open" and not question.offline:
        found.append(
            "Each instance is sized on its own share of the arrivals, split at random: "
            "a router that balances better only lowers the latencies."
        )
    if candidates and candidates[0].marks:
        found.append(f"The chosen prediction rests in part on: {'; '.join(candidates[0].marks)}.")
    dropped = [str(limit) for limit in question.slo if limit not in question.limits]
    if dropped:
        found.append(f"{MODES[question.mode]}: {', '.join(dropped)} does not count.")
    if answer.carried:
        carried = answer.carried[0]
        deployment = carried.ready.trial.deployment
        changed = changes(carried, default_knobs(find_engine(deployment.engine), deployment.gpu))
        if changed:
            found.append(f"The choice runs with knobs other than the engine's own: {changed}.")
    if answer.check is not None:
        found.append(f"Fleet check: {answer.check.text}.")
    if question.offline:
        found.append("All requests are queued from the start; no latency limit counts.")
    elif not question.slo:
        found.append("No latency limit was given, so only saturation bounds the load.")
    return (*question.remarks, *found)


def _process(question: Question) -> str:
    return f"gamma (CV {question.cv:g})" if question.process == "gamma" else "Poisson" if question.process == "poisson" else "constant"


def percentile_answer(question: Question, candidates: Sequence[Candidate], chosen: Carried | None) -> dict[str, Any] | None:
    """The course's way beside the simulated one: the percentile of the arrivals in one second over a benchmark's throughput."""
    demand = question.demand
    if demand.percentile is None or demand.mean_requests_per_second is None or chosen is None:
        return None
    best, trial = candidates[0], chosen.ready.trial
    capacity = find_capacity(Instance(trial.deployment, asked(question, trial.system.gpus, "closed")))
    if capacity.reason:
        return None
    need = fleet(demand.peak_requests_per_second, capacity.rate, best.parallelism.gpus, best.gpus_per_system, question.spare)
    return {
        "percentile": demand.percentile,
        "mean_requests_per_second": demand.mean_requests_per_second,
        "peak_requests_per_second": demand.peak_requests_per_second,
        "requests_per_second_per_instance": capacity.rate,
        "concurrency_per_instance": capacity.concurrency,
        "systems_exact": need.systems_exact,
        "systems": need.systems,
        "simulated_systems_exact": best.systems_exact,
        "simulated_systems": best.systems,
        "arrivals": _process(question),
        "explanation": (
            f"The percentile way divides the {demand.percentile:g}th percentile of the arrivals in one second, "
            f"{demand.peak_requests_per_second:g}/s, by the throughput of a closed loop of {capacity.concurrency:.0f} clients, "
            f"{capacity.rate:.3g}/s an instance: it treats one busy second as if it lasted. "
            f"The simulation sends {_process(question)} arrivals at the mean, {demand.mean_requests_per_second:g}/s, "
            "lets queues form and drain, and holds the limits at their percentile; it decides."
        ),
    }
