"""``tonnage.size``: the question as plain values, answered by simulation or from measured
points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tonnage.api.question.arguments import (
    Faults,
    Many,
    ScenarioLike,
    document_of,
    listed,
    plain,
    slo,
    whole_numbers,
    with_signature,
)
from tonnage.api.question.classes import by_class
from tonnage.api.question.objectives import (
    aim_of,
    places_of,
    prices_of,
    reserve_of,
    says_no_load,
    with_day,
    with_growth,
    with_prices,
    with_regions,
)
from tonnage.api.question.typed_arguments import SizeArguments
from tonnage.errors import InputError, InputErrors, option, visible
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.plan.plan import Measured, Plan
from tonnage.spec.hardware import link_words
from tonnage.spec.scenario import ChoiceAsked, DemandAsked, Scenario
from tonnage.spec.scenario_file import displaced, known_part, scenario_of

if TYPE_CHECKING:
    from datetime import date

    from tonnage.plan.candidate import Candidate
    from tonnage.plan.demand import Demand
    from tonnage.plan.use_cases import UseCases
    from tonnage.sizing.fleet.standby import Reserve
    from tonnage.sizing.planner import Progress, Runs
    from tonnage.sizing.question import Owned, Question


# What a plan from measurements has no use for, and does not mind; how requests arrive and the seed
# are refused
OF_A_SIMULATION = ("title",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A scenario, and what was understood of it."""

    scenario: Scenario  # as written, flags in place of the file's values
    questions: tuple[Question, ...]  # one per model
    source: str = ""  # the file; empty where there is none


@with_signature(SizeArguments)
def ask(scenario: ScenarioLike = None, **asked: Unpack[SizeArguments]) -> Asked:
    """Read a question and understand it, without answering it.

    Args:
        scenario: a file (YAML or JSON), nested values, or a ``Scenario``; None to say everything by
            name.
        asked: values by the names of the scenario's leaves (``spec.scenario``), in place of what it
            says; ``price`` is a list of single prices, such as ``["systems.dgx-h100=250000"]``.

    Raises InputErrors: everything that cannot be used, each with its place.
    """
    from tonnage.api.question.sizing import questions_of

    document, source = document_of(scenario)
    flags = plain(asked)
    price = flags.pop("price", None)
    if price:
        flags["prices"] = with_prices(flags.get("prices") or document.get("prices"), list(price))
    read_scenario, faults = _scenario(displaced(document, flags), flags, source)
    try:
        questions = questions_of(read_scenario, source=source, flags=flags)
    except InputErrors as errors:
        raise InputErrors((*faults, *errors.lines)) from None
    InputErrors.raise_if(faults)
    # what a file says goes into the plan, which is read where that file is not
    if read_scenario.search.link is not None:
        words = link_words(read_scenario.search.link, max(questions[0].tps))
        read_scenario = replace(read_scenario, search=replace(read_scenario.search, link=words))
    return Asked(scenario=read_scenario, questions=questions, source=source)


def _scenario(
    document: Mapping[str, Any], flags: Mapping[str, Any], source: str
) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario of what is known in a document, and what is not: unknown keys do not hide the
    faults of the others.
    """
    try:
        return scenario_of(document, flags, source), ()
    except InputErrors as errors:
        faults = errors.lines
    try:
        return scenario_of(known_part(document), flags, source), faults
    except InputErrors as errors:
        raise InputErrors((*faults, *errors.lines)) from None


@with_signature(SizeArguments)
def size(
    scenario: ScenarioLike = None,
    *,
    progress: Progress | None = None,
    **asked: Unpack[SizeArguments],
) -> Plan:
    """Size a load: predict by simulation how many systems it needs inside its latency limits.

    Args:
        scenario: a file (YAML or JSON), nested values, or a ``Scenario``; None to say everything by
            name.
        progress: called with (done, total, name) after each candidate.
        asked: values by the names of the scenario's leaves, in place of what it says, such as
            ``model="llama-3.1-8b", isl=2000, osl="200+-50", peak_rps=20, ttft="p95<=500ms",
            gpu="h100,l40s"``: ``tonnage schema`` prints them all.

    Raises InputErrors: everything that cannot be used, each with its place.
    """
    understood = ask(scenario, **asked)
    if len(understood.questions) != 1:
        raise InputError("model: several are given; compare them with tonnage.api.size_models")
    return answer(understood, progress=progress)[0]


@with_signature(SizeArguments)
def size_models(
    scenario: ScenarioLike = None,
    *,
    progress: Progress | None = None,
    **asked: Unpack[SizeArguments],
) -> tuple[Plan, ...]:
    """Size the load for every named model: one plan each, in their order."""
    return answer(ask(scenario, **asked), progress=progress)


def answer(
    understood: Asked,
    *,
    progress: Progress | None = None,
    today: date | None = None,
    command: str = "",
    runs: Runs | None = None,
    decided: Callable[[Plan], None] | None = None,
) -> tuple[Plan, ...]:
    """Answer each question with a finished plan: the choice, its cost, and its provenance.

    The first also holds the answer of the scenario's own benchmarks, where it names some.

    Args:
        understood: the question.
        progress: as in ``size``.
        today: the day that the plans name, and on which prices older than a year are; neither if
            not given.
        command: as it was typed, for the plans to name.
        runs: the memory of earlier questions, whose runs are not made again.
        decided: called with the plan of a single model as soon as its choice, number of systems and
            cost are known; what would change the answer is still missing there. Not called where an
            objective, a budget or standby systems may change the choice.

    Raises InputError: the benchmarks cannot be used for the question.
    """
    from tonnage.api.question.changes import with_autoscaling
    from tonnage.api.question.choice import chosen, with_runner_up
    from tonnage.api.question.horizon import with_horizon
    from tonnage.api.question.mixed import with_mixed
    from tonnage.cost.plan_cost import with_cost
    from tonnage.evidence.measurement import with_measurement
    from tonnage.sizing.planner import Runs as Memory
    from tonnage.sizing.planner import no_progress
    from tonnage.sizing.planner import size as search

    scenario = understood.scenario
    prices, where = prices_of(scenario), places_of(scenario)
    measured_plan = _measured_beside(understood)
    runs = Memory() if runs is None else runs
    understood = replace(
        understood,
        questions=tuple(
            _held_at_once(question, partial(search, runs=runs)) for question in understood.questions
        ),
    )
    day = "" if today is None else today.isoformat()

    def finished(plan: Plan) -> Plan:
        plan = with_cost(plan, prices, today=today, where=where)
        return replace(
            plan, asked=scenario, provenance=replace(plan.provenance, command=command, date=day)
        )

    final = (
        len(understood.questions) == 1
        and aim_of(scenario.choice) is None
        and reserve_of(scenario.standby) is None
    )
    early = (
        None
        if decided is None or not final
        else lambda plan: decided(finished(with_day(plan, scenario.demand)))
    )
    plans = [
        search(question, progress=progress or no_progress, runs=runs, decided=early)
        for question in understood.questions
    ]
    least, again = replace(scenario, choice=ChoiceAsked()), partial(search, runs=runs)
    steps: tuple[Callable[[Question, Plan], Plan], ...] = (
        lambda question, plan: chosen(
            question, plan, scenario, prices=prices, where=where, search=again
        ),
        lambda question, plan: with_runner_up(
            question, plan, prices=prices, where=where, search=again
        ),
        lambda question, plan: with_growth(
            plan,
            question,
            lambda grown: chosen(
                grown, again(grown), least, prices=prices, where=where, search=again
            ),
        ),
        lambda question, plan: with_mixed(
            question,
            plan,
            scenario,
            prices=prices,
            where=where,
            runs=runs,
            search=partial(again, rows=False),
        ),
        lambda question, plan: with_horizon(
            plan,
            question,
            scenario,
            prices=prices,
            where=where,
            answered=lambda grown: chosen(
                grown, again(grown), least, prices=prices, where=where, search=again
            ),
        ),
        lambda question, plan: with_regions(
            plan,
            question,
            lambda grown: chosen(
                grown, again(grown), least, prices=prices, where=where, search=again
            ),
        ),
        lambda question, plan: with_autoscaling(
            with_day(plan, scenario.demand), question, scenario
        ),
        lambda question, plan: finished(with_measurement(plan, question, runs)),
    )
    for step in steps:
        plans = [
            step(question, plan) for question, plan in zip(understood.questions, plans, strict=True)
        ]
    if measured_plan is not None:
        measured_plan = with_cost(measured_plan, prices, today=today, where=where)
        plans[0] = replace(
            plans[0], measured=Measured(plan=measured_plan, predicted=_predicted_beside(understood))
        )
    return tuple(plans)


SETTLED, MOST_SEARCHES = 0.02, 8
"""Share by which requests in flight may differ from the requested number, and most searches for
their rate."""


def _held_at_once(question: Question, search: Callable[[Question], Plan]) -> Question:
    """The question at the rate at which its choice has as many requests in flight as are requested;
    itself where it is about a rate.

    They are the rate times the mean E2E latency at the peak (Little's law), between two rates a
    power of the rate. Where a further system makes answers so much faster that no rate has as many,
    it is the least rate that was seen to have more.
    """
    target = question.demand.source.concurrency
    if target is None:
        return question
    fewer: list[tuple[float, float]] = []
    more: list[tuple[float, float]] = []
    rate = question.demand.sizing_requests_per_second
    for _ in range(MOST_SEARCHES):
        question = _at_rate(question, rate)
        choice = search(replace(question, deepen=False)).choice
        latency = None if choice is None else (choice.at_peak or choice).e2e_ms.mean
        if latency is None:
            return question
        in_flight = rate * latency / 1e3
        if abs(in_flight / target - 1) <= SETTLED:
            return question
        (fewer if in_flight < target else more).append((rate, in_flight))
        rate *= target / in_flight
        if fewer and more:
            (low, least), (high, greatest) = max(fewer), min(more)
            rate = low * (high / low) ** (math.log(target / least) / math.log(greatest / least))
    return _at_rate(question, min(more or fewer)[0])


def _at_rate(question: Question, rate: float) -> Question:
    source = replace(question.demand.source, requests_per_second=rate)
    demand = replace(
        question.demand,
        peak_requests_per_second=rate,
        sizing_requests_per_second=rate,
        source=source,
    )
    return replace(question, demand=demand)


def _measured_beside(understood: Asked) -> Plan | None:
    """The plan that a scenario's own ``benchmarks`` give for the same question, within its lengths
    and deployments; None without them.
    """
    scenario = understood.scenario
    if scenario.benchmarks is None:
        if idle := next(
            (name for name in ("include_invalid", "allow_errors") if getattr(scenario, name)), None
        ):
            raise InputError(
                f"{option(idle)}: is for measured points; add {option('benchmarks')}, or leave"
                " it out"
            )
        return None
    question = understood.questions[0]
    search, (isl, osl) = scenario.search, (question.isl.mean, question.osl.mean)
    return _measured(
        benchmarks=scenario.benchmarks,
        question={
            "demand": question.demand,
            "slo": question.slo,
            "spare": question.spare,
            "mean_isl": isl,
            "mean_osl": osl,
        },
        chosen={"model": question.model.name, "isl": round(isl), "osl": round(osl)},
        narrowed={"gpu": search.gpu, "precision": search.precision, "tp": search.tp},
        invalid=InvalidRuns(
            include=bool(scenario.include_invalid), allow_errors=bool(scenario.allow_errors)
        ),
    )


def _predicted_beside(understood: Asked) -> tuple[Candidate, ...]:
    """The same question predicted in a closed loop, the way that benchmarks are run: what measured
    points are compared with.
    """
    from tonnage.sizing.planner import size as search

    question = understood.questions[0]
    equal = replace(question, isl=question.isl.at_mean(), osl=question.osl.at_mean())
    return search(replace(equal, load="closed", deepen=False, tune=False)).candidates


def size_measured(
    *,
    benchmarks: str | Path,
    model: str | None = None,
    isl: str | int | None = None,
    osl: str | int | None = None,
    gpu: Many | None = None,
    ttft: str | Sequence[str] | None = None,
    itl: str | Sequence[str] | None = None,
    tpot: str | Sequence[str] | None = None,
    e2e: str | Sequence[str] | None = None,
    precision: Many | None = None,
    tp: Many | None = None,
    engine: Many | None = None,
    spare: int | None = None,
    have: str | None = None,
    include_invalid: bool | None = None,
    allow_errors: bool | None = None,
    command: str = "",
    today: date | None = None,
    **demand: Any,
) -> Plan:
    """Size a load from measured points, the classic way of NVIDIA's course.

    Args:
        benchmarks: CSV or JSON of measured points (``formats.measured_files.read_points``).
        model, isl, osl: which points to use, where the file holds several; also what a report of
            GenAI-Perf that does not say them was measured with.
        gpu, precision, tp, engine: which deployments may be chosen; all in the file if not given.
        ttft, itl, tpot, e2e, spare: as in ``size``.
        have: systems that exist; what they carry is then the question where no load is given.
        include_invalid: whether run folders that their own client called INVALID count; they are
            left out if not, and a note names them.
        allow_errors: whether runs count of which more than 1 % of the requests failed; likewise.
        command, today: as typed, and the day, for the plan to name.
        demand: the demand in any form that needs no lengths, as in ``size``: ``peak_rps=199.77``.

    Raises InputError: anything that cannot be used, in one line.
    """
    from tonnage.api.question.sizing import demand_asked, owned

    idle = [
        name
        for name, value in demand.items()
        if value is not None and name not in (*DemandAsked.__dataclass_fields__, *OF_A_SIMULATION)
    ]
    if idle:
        raise InputError(
            f"{option(idle[0])}: does not go with {option('benchmarks')} alone, which only reads"
            " what was measured; write a scenario file that names the benchmarks, to have both"
        )
    written = scenario_of({}, {**plain(demand), "spare": spare})
    faults = Faults()
    faults.check(written)
    InputErrors.raise_if(faults.messages)
    demand_arguments = written.demand
    exists = owned(have) if have is not None else ()

    def plan_for(demand: Demand) -> Plan:
        return _measured(
            benchmarks=benchmarks,
            question={
                "demand": demand,
                "slo": slo(ttft=ttft, itl=itl, tpot=tpot, e2e=e2e),
                "spare": spare or 0,
            },
            chosen={
                "model": model,
                "isl": None if isl is None else whole_numbers(isl, option("isl"))[0],
                "osl": None if osl is None else whole_numbers(osl, option("osl"))[0],
            },
            narrowed={"gpu": gpu, "precision": precision, "tp": tp, "engine": engine},
            invalid=InvalidRuns(include=bool(include_invalid), allow_errors=bool(allow_errors)),
        )

    plan = (
        _of_existing(exists, demand_arguments, plan_for)
        if exists
        else plan_for(demand_asked(demand_arguments))
    )
    return replace(
        plan,
        provenance=replace(
            plan.provenance, command=command, date="" if today is None else today.isoformat()
        ),
    )


def _of_existing(
    exists: Sequence[Owned], demand: DemandAsked, plan_for: Callable[[Demand], Plan]
) -> Plan:
    """The plan of measured points with what systems that exist carry by them; for that load where
    none is requested.
    """
    from tonnage.api.question.sizing import demand_asked
    from tonnage.sizing.demand import carried_by_existing
    from tonnage.sizing.fleet.existing import measured_existing

    alone = says_no_load(demand)
    plan = plan_for(carried_by_existing() if alone else demand_asked(demand))
    carried = measured_existing(plan, exists).requests_per_second
    plan = plan_for(carried_by_existing(carried)) if alone and carried > 0 else plan
    return with_day(replace(plan, existing=measured_existing(plan, exists)), demand)


def _measured(
    *,
    benchmarks: str | Path,
    question: dict[str, Any],
    chosen: dict[str, Any],
    narrowed: dict[str, Any],
    invalid: InvalidRuns,
) -> Plan:
    from tonnage.formats.measured_files import read_points
    from tonnage.plan.notes import InvalidRun
    from tonnage.sizing.measured import MeasuredQuestion
    from tonnage.sizing.measured import size_measured as measured

    listings = {
        name: None if values is None else listed(values, option(name))
        for name, values in narrowed.items()
    }
    measured_question = MeasuredQuestion(
        **question,
        **chosen,
        gpus=listings.get("gpu"),
        precisions=listings.get("precision"),
        tps=None if narrowed.get("tp") is None else whole_numbers(narrowed["tp"], option("tp")),
        engines=listings.get("engine"),
        data=str(benchmarks),
    )
    single: dict[str, str | int | None] = {
        "model": measured_question.model,
        "isl": measured_question.isl,
        "osl": measured_question.osl,
    }
    choices = {
        "gpu": measured_question.gpus,
        "precision": measured_question.precisions,
        "tp": measured_question.tps,
        "engine": measured_question.engines,
    }
    single.update(
        {name: values[0] for name, values in choices.items() if values and len(values) == 1}
    )
    facts = {name: value for name, value in single.items() if value is not None}
    plan = measured(read_points(benchmarks, facts, invalid), measured_question)
    left_out = (
        InvalidRun(run=run.run, why=run.why, counts=run.counts, option=run.option)
        for run in invalid.met
    )
    return replace(plan, notes=(*plan.notes, *left_out))


MOST_DEEPENED = 2
"""Most use cases of one fleet whose plans say what would change each of them."""

# Options of one plan alone, and not of a fleet of several use cases
OF_ONE_PLAN = (
    "concurrency",
    "have",
    "growth",
    "horizon",
    "price_decay",
    "lead_time",
    "benchmarks",
    "budget",
    "max_kw",
    "max_racks",
    "autoscale",
    "broken_hours",
    "start_time",
)


@with_signature(SizeArguments)
def size_use_cases(
    scenarios: Sequence[ScenarioLike],
    *,
    progress: Progress | None = None,
    command: str = "",
    today: date | None = None,
    **asked: Unpack[SizeArguments],
) -> UseCases:
    """Whether several use cases take fewer GPUs in one pool or apart, each inside its own limits.

    Args:
        scenarios: two or more, each a file, nested values or a ``Scenario`` of one model; or one
            or none with ``classes``, such as ``["chat:peak_rps=20,isl=1000,ttft=1s", …]``.
        progress: as in ``size``.
        command, today: as typed, and the day, for the plans to name.
        asked: values in place of what every scenario says.

    Raises InputErrors: everything that cannot be used, each with its place.
    """
    classes = by_class(next(iter(scenarios), None), asked) if len(scenarios) < 2 else ()
    understood = [ask(**understood_case) for understood_case in classes] or [
        ask(scenario, **asked) for scenario in scenarios
    ]
    names = _names(understood)
    for name, one in zip(names, understood, strict=True):
        _check(name, one)
    reserve = _check_together(names, understood)
    return answer_use_cases(
        names, understood, reserve, progress=progress, command=command, today=today
    )


def answer_use_cases(
    names: Sequence[str],
    understood: Sequence[Asked],
    reserve: Reserve | None = None,
    *,
    progress: Progress | None = None,
    command: str = "",
    today: date | None = None,
) -> UseCases:
    """The answer of use cases that are understood already, with standby systems; other arguments as
    in ``size_use_cases``.
    """
    from tonnage.cost.options import with_cost_together
    from tonnage.sizing.use_cases import Asked as Case
    from tonnage.sizing.use_cases import use_cases

    if len(understood) > MOST_DEEPENED:
        understood = [
            replace(case, questions=(replace(case.questions[0], deepen=False),))
            for case in understood
        ]
    plans = [
        answer(use_case, progress=progress, command=command, today=today)[0]
        for use_case in understood
    ]
    cases = [
        Case(
            name=name,
            question=use_case.questions[0],
            plan=plan,
            priority=use_case.scenario.priority or 0,
        )
        for name, use_case, plan in zip(names, understood, plans, strict=True)
    ]
    notify = None if progress is None else (lambda text: progress(0, 0, text))
    arrangements = (
        use_cases(cases, reserve=reserve) if notify is None else use_cases(cases, notify, reserve)
    )
    return with_cost_together(
        arrangements, prices_of(understood[0].scenario), places_of(understood[0].scenario)
    )


def _names(understood: Sequence[Asked]) -> tuple[str, ...]:
    """A name for each use case: its title, or that of its file, or its number; numbered where two
    are alike.
    """
    titles = [
        use_case.scenario.title or visible(Path(use_case.source).stem) or f"use case {place}"
        for place, use_case in enumerate(understood, 1)
    ]
    return tuple(
        name if titles.count(name) == 1 else f"{name} ({place})"
        for place, name in enumerate(titles, 1)
    )


def _check(name: str, use_case: Asked) -> None:
    """Refuse options of one plan alone. Raises InputError: naming the use case."""
    if len(use_case.questions) != 1:
        raise InputError(
            f"{name}: {option('model')} names several models; each use-case file must name"
            " exactly one"
        )
    if use_case.questions[0].sharing is not None:
        raise InputError(
            f"{name}: several use cases are sized for prompts that share nothing so far; leave out"
            " what they share"
        )
    if use_case.questions[0].pools is not None:
        raise InputError(
            f"{name}: {option('disaggregated')} sizes two pools for one use case; drop it, or give"
            " one scenario"
        )
    written = use_case.scenario
    parts = (written, written.choice, written.scaling, written.buying, written.demand)
    idle = next(
        (key for key in OF_ONE_PLAN for part in parts if getattr(part, key, None) is not None), None
    )
    if idle is not None:
        raise InputError(
            f"{name}: {option(idle)} is for one use case alone; leave it out, or size this scenario"
            " by itself"
        )


def _check_together(names: Sequence[str], understood: Sequence[Asked]) -> Reserve | None:
    """Standby systems for the fleet of all; refuse what the use cases ask differently, and
    objectives that compare no arrangements.
    """
    first, gpus = (
        understood[0].scenario,
        {gpu.name for case in understood for gpu in case.questions[0].gpus},
    )
    for name, use_case in zip(names, understood, strict=True):
        if use_case.scenario.standby != first.standby:
            which = f"{option('availability')} or what belongs to it differs"
            raise InputError(f"{name}: {which} from {names[0]}; write the same in every file")
        if use_case.scenario.choice.objective != first.choice.objective:
            raise InputError(
                f"{name}: {option('objective')} differs from {names[0]}; write the same in every"
                " file"
            )
    _check_priorities(understood)
    aim = first.choice.objective or "gpus"
    if aim == "latency":
        raise InputError(
            f"{option('objective')}: latency is of one use case, as a shared pool is sized for the"
            " fewest GPUs; drop it"
        )
    if aim != "gpus" and len(gpus) > 1:
        raise InputError(
            f"{option('objective')}: several use cases are arranged on the fewest GPUs, which is"
            f" the least {aim} on one type of GPU only; give one {option('gpu')} of"
            f" {', '.join(sorted(gpus))}"
        )
    return reserve_of(first.standby)


def _check_priorities(understood: Sequence[Asked]) -> None:
    """Refuse priorities of which no engine that may be chosen knows, and negative ones."""
    from tonnage.sizing.use_cases import has_priorities
    from tonnage.spec.catalog import engines

    priorities = {case.scenario.priority or 0 for case in understood}
    if min(priorities) < 0:
        raise InputError(
            f"{option('priority')}: {min(priorities)} is negative; write 0 for what goes first"
        )
    jobs = [case for case in understood if case.questions[0].offline]
    other_priorities = {case.scenario.priority or 0 for case in understood if case not in jobs}
    if len(priorities) > 1 and jobs:
        lowest = all(
            (job.scenario.priority or 0) > max(other_priorities, default=-1) for job in jobs
        )
        if len(jobs) > 1 or not lowest:
            raise InputError(
                f"{option('priority')}: background work ({option('requests')},"
                f" {option('within')}) is one class, which goes last; name it as the last class"
            )
    engine_names = {engine for case in understood for engine in case.questions[0].engines}
    if len(priorities) > 1 and not any(map(has_priorities, engine_names)):
        able = sorted({engine.family for engine in engines() if has_priorities(engine.name)})
        raise InputError(
            f"{option('engine')}: {', '.join(sorted(engine_names))} serves no request by priority;"
            f" {' and '.join(able)} do, or give every class the same {option('priority')}"
        )
