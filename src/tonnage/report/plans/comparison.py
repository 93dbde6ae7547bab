"""Several models side by side: the same question, one plan each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import WAYS, Where, YearlyCost
from tonnage.plan.notes import Judged
from tonnage.plan.plan import Plan
from tonnage.report.document import Facts, Section, Table, Text, section
from tonnage.report.numbers import ABSENT, number, percent, usd, whole
from tonnage.report.plans.candidates import reason_text
from tonnage.report.plans.cost import NAMES, cheapest, course_way_text, no_cost_text, owned, yearly
from tonnage.report.plans.deployments import bought, deployment, load_text, systems
from tonnage.report.plans.notes import quality_text
from tonnage.spec.catalog.accuracy import BENCHMARK, find_score

HEADER = (
    *(
        "model",
        f"{BENCHMARK} %",
        "deployment",
        "req/s per instance",
        "req/s per 8 GPUs",
        "systems",
        "exactly",
        "GPUs",
    ),
    *("TTFT mean ms", "TTFT p95 ms", "TPOT ms", "E2E ms"),
)
# A column for each way of serving, so that no price is under the name of another way
COSTS = tuple((way, f"USD a year, {'owned' if way == 'on-prem' else NAMES[way]}") for way in WAYS)

CHEAPEST = "cheapest way"
ENERGY = "kWh a year"
NEXT = "next to the original"
SPARED = (
    *(
        "req/s per instance",
        "TTFT mean ms",
        "GPUs",
        "TPOT ms",
        "E2E ms",
        "req/s per 8 GPUs",
        "TTFT p95 ms",
    ),
    *(title for _, title in reversed(COSTS)),
    CHEAPEST,
)
PEAK = "Latencies are those at the asked peak."
LIMIT = "Latencies are those at the highest load inside the limits, or of the job."
QUALITY = (
    f"{BENCHMARK} scores are as published, and were not all asked in the same way; their sources"
    " are in the catalog (tonnage catalog MODEL --json)."
)


# Columns of a first screen, whose lines name the deployment and the cost
SHORT = (
    "model",
    f"{BENCHMARK} %",
    "systems",
    "exactly",
    "GPUs",
    "TTFT p95 ms",
    "TPOT ms",
    "E2E ms",
)
# Its columns where a checkpoint that ``compress`` made is among the models: what the loss of
# quality buys
BOUGHT = ("model", "systems", "exactly", "GPUs", COSTS[0][1], ENERGY, NEXT)


def compared(plans: Sequence[Plan], answers: Sequence[str], names: Sequence[str] = ()) -> Section:
    """The answer of each model in a line, and the models as columns of a table, which a page has
    room for; ``names`` in their place.
    """
    table = compared_table(plans)
    models, *across = zip(*table.rows, strict=True)
    models = tuple(names) or models
    rows = tuple(
        (name, *cells)
        for name, cells in zip(table.header[1:], across, strict=True)
        if set(cells) != {ABSENT}
    )
    caption = "The plans side by side" if names else table.caption
    beside = Table(caption=caption, header=("", *models), rows=rows, note=table.note)
    return section(
        "answer",
        "Plans compared" if names else "Models compared",
        Facts(tuple(zip(models, answers, strict=True))),
        beside,
    )


def compared_table(plans: Sequence[Plan], *, short: bool = False) -> Table:
    """One row for each model; a way of serving has a column where any of the models has a price for
    it. ``short`` leaves these out.
    """
    costs = [yearly(plan) for plan in plans]
    shown = [
        (way, title) for way, title in COSTS if any(_usd(cost, way) != ABSENT for cost in costs)
    ]
    header = (*HEADER, *(title for _, title in shown), *((CHEAPEST,) if len(shown) > 1 else ()))
    rows = tuple(compared_row(plan, tuple(way for way, _ in shown)) for plan in plans)
    has_judged = any(_judged(plan) for plan in plans)
    if has_judged:
        ways = map(owned, costs)
        energy = (
            ABSENT if way is None or way.energy is None else whole(way.energy.kwh_per_year)
            for way in ways
        )
        header = (*header, ENERGY, NEXT)
        rows = tuple(
            (*row, kwh, _judged(plan) or ABSENT)
            for row, plan, kwh in zip(rows, plans, energy, strict=True)
        )
    note = (
        PEAK
        if all(plan.choice is None or plan.choice.at_peak is not None for plan in plans)
        else LIMIT
    )
    note, caption = (
        note if short else f"{note}\n{QUALITY}",
        "What the loss buys" if has_judged else "The same question for each model",
    )
    table = Table(caption=caption, header=header, rows=rows, spare=SPARED, note=note)
    return (
        table.without({name for name in header if name not in (BOUGHT if has_judged else SHORT)})
        if short
        else table
    )


def compared_row(plan: Plan, shown: Sequence[Where]) -> tuple[str, ...]:
    """One model: what it takes, how fast it is, and what each of these ways costs."""
    model, choice, score = plan.scenario.model, plan.choice, find_score(plan.scenario.model)
    quality = ABSENT if score is None else f"{score.score:.1f}"
    more = len(shown) + (len(shown) > 1)
    if choice is None:
        return (model, quality, "none meets the limits", *([ABSENT] * (len(HEADER) - 3 + more)))
    cost = yearly(plan)
    least, at = cheapest(cost), choice.at_peak or choice
    return (
        *(model, quality, deployment(choice)),
        *map(
            number, (choice.requests_per_second_per_instance, choice.requests_per_second_per_8_gpus)
        ),
        *(systems(choice), number(choice.systems_exact, 4), f"{choice.gpus:,}"),
        *map(number, (at.ttft_ms.mean, at.ttft_ms.p95, at.tpot_ms.mean, at.e2e_ms.mean)),
        *(_usd(cost, way) for way in shown),
        *((ABSENT if least is None else NAMES[least.where],) if len(shown) > 1 else ()),
    )


def _judged(plan: Plan) -> str:
    """State what a checkpoint that ``compress`` made has lost; "" for every other model."""
    return next((quality_text(note) for note in plan.notes if isinstance(note, Judged)), "")


def _usd(cost: YearlyCost | None, where: Where) -> str:
    """USD a year of one way; absent where it was not requested or a price is not known."""
    way = None if cost is None else cost.way(where)
    return ABSENT if way is None else usd(way.total_usd_per_year)


TITLE = "Measured beside predicted"
READINGS: tuple[tuple[str, Callable[[Candidate], str]], ...] = (
    ("deployment", deployment),
    ("load", lambda c: load_text(c.load)),
    ("requests/s per instance", lambda c: number(c.requests_per_second_per_instance)),
    ("requests/s per 8 GPUs", lambda c: number(c.requests_per_second_per_8_gpus)),
    ("systems exactly", lambda c: number(c.systems_exact, 4)),
    ("systems", lambda c: str(c.systems)),
    ("TTFT mean, ms", lambda c: number(c.ttft_ms.mean)),
    ("TTFT p95, ms", lambda c: number(c.ttft_ms.p95)),
    ("E2E mean, ms", lambda c: number(c.e2e_ms.mean)),
)
FAMILIES = ("nim", "tensorrt-llm", "vllm", "sglang")


def beside(plan: Plan) -> Section:
    """The section; empty where nothing was measured."""
    measured = plan.measured
    if measured is None:
        return section("measured", TITLE)
    best = measured.plan.choice
    if best is None:
        reasons = "; ".join(
            dict.fromkeys(reason_text(rejected.reason) for rejected in measured.plan.rejected)
        )
        return section(
            "measured", TITLE, Text(f"No measured point is inside the limits: {reasons}.")
        )
    alike, chosen = _twin(measured.predicted, best), _twin(plan.candidates, best)
    deciding = ("predicted, decides", chosen, plan if chosen == plan.choice else None)
    columns = (("measured", best, measured.plan), ("predicted, same loop", alike, None), deciding)
    filled = [
        (name, candidate, priced) for name, candidate, priced in columns if candidate is not None
    ]
    return section(
        "measured",
        TITLE,
        _table(filled),
        Text(_difference(best, alike, chosen)),
        _cost(yearly(measured.plan)),
    )


def _table(columns: Sequence[tuple[str, Candidate, Plan | None]]) -> Table:
    rows = [
        (name, *(read(candidate) or ABSENT for _, candidate, _ in columns))
        for name, read in READINGS
    ]
    costs = [None if priced is None else owned(yearly(priced)) for _, _, priced in columns]
    rows.append(
        (
            "USD a year, owned",
            *(ABSENT if way is None else usd(way.total_usd_per_year) for way in costs),
        )
    )
    rows.append(
        (
            "USD per 1,000 requests",
            *(ABSENT if way is None else usd(way.usd_per_1000_requests) for way in costs),
        )
    )
    filled = tuple(row for row in rows if set(row[1:]) != {ABSENT})
    caption = "The same deployment, measured and predicted"
    return Table(caption=caption, header=("", *(name for name, _, _ in columns)), rows=filled)


def measured_text(plan: Plan) -> str:
    """The measured answer in one line; "" where nothing was measured."""
    if plan.measured is None:
        return ""
    best = plan.measured.plan.choice
    if best is None:
        return "no measured point is inside the limits"
    alike, chosen = _twin(plan.measured.predicted, best), _twin(plan.candidates, best)
    carries = "" if chosen is None else f"; the prediction carries {_much(chosen, best)}"
    if alike is not None:
        carries = f"; predicted in the same closed loop, it carries {_much(alike, best)}"
    return (
        f"{bought(best)} by the points of"
        f" {PurePath(plan.measured.plan.provenance.benchmarks).name}{carries}"
    )


def _much(twin: Candidate, best: Candidate) -> str:
    """State how much more or less a prediction carries than was measured."""
    change = twin.requests_per_second_per_instance / best.requests_per_second_per_instance - 1
    return f"{percent(abs(change))} {'more' if change >= 0 else 'less'} per instance"


def _difference(best: Candidate, alike: Candidate | None, chosen: Candidate | None) -> str:
    twin = alike or chosen
    if twin is None:
        return "The measured deployment is not among the predicted ones."
    much = f"{_much(twin, best)} than was measured at the best load that was tried"
    if alike is None:
        return f"The prediction carries {much}."
    return (
        f"The prediction of the benchmark's closed loop carries {much}; the open loop, in which"
        " requests do not wait for each other, decides the plan."
    )


def _cost(cost: YearlyCost | None) -> Text | None:
    if cost is None:
        return None
    way = owned(cost)
    if way is None:
        missing = next(
            (way_cost.reason for way_cost in cost.ways if way_cost.where == "on-prem"), None
        )
        return (
            None
            if missing is None
            else Text(f"What the measured answer costs is not known: {no_cost_text(missing)}.")
        )
    per_thousand = (
        ""
        if way.usd_per_1000_requests is None
        else f", {usd(way.usd_per_1000_requests)} per 1,000 requests"
    )
    exact = (
        ""
        if way.usd_per_1000_requests_exact is None
        else f", {usd(way.usd_per_1000_requests_exact)} per 1,000 requests"
    )
    api = cost.way("api")
    asks = None if api is None else api.usd_per_1000_requests
    api_words = "" if asks is None else f" An API asks {usd(asks)} per 1,000 requests."
    course = "".join(
        f" {course_way_text(note)}" for note in cost.notes if note.code == "course-way"
    )
    return Text(
        f"The measured answer, owned, costs {usd(way.total_usd_per_year)} USD a year for"
        f" {way.systems} systems{per_thousand}; for exactly {number(way.systems_exact, 4)} systems"
        f" {usd(way.usd_per_year_exact)}{exact}.{api_words}{course}"
    )


def _twin(candidates: Sequence[Candidate], best: Candidate) -> Candidate | None:
    """The predicted candidate of the measured GPU, precision and degrees; the one of the same
    engine first.
    """
    same = [c for c in candidates if _shape(c) == _shape(best)]
    return min(same, key=lambda c: (_family(c) != _family(best), c.systems_exact), default=None)


def _shape(candidate: Candidate) -> tuple[tuple[object, ...], ...]:
    return tuple(
        (pool.gpu, pool.precision, pool.tp, pool.pp, pool.dp, pool.ep) for pool in candidate.pools
    )


def _family(candidate: Candidate) -> str:
    """The engine as the catalog calls it: "nim (tensorrt-llm)" is nim."""
    engine = candidate.pools[0].engine.lower()
    return next((family for family in FAMILIES if family in engine), engine)
