"""``tonnage simulate``: one instance under a load, a sweep of loads, or the lesson in ticks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import Group, Parameter

from tonnage.cli.flags import OUTPUT, flags_of, given, leaf_flags, refuse, with_flags
from tonnage.cli.printing import print_answer, provenance
from tonnage.cli.progress import compile_if_needed, progress_bar, without_collection
from tonnage.cli.services import is_service, simulate_service
from tonnage.errors import InputError, option
from tonnage.spec.scenario import simulated_leaves
from tonnage.spec.typed_values import about

LESSON = Group("The lesson (--ticks)", sort_key=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Sweeps, and what is written; the lesson has none of it."""

    grid: Path | None = about(
        "Sweep the points of this file (base and over) on all cores; what the output folder has"
        " already is not done again."
    )
    on: Literal["processes", "ray"] | None = about(
        "With a grid: processes of this machine (default), or Ray."
    )
    output: Path | None = about(
        "Write a run folder with scenario, requests, gaps, summary and provenance; a sweep writes"
        " one per point."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Options of the timeline that an engine and the lesson write."""

    plot: Path | None = about(
        "Write the figures of a sweep: .svg for a picture, .html for a page with its table."
    )
    timeline: Path | None = about(
        "Write which request held which slot in which step: .parquet for data, .json for a trace"
        " that Perfetto opens, .html for a page."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Options of the lesson, in ticks."""

    slots: str | None = about(
        "Requests that run at once; several values with commas make a sweep (default: 4)."
    )
    prefill_ticks: float | None = about("Ticks of a whole prefill (default: 2).")
    itl_ticks: float | None = about("Ticks of a decode step (default: 1).")
    prefill_chunks: str | None = about(
        "Chunks of one prefill; several values with commas make a sweep (default: 1)."
    )
    initial_batch: int | None = about(
        "Requests at time 0 with none later (default: 100 where no other load is given)."
    )
    tick_rate: str | None = about(
        "Requests per tick, at a constant rate; several values with commas make a sweep."
    )
    osl_mean: str | None = about(
        "Mean output length in tokens; several values with commas make a sweep (default: 10)."
    )
    osl_std: float | None = about("Standard deviation of the output length (default: 5).")
    until: float | None = about("Ticks to simulate (default: 100).")


OF_BOTH = ("concurrency", "seed", "batcher")  # arguments that the lesson takes, too


@with_flags(
    *leaf_flags(simulated_leaves()),
    *flags_of(Output, OUTPUT),
    *flags_of(Timeline, OUTPUT),
    *flags_of(Lesson, LESSON),
)
def simulate(
    scenario: Path | None = None,
    /,
    *,
    ticks: Annotated[bool, Parameter(group=LESSON)] = False,
    json: Annotated[bool, Parameter(group=OUTPUT)] = False,
    **asked: Any,
) -> None:
    """Simulate one instance under a load, or run the course's lesson on batching (--ticks).

    Args:
        scenario: YAML or JSON file with the question (tonnage schema): its model, lengths and the
            one deployment that it names; or with a service of models that are not LLMs
            (docs/services.md).
        ticks: Run the lesson: an engine in ticks, without a model.
        json: Print one JSON object; a sweep prints {"points": […]}.
    """
    if not ticks and is_service(scenario):
        simulate_service(cast("Path", scenario), given(asked), json=json)
    elif asked.get("grid") is not None:
        _grid(given(asked), scenario, json=json)
    elif ticks:
        if scenario is not None:
            raise InputError(
                f"{scenario}: a scenario is simulated on an engine, not in the lesson; leave it out"
                " or leave out --ticks"
            )
        engine = [leaf.name for leaf in simulated_leaves() if leaf.name not in OF_BOTH]
        engine_flags = {name: asked.get(name) for name in (*engine, "on", "output")}
        refuse(
            engine_flags,
            "belongs to a simulated engine, not to the lesson; leave it out or leave out --ticks",
        )
        _lesson(given(asked), json=json)
    else:
        refuse(
            {field.name: asked.get(field.name) for field in fields(Lesson)},
            "belongs to the lesson; add --ticks",
        )
        _points(scenario, given(asked), json=json)


def _grid(flags: dict[str, Any], scenario: Path | None, *, json: bool) -> None:
    from tonnage import api
    from tonnage.report.simulated import swept

    grid, folder, on = flags.pop("grid"), flags.pop("output", None), flags.pop("on", "processes")
    if flags or scenario is not None:
        name = next(iter(flags), "grid")
        raise InputError(
            f"{option(name)}: the grid's file says everything; write it there, under base or over"
        )
    if folder is None:
        raise InputError(
            f"{option('output')}: missing; name the folder that gets a run folder for each point"
        )
    parameter_grid = api.read_grid(grid)
    compile_if_needed()
    with progress_bar("sweeping") as progress:
        done = api.sweep(parameter_grid, folder, provenance(0), on=on, progress=progress)
    print_answer(
        lambda: swept(done.points, done.done, done.left_out, folder), done.to_json, json=json
    )


def _lesson(flags: dict[str, Any], *, json: bool) -> None:
    from tonnage import api
    from tonnage.report.simulated import lesson, lesson_sweep
    from tonnage.report.writers.html import write_picture

    timeline, plot = flags.pop("timeline", None), flags.pop("plot", None)
    _check_files(timeline, plot)
    sweep = api.lesson_sweep(**flags)
    result = sweep.results[0]
    _check_sweep(plot, several=bool(sweep.setting))
    if sweep.setting and timeline is not None:
        raise InputError(
            f"{option('timeline')}: a sweep has many; give {option(sweep.setting)} one value"
        )
    if timeline is not None:
        api.write_timeline(timeline, api.lesson_timeline(result), "The lesson: slots and queue")
    swept = (
        lesson_sweep(sweep.setting, sweep.values, sweep.results)
        if sweep.setting
        else lesson(result)
    )
    if plot is not None:
        write_picture(plot, lesson_sweep(sweep.setting, sweep.values, sweep.results, drawn=True))
    print_answer(lambda: swept, sweep.to_json, json=json)


def _points(scenario: Path | None, flags: dict[str, Any], *, json: bool) -> None:
    with without_collection():
        from tonnage import api
        from tonnage.report.simulated import simulated, title_of
        from tonnage.report.writers.html import write_picture
        from tonnage.results.store import check_free

    output, timeline, plot = (
        flags.pop("output", None),
        flags.pop("timeline", None),
        flags.pop("plot", None),
    )
    _check_files(timeline, plot)
    if scenario is None and flags.get("trace") is None and flags.get("mixture") is None:
        api.check_given(model=flags.get("model"), isl=flags.get("isl"), osl=flags.get("osl"))
    if output is not None:
        check_free(output)
    asks = api.simulations_of(scenario, flags)
    _check_sweep(plot, several=len(asks.points) > 1 or len(asks.points[0][1].workloads) > 1)
    for _, point in asks.points:
        if not api.answers_soon(point):
            compile_if_needed(**api.loop_asked(point))
    with progress_bar("simulating") as progress:
        runs = api.simulated(asks, progress)
    if output is not None:
        api.write_runs(output, runs, provenance(runs[0].seed))
    if timeline is not None:
        api.write_timeline(timeline, api.run_timeline(runs[0]), title_of(runs))
    if plot is not None:
        write_picture(plot, simulated(runs, drawn=True))
    several = len(runs) > 1 or runs.left_out
    print_answer(
        lambda: simulated(runs), lambda: runs.to_json() if several else runs[0].to_json(), json=json
    )


def _check_files(timeline: Path | None, plot: Path | None) -> None:
    """Refuse files whose form is not known, before anything is simulated. Raises InputError."""
    from tonnage import api

    if timeline is not None:
        api.check_timeline(timeline)
    if plot is not None and plot.suffix.lower() not in (".svg", ".html"):
        raise InputError(
            f"{option('plot')}: {plot}: the name ends in .svg (a picture) or .html (a page)"
        )


def _check_sweep(plot: Path | None, *, several: bool) -> None:
    """Refuse a plot of one point. Raises InputError."""
    if plot is not None and not several:
        raise InputError(
            f"{option('plot')}: shows a sweep; give something several values, such as"
            f" {option('concurrency')} 1,2,4,8"
        )
