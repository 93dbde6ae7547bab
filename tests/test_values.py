"""Values are frozen, made by keyword alone, and take no other attributes (CONTRIBUTING.md)."""

# ruff: noqa: F401 - the modules are looked through as the globals of this file

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.mutations import ROOMS
from tonnage.bench import (
    arguments,
    benchmark,
    conductor,
    connection,
    conversations,
    endpoints,
    exact_replies,
    exact_server,
    find_max,
    infer,
    intervals,
    load,
    measure,
    prompts,
    recorder,
    selftest,
    steady,
    validity,
    workers,
)
from tonnage.bench import tiers as bench_tiers
from tonnage.cost import break_even, horizon, options, plan_cost
from tonnage.evidence import calibrate, compare, measurement, predict, replay, rows, sample, score
from tonnage.evidence import services as evidence_services
from tonnage.gateway import balancer, haproxy, server, settings
from tonnage.perf import (
    aiconfigurator,
    attention,
    fitted_terms,
    host,
    images_and_adapters,
    kernels,
    links,
    matrices,
    measured_steps,
    memory,
    pipeline,
    power,
    residuals,
    step,
    step_terms,
    terms,
    terms_file,
    vectorised_step,
)
from tonnage.results import breakdown, metrics, requests, store
from tonnage.results import services as results_services
from tonnage.results import timeline as results_timeline
from tonnage.simulator import (
    autoscaler,
    changes,
    lesson,
    member,
    pools,
    reference,
    request,
    simulated_run,
    spec,
)
from tonnage.simulator import disaggregated as simulator_disaggregated
from tonnage.simulator import services as simulator_services
from tonnage.simulator import tiers as simulator_tiers
from tonnage.simulator import timeline as simulator_timeline
from tonnage.simulator.reference import job
from tonnage.simulator.services import queue
from tonnage.sizing import (
    background,
    demand,
    estimate,
    measured,
    mixture,
    precisions,
    question,
    session_tiers,
    use_cases,
)
from tonnage.sizing import services as sizing_services
from tonnage.sizing.fleet import autoscaling, joint_choice, mixed, placement, purchase, standby
from tonnage.sizing.loads import (
    capacity,
    confidence,
    fleet_check,
    instance,
    load_scan,
    mixed_check,
    runs,
    shared_load,
    trial,
)
from tonnage.sizing.search import deployment_capacity, objectives, search, warm_start
from tonnage.sizing.search import disaggregated as search_disaggregated

ROOT = Path(__file__).parents[1] / "src"

MODULES = {
    part.__name__: part
    for part in list(globals().values())
    if isinstance(part, ModuleType) and part.__name__.startswith("tonnage.")
}

CHANGING = {
    "bench.conductor._Talk",
    "bench.endpoints.Delta",
    "bench.exact_server.Served",
    "bench.recorder.Tally",
    "evidence.sample._Part",
    "gateway.balancer.Backend",
    "simulator.lesson._Mean",
    "simulator.lesson._Request",
    "simulator.member.Live",
    "simulator.pools._Member",
    "simulator.reference.job.Job",
    "simulator.reference.job.Step",
    "simulator.services._Model",
    "simulator.services._Request",
    "simulator.services.queue.Ticket",
    "simulator.services.queue._Level",
    "simulator.timeline._Places",
    "sizing.fleet.joint_choice._Choice",
}
"""What holds a state that changes."""

POSITIONAL = {
    "bench.conductor._Talk",
    "evidence.rows.Bins",
    "evidence.rows.Deployments",
    "evidence.sample._Part",
    "perf.fitted_terms.Vocabulary",
    "perf.kernels.Step",
    "simulator.lesson._Mean",
    "simulator.services._Model",
    "simulator.services._Request",
    "simulator.services.queue._Level",
    "simulator.timeline._Places",
    "sizing.search.objectives.MostLoad",
    "sizing.search.objectives.ShortestAnswers",
}
"""What is made of one or two values whose order is plain, or for each request of a run."""

CACHING = {
    "cost.horizon.Market",
    "cost.horizon.Month",
    "evidence.measurement.Afterwards",
    "evidence.measurement._Outcomes",
    "sizing.fleet.autoscaling.FleetOverHours",
    "sizing.fleet.joint_choice._Choice",
    "sizing.fleet.mixed.Fleets",
    "sizing.fleet.purchase.Buyer",
    "sizing.loads.confidence.StepErrors",
    "sizing.loads.fleet_check.FleetAtPeak",
    "sizing.loads.mixed_check.MixedAtPeak",
    "sizing.mixture.MixtureRun",
    "sizing.search.deployment_capacity.Contender",
    "sizing.search.deployment_capacity.Sized",
    "sizing.search.disaggregated.PooledAtPeak",
    "sizing.search.disaggregated.PooledContender",
    "sizing.search.search.Contest",
    "sizing.search.search.Search",
    "sizing.use_cases.Tried",
}
"""What keeps what it has worked out (``cached_property``), and what extends such a class."""


def values() -> dict[str, Any]:
    """The classes by their modules and names."""
    return {
        f"{module.__name__}.{name}".removeprefix("tonnage."): part
        for module in MODULES.values()
        for name, part in vars(module).items()
        if isinstance(part, type) and is_dataclass(part) and part.__module__ == module.__name__
    }


def test_every_module_with_values_is_looked_at() -> None:
    files = (file for room in ROOMS for file in (ROOT / "tonnage" / room).rglob("*.py"))
    assert {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in files
        if "@dataclass" in file.read_text(encoding="utf-8")
    } == set(MODULES)
    assert len(values()) > 200


def test_values_do_not_change_but_for_those_that_hold_a_state() -> None:
    assert {
        name for name, part in values().items() if not part.__dataclass_params__.frozen
    } == CHANGING


def test_values_are_made_by_keyword() -> None:
    assert {
        name for name, part in values().items() if not all(field.kw_only for field in fields(part))
    } == POSITIONAL


def test_values_take_no_other_attributes_but_for_what_they_work_out() -> None:
    assert {name for name, part in values().items() if "__slots__" not in vars(part)} == CACHING
