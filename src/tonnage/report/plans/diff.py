"""Two plans side by side: different inputs, and how the answers differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import UseCases
from tonnage.report.document import Document, Table, document, items, section
from tonnage.report.numbers import ABSENT, dollars, number, percent
from tonnage.report.plans.confidence import chance_text
from tonnage.report.plans.cost import TITLES, price_name, priced, yearly
from tonnage.report.plans.deployments import deployments, systems
from tonnage.report.plans.question import bound_text, demand_text, used_text
from tonnage.report.plans.use_cases import pool_text, standbys_text, systems_text, use_text
from tonnage.spec.prices import amount
from tonnage.spec.scenario import flat, leaves, to_document

SAME = "The plans say the same: no part of the question, of the answer or of its prices differs."


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that two plans say differently."""

    # "asked" (a key of the scenario), "question" (as it was understood), "answer", "cost", "prices"
    # or "made with"
    part: str
    what: str
    # first, second: what each says, or "–"
    first: str
    second: str
    change: str = ""  # of numbers, the second over the first less 1, in words; "" elsewhere
    # whose plan by itself says it; "" of a single plan, and of the fleet of several use cases (part
    # "fleet")
    use_case: str = ""


def differences(first: Plan, second: Plan) -> tuple[Difference, ...]:
    """The differences that a reader would see, in the order of the report."""
    parts = (
        ("question", _question),
        ("answer", _answer),
        ("cost", _cost),
        ("prices", _prices),
        ("made with", _made),
    )
    both = first.asked is not None and second.asked is not None
    differences = (
        tuple(_differing("asked", _scenario_values(first), _scenario_values(second)))
        if both
        else ()
    )
    shown_pairs = {(difference.first, difference.second) for difference in differences}
    rest = (
        difference
        for part, read in parts
        for difference in _differing(part, read(first), read(second))
    )
    return (
        *differences,
        *(
            difference
            for difference in rest
            if difference.part != "question"
            or (difference.first, difference.second) not in shown_pairs
        ),
    )


def use_case_differences(first: UseCases, second: UseCases) -> tuple[Difference, ...]:
    """The differences of a fleet of several use cases, and then of each use case that both have."""
    plans, second_plans = (
        dict(zip(use_cases.names, use_cases.plans, strict=True)) for use_cases in (first, second)
    )
    alone = (
        replace(difference, use_case=name)
        for name, plan in plans.items()
        if name in second_plans
        for difference in differences(plan, second_plans[name])
    )
    return (*_differing("fleet", _fleet(first), _fleet(second)), *alone)


def diff_text(differences: Sequence[Difference], names: tuple[str, str]) -> Document:
    """The differences as a table for each part, of several use cases one after the other."""
    if not differences:
        return document(section("diff", "", items((SAME,))))
    sections = []
    for use_case, part in dict.fromkeys(
        (difference.use_case, difference.part) for difference in differences
    ):
        rows = tuple(
            (difference.what, difference.first, difference.second, difference.change)
            for difference in differences
            if (difference.use_case, difference.part) == (use_case, part)
        )
        table = Table(header=(part, *names, "change"), rows=rows, spare=("change",))
        title = f"{use_case}, by itself: {part}" if use_case else part.capitalize()
        sections.append(section(part, title, table))
    return Document(sections=tuple(sections))


def diff_json(differences: Sequence[Difference]) -> dict[str, Any]:
    """The differences as one JSON object; each names its use case where it has one."""
    keys = ("part", "what", "first", "second", "change")
    rows = [
        {key: getattr(difference, key) for key in keys}
        | ({"use_case": difference.use_case} if difference.use_case else {})
        for difference in differences
    ]
    return {"schema": "tonnage-diff/1", "differences": rows}


# what a plan says, by what it is: the words, and the number behind them where there is one
Values = Mapping[str, tuple[str, float | None]]


def _differing(part: str, first: Values, second: Values) -> Iterator[Difference]:
    for what in dict.fromkeys((*first, *second)):
        first_value, second_value = (
            first.get(what, (ABSENT, None)),
            second.get(what, (ABSENT, None)),
        )
        if first_value[0] != second_value[0]:
            comparable = first_value[1] and second_value[1] is not None
            change = (
                f"{100 * ((second_value[1] or 0.0) / (first_value[1] or 1.0) - 1):+.3g}%".replace(
                    "-", "−"
                )
                if comparable
                else ""
            )
            yield Difference(
                part=part,
                what=what,
                first=first_value[0] or ABSENT,
                second=second_value[0] or ABSENT,
                change=change,
            )


def _scenario_values(plan: Plan) -> Values:
    """Every key of the scenario as it was written, by its place in a file; of prices in the
    scenario each one by itself.
    """
    leaf_values = {} if plan.asked is None else flat(to_document(plan.asked))
    return {
        key: _written(value)
        for leaf in leaves()
        for key, value in _parts(leaf.key, leaf_values.get(leaf.name))
    }


def _parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _parts(f"{key}.{name}", part)
    elif value is not None:
        yield key, value


def _written(value: Any) -> tuple[str, float | None]:
    """A value of a scenario in words, and the number that it is, if it is one."""
    if isinstance(value, bool):
        return "yes" if value else "no", None
    if isinstance(value, list):
        return ",".join(_written(element)[0] for element in value), None
    text = value if isinstance(value, str) else f"{value:.15g}"
    try:
        return text, float(text)
    except ValueError:
        return text, None


def _question(plan: Plan) -> Values:
    understood, confidence = plan.scenario, plan.scenario.confidence
    texts = {
        "model": understood.model,
        "prompt tokens": understood.isl,
        "output tokens": understood.osl,
        "demand": demand_text(plan.demand),
        "limits": ", ".join(map(str, understood.limits)) or "none",
        "GPUs": ", ".join(understood.gpus),
        "formats": ", ".join(understood.precisions),
        "engines": ", ".join(understood.engines),
        "TP": ", ".join(map(str, understood.tps)),
        "mode": understood.mode or ABSENT,
        "load": understood.load,
        "router": understood.router or ABSENT,
        "prompts share": understood.shares or "nothing",
        "confidence": ABSENT if confidence is None else percent(confidence),
        "spare systems": str(understood.spare_systems),
        "speculation": understood.speculation or "none",
        "seed": str(understood.seed),
    }
    return {name: (text, None) for name, text in texts.items()}


def _fleet(use_cases: UseCases) -> Values:
    best = use_cases.choice
    values: dict[str, tuple[str, float | None]] = {
        "use cases": (", ".join(use_cases.names), None),
        "chosen": (use_cases.chosen or "nothing", None),
    }
    if best is None:
        return values
    limits = (
        f"{case.name}: {use_text(use)}"
        for pool in best.pools
        for case in pool.cases
        for use in case.limits
    )
    return {
        **values,
        "systems": (systems_text(best), None),
        "GPUs": (f"{best.gpus:,}", float(best.gpus)),
        "GPUs in use": (f"{best.gpus_in_use:,}", float(best.gpus_in_use)),
        **{
            f"pool of {' and '.join(case.name for case in pool.cases)}": (pool_text(pool), None)
            for pool in best.pools
        },
        "standby": (standbys_text(best) or "none", None),
        "limits": ("; ".join(limits), None),
    }


def _answer(plan: Plan) -> Values:
    best = plan.choice
    if best is None:
        return {"systems": ("no deployment meets the limits", None)}
    peak = best.at_peak or best
    latencies = {
        f"{metric.upper()} {statistic} ms": getattr(getattr(peak, f"{metric}_ms"), statistic)
        for metric in ("ttft", "tpot", "e2e")
        for statistic in ("mean", "p95")
    }
    values: dict[str, tuple[str, float | None]] = {
        "systems": (systems(best), float(best.systems)),
        "systems exactly": (number(best.systems_exact), best.systems_exact),
        "deployment": (deployments(best), None),
        "requests/s of an instance": (
            number(best.requests_per_second_per_instance),
            best.requests_per_second_per_instance,
        ),
        "bound by": (bound_text(best.binds), None),
        "P(meets)": (
            ABSENT if best.confidence is None else chance_text(best.confidence.meets),
            None,
        ),
        "used at the peak": (used_text(best.utilisation), best.utilisation),
        "candidates": (str(len(plan.candidates)), float(len(plan.candidates))),
    }
    shares = () if best.at_peak is None else best.at_peak.attained or ()
    met = {f"met, {share.limits}": (f"{100 * share.share:.3g}%", share.share) for share in shares}
    drawn = (
        {}
        if best.power is None
        else {
            "W a GPU at the peak": best.power.watts,
            "J an output token": best.power.joules_per_output_token,
        }
    )
    return {
        **values,
        **met,
        **{name: (number(value), value) for name, value in (latencies | drawn).items()},
    }


def _cost(plan: Plan) -> Values:
    ways = {TITLES[way.where]: way.total_usd_per_year for way in priced(yearly(plan))}
    usd = {f"{name}, USD a year": (dollars(value), value) for name, value in ways.items()}
    owned = None if (cost := yearly(plan)) is None else cost.way("on-prem")
    if owned is None or owned.energy is None:
        return usd
    energy = {
        "kW of the systems at the peak": owned.energy.peak_kw,
        "kWh a year": owned.energy.kwh_per_year,
    }
    energy["kg CO2 a year"] = owned.energy.kg_co2_per_year
    return usd | {
        name: (number(value), value) for name, value in energy.items() if value is not None
    }


def _prices(plan: Plan) -> Values:
    figures = () if (cost := yearly(plan)) is None else cost.figures
    return {
        price_name(figure.path): (f"{amount(figure)} ({figure.date})", figure.value)
        for figure in figures
    }


def _made(plan: Plan) -> Values:
    source = plan.provenance
    texts = {
        "Tonnage": source.tonnage,
        "calibration": "" if source.calibration is None else source.calibration.data,
        "step times": source.step_model,
        "measured points": source.benchmarks,
        "date": source.date,
        **{f"coefficients of {engine}": words for engine, words in source.coefficients.items()},
    }
    return {name: (text, None) for name, text in texts.items()}
