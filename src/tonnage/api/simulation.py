"""``tonnage.simulate`` runs one deployment under one load or several, and returns the record of
what happened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tonnage.api.question.arguments import ScenarioLike, with_signature
from tonnage.api.question.simulation import Simulation
from tonnage.api.question.sweeps import Simulations, simulations_of
from tonnage.api.question.typed_arguments import SimulateArguments
from tonnage.errors import InputError, option
from tonnage.results.metrics import Summary, counted_rows, of_rows, summarize
from tonnage.simulator.simulated_run import EqualLengths, SimulatedRun, SimulatedSweep, facts_of

if TYPE_CHECKING:
    from tonnage.results.requests import Requests
    from tonnage.results.timeline import Timeline
    from tonnage.simulator.changes import Changes, Routed
    from tonnage.simulator.disaggregated import Disaggregated
    from tonnage.sizing.planner import Progress
    from tonnage.spec.workload import Trace, Workload


def pooled_runs(
    asks: Simulation, pools: Disaggregated, progress: Progress | None
) -> Iterator[SimulatedRun]:
    """Simulate each load on both pools."""
    from tonnage.simulator.disaggregated import simulate_disaggregated
    from tonnage.simulator.kernel import is_compiled
    from tonnage.simulator.simulate import answers_soon

    plain = not is_compiled() and answers_soon(
        [(asks.deployment, workload) for workload in asks.workloads]
    )
    for number, workload in enumerate(asks.workloads, 1):
        record = simulate_disaggregated(pools, workload.trace(asks.seed), plain=plain)
        if progress is not None:
            progress(number, len(asks.workloads), "two pools")
        yield SimulatedRun(
            deployment=asks.deployment,
            workload=workload,
            seed=asks.seed,
            requests=record,
            summary=summarize(record),
            limits=asks.limits,
            instances=pools.prefill_instances + pools.decode_instances,
            router=f"{pools.prefill_instances}:{pools.decode_instances} disaggregated",
        )


# share by which lengths vary where a fleet's requests of equal length are simulated once more
VARIED = 0.2

DECIDES = 0.2  # change of the p95 TTFT from which a remark says that equal lengths decide it

# fewest requests that are compared, whose p95 is not chance, and most, which take seconds
COMPARED = (200, 20_000)


@with_signature(SimulateArguments)
def simulate(
    scenario: ScenarioLike = None,
    *,
    progress: Progress | None = None,
    **asked: Unpack[SimulateArguments],
) -> SimulatedRun:
    """Simulate one instance under one load, such as ``simulate(model="llama-3.1-8b", isl=2000,
    osl=200, request_rate=5)``.

    Args:
        scenario: a file (YAML or JSON), nested values, or a ``Scenario``: its model, lengths,
            engine knobs and the one deployment that its search names; None to say everything by
            name.
        progress: called with (done, total, name).
        asked: values by name, in place of what the scenario says: ``SimulateArguments`` has them
            all. One of ``concurrency`` (a closed loop) and ``request_rate`` (an open loop) is the
            load: a scenario's demand is for all instances together.

    Raises InputErrors: everything that cannot be used, each with its place.
    """
    asks = simulations_of(scenario, asked)
    if len(asks.points) > 1 or asks.left_out or len(asks.points[0][1].workloads) > 1:
        several = list(asks.points[0][0]) or ["concurrency", "request_rate"]
        raise InputError(
            f"{', '.join(map(option, several))}: several are given; simulate_sweep runs them all"
        )
    return simulated(asks, progress)[0]


@with_signature(SimulateArguments)
def simulate_sweep(
    scenario: ScenarioLike = None,
    *,
    progress: Progress | None = None,
    **asked: Unpack[SimulateArguments],
) -> SimulatedSweep:
    """Simulate every combination of several loads, degrees, formats, lengths, routers and the like,
    as a sequence of runs.

    Args:
        scenario, asked: as in ``simulate``; several values, such as ``tp="1,2,4",
            concurrency="1,2,5"``, make a point each.
        progress: called with (done, total, name) after each point.

    Raises InputErrors: everything that cannot be used, each with its place.
    """
    return simulated(simulations_of(scenario, asked), progress)


def simulated(asks: Simulations, progress: Progress | None = None) -> SimulatedSweep:
    """Simulate a question that is read already, as ``simulate_sweep`` does.

    Raises DoesNotFit: no engine has room for a request; InputError: no point can be run.
    """
    total = sum(len(point.workloads) for _, point in asks.points)
    runs: list[SimulatedRun] = []
    left_out = list(asks.left_out)
    for settings, point in asks.points:
        before = len(runs)

        def passed(done: int, _: int, name: str, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total, name)

        try:
            runs += (replace(run, settings=settings) for run in _checked(point, passed))
        except InputError as error:
            left_out.append((settings, error))
    if not runs:
        raise left_out[0][1]
    return SimulatedSweep(
        runs=tuple(runs), left_out=tuple((settings, error.marked) for settings, error in left_out)
    )


def _checked(asks: Simulation, progress: Progress) -> list[SimulatedRun]:
    """The runs of one question. Raises DoesNotFit: an engine has room for no request."""
    from tonnage.perf.fitting import check_room

    first = asks.workloads[0]
    equal = (
        first.pairs is None
        and first.isl.kind == first.osl.kind == "fixed"
        and not first.shares
        and first.recorded is None
    )
    for deployment in asks.deployments:
        check_room(
            deployment, *((round(first.isl.mean), round(first.osl.mean)) if equal else (1, 1))
        )
    runs = _simulated(asks, progress)
    record = runs[0].requests
    if len(record) and runs[0].summary.requests["rejected"] == len(record):
        check_room(asks.deployment, int(record.isl.min()), 1)
    return runs


def _simulated(asks: Simulation, progress: Progress | None) -> list[SimulatedRun]:
    """The runs of all loads."""
    from tonnage.simulator.simulate import simulate_many

    if asks.pools is not None:
        return list(pooled_runs(asks, asks.pools, progress))
    if asks.instances > 1 or asks.changes:
        return list(_fleets(asks, progress))
    points = [(asks.deployment, workload) for workload in asks.workloads]
    if asks.deployment.speculation is not None:
        points += [
            (replace(asks.deployment, speculation=None), workload) for workload in asks.workloads
        ]
    runs = simulate_many(
        points, seed=asks.seed, window_s=asks.window_s, progress=progress, tiers=asks.tiers
    )
    summaries = [summarize(run) for run in runs]
    count = len(asks.workloads)
    plain: list[Summary | None] = [*summaries[count:]] or [None] * count
    rows = zip(asks.workloads, runs, summaries, plain, strict=False)
    return [
        SimulatedRun(
            deployment=asks.deployment,
            workload=w,
            seed=asks.seed,
            requests=r,
            summary=s,
            plain=p,
            limits=asks.limits,
        )
        for w, r, s, p in rows
    ]


def answers_soon(asks: Simulation) -> bool:
    """Whether the runs of one question are made within seconds although the simulator is not
    compiled yet: then it does not compile it.
    """
    from tonnage.simulator.simulate import answers_soon as soon

    return not asks.changes and soon(
        [(asks.deployment, workload) for workload in asks.workloads], asks.instances
    )


def loop_asked(asks: Simulation) -> dict[str, bool]:
    """The compiled loop that a question needs, as the arguments of ``kernel.warm_up``."""
    d, shares = asks.deployment, any(workload.shares for workload in asks.workloads)
    return {
        "shares": shares,
        "ranks": d.knobs.ranks,
        "grouped": d.parallelism.dp > 1 and asks.instances == 1,
    }


def _fleets(asks: Simulation, progress: Progress | None) -> Iterator[SimulatedRun]:
    from tonnage.simulator.simulate import answers_soon as soon

    changing = asks.changes
    plain = not changing and soon(
        [(asks.deployment, workload) for workload in asks.workloads], asks.instances
    )
    for number, workload in enumerate(asks.workloads, 1):
        facts = equal = None
        if workload.shares:
            from tonnage.simulator.shared_fleet import simulate_shared_fleet

            trace = workload.trace(asks.seed)
            engines = _engines(
                asks, workload, plain=True, contents=trace.contents, tiers=asks.tiers
            )
            record, _ = simulate_shared_fleet(
                trace, engines, asks.router, seed=asks.seed, weight=asks.weights
            )
        else:
            served = _served(asks, workload, plain=plain)
            record = served.requests
            facts = facts_of(served, asks.limits) if changing or asks.limits else None
            equal = _equal_lengths(asks, workload, record, plain=plain)
        if progress is not None:
            progress(number, len(asks.workloads), f"{asks.instances} instances")
        yield SimulatedRun(
            deployment=asks.deployment,
            workload=workload,
            seed=asks.seed,
            requests=record,
            summary=summarize(record),
            limits=asks.limits,
            instances=asks.instances,
            router=asks.router,
            unlike=asks.unlike,
            fleet=facts,
            equal_lengths=equal,
        )


def _served(asks: Simulation, workload: Workload, *, plain: bool) -> Routed:
    """A load on all instances; ``plain`` where the reference serves it, which needs no compiler."""
    from tonnage.simulator.fleet import simulate_fleet, simulate_routed

    trace = workload.trace(asks.seed)
    if plain:
        return simulate_fleet(
            trace,
            _engines(asks, workload, plain=True),
            asks.router,
            seed=asks.seed,
            weight=asks.weights,
        )
    engines = _engines(asks, workload)
    return simulate_routed(
        trace,
        engines,
        asks.router,
        seed=asks.seed,
        weight=asks.weights,
        changes=_changes(asks, trace),
    )


def _equal_lengths(
    asks: Simulation, workload: Workload, record: Requests, *, plain: bool
) -> EqualLengths | None:
    """The same arrivals with lengths that vary, where equal lengths decide the p95 TTFT; None where
    they do not, or none are equal.
    """
    from tonnage.spec.workload import OpenLoop

    fewest, maximum = COMPARED
    lengths = (workload.isl, workload.osl)
    equal = workload.pairs is None and all(
        length.kind == "fixed" and not length.exact for length in lengths
    )
    if (
        not equal
        or asks.changes
        or not isinstance(workload.arrivals, OpenLoop)
        or len(record) < fewest
    ):
        return None
    isl, osl = (length.within(VARIED) for length in lengths)
    if isl.longest + osl.longest > asks.deployment.model.max_context:
        return None
    count = min(len(record), maximum)
    requests = _served(
        asks, replace(workload, isl=isl, osl=osl, requests=count), plain=plain
    ).requests
    rows = [counted_rows(run) for run in (record, requests)]
    equal_p95, varied = (
        of_rows(run, its[its < count])[0].p95
        for run, its in zip((record, requests), rows, strict=True)
    )
    if not equal_p95 or varied is None or abs(varied / equal_p95 - 1) <= DECIDES:
        return None
    return EqualLengths(
        share=VARIED, requests=count, ttft_p95_ms=equal_p95, varied_ttft_p95_ms=varied
    )


def _engines(
    asks: Simulation, workload: Workload, *, plain: bool = False, **more: Any
) -> list[Any]:
    """The engines of a fleet: of each of its groups, or for each setting that its seasons have one
    of each instance.

    ``plain`` takes those of the reference, with ``more`` arguments.
    """
    from tonnage.simulator.engine import engine_of
    from tonnage.simulator.spec import instance_spec

    seasons = asks.seasons
    groups = [
        (group.deployment, group.deployment.model.max_context, group.instances)
        for group in asks.groups
    ]
    if seasons is not None:
        groups = [
            (d, context, asks.instances)
            for d, context in zip(seasons.deployments, seasons.contexts, strict=True)
        ]
    engines = []
    for deployment, context, count in groups:
        spec = replace(instance_spec(deployment, workload), max_context=context)
        engines += [spec.plain_engine(**more) if plain else engine_of(spec) for _ in range(count)]
    return engines


def _changes(asks: Simulation, trace: Trace) -> Changes:
    from tonnage.simulator.changes import Changes, outages_of, restarts_of

    failures, seasons = asks.failures, asks.seasons
    last = int(trace.due_ps[-1]) if len(trace) else 0
    if seasons is not None:
        return Changes(
            outages=restarts_of(seasons.by_hour, asks.instances, last, seasons.restarts),
            seasons=len(seasons.deployments),
        )
    if failures is None:
        return Changes(autoscale=asks.autoscale)
    return Changes(
        outages=outages_of(failures, asks.instances, last, asks.seed),
        retry=failures.retry,
        autoscale=asks.autoscale,
    )


FORMS = (".parquet", ".json", ".html")


def check_timeline(path: Path) -> None:
    """Refuse a file whose form is not known, before anything is simulated. Raises InputError: its
    name ends otherwise.
    """
    if path.suffix.lower() not in FORMS:
        raise InputError(
            f"{option('timeline')}: {path}: the name ends in .parquet (data), .json (a trace that"
            " Perfetto opens) or .html (a page)"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option('timeline')}: {path}: there is no such folder")


def run_timeline(run: SimulatedRun) -> Timeline:
    """The slots of a simulated run, which is run again by the readable simulator. Raises
    InputError.
    """
    from tonnage.simulator.timeline import simulate_timeline

    if run.instances > 1 or run.router:
        raise InputError(
            f"{option('timeline')}: shows the slots of one engine; leave out what makes several"
        )
    return simulate_timeline(run.deployment, run.workload, seed=run.seed)[1]


def write_timeline(path: Path, timeline: Timeline, title: str) -> None:
    """Write a timeline in the form that the name of the file says; it is there whole or not at
    all.
    """
    from tonnage.report.simulated import timeline_page
    from tonnage.report.writers.html import write_page
    from tonnage.results.store import write_json
    from tonnage.results.timeline import chrome_trace, timeline_table

    if path.suffix.lower() == ".html":
        write_page(path, timeline_page(timeline, title))
    elif path.suffix.lower() == ".json":
        write_json(path, chrome_trace(timeline))
    else:
        import pyarrow.parquet as pq

        partial = path.with_name(f".{path.name}.{os.getpid()}")
        pq.write_table(timeline_table(timeline), partial, compression="zstd")
        partial.replace(path)
