"""What a plan costs as text: the four ways side by side, what they consist of, where the cheaper changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.cli.table import number, table, wrapped
from tonnage.report.wording_cost import break_even_text, cost_note_texts, no_cost_text
from tonnage.spec.prices import amount

if TYPE_CHECKING:
    from tonnage.plan.cost import JobCost, WayCost, YearlyCost
    from tonnage.plan.cost_note import NoCost

NAMES = {
    "on-prem": "On-prem, owned for the peak",
    "cloud": "Cloud by the hour",
    "hybrid": "Owned base, cloud burst",
    "api": "API by tokens",
}


def show_cost(comparison: YearlyCost) -> str:
    """The whole comparison as lines of text."""
    parts = [_ways(comparison), _parts(comparison), _break_evens(comparison), _prices(comparison)]
    parts.append("\n".join(wrapped(f"· {text}") for note in comparison.notes for text in cost_note_texts(note)))
    return "\n\n".join(part for part in parts if part)


def _ways(comparison: YearlyCost) -> str:
    rows = []
    for option in comparison.ways:
        mark = " ← cheapest" if option.where == comparison.cheapest else ""
        rows.append(
            (
                NAMES[option.where] + mark,
                usd(option.usd_per_year),
                usd(option.capex_usd_per_year) if option.usd_per_year is not None else "–",
                usd(option.opex_usd_per_year) if option.usd_per_year is not None else "–",
                money(option.usd_per_1000_requests),
                money(option.usd_per_million_input_tokens),
                money(option.usd_per_million_output_tokens),
                _holds(option),
            )
        )
    header = ("Cost", "USD a year", "written off", "paid", "per 1,000 requests", "per M tokens in", "per M out", "what it is")
    lines = [table(header, rows)]
    exact = comparison.way("on-prem")
    if exact is not None and exact.usd_per_year_exact is not None and exact.systems_exact is not None:
        each = "" if exact.usd_per_1000_requests_exact is None else f", {money(exact.usd_per_1000_requests_exact)} per 1,000 requests"
        lines.append(f"On-prem for {number(exact.systems_exact, 4)} systems exactly: {usd(exact.usd_per_year_exact)} USD a year{each}")
    lines += [
        wrapped(f"{NAMES[way.where]}: no cost, {no_cost_text(way.reason)}", "", "  ") for way in comparison.ways if way.reason is not None
    ]
    return "\n".join(lines)


def usd(value: float | None) -> str:
    """USD to three digits above a thousand, as "572k", "1.79M"; whole below."""
    if value is None:
        return "–"
    if abs(value) >= 999_500:
        return f"{number(round(value / 1e6, 2))}M"
    return f"{number(value / 1e3)}k" if abs(value) >= 1_000 else f"{value:,.0f}"


def money(value: float | None) -> str:
    """USD and cents; three digits below a cent's reach."""
    if value is None:
        return "–"
    return f"{value:,.2f}" if value >= 0.1 or not value else number(value)


def _holds(option: WayCost) -> str:
    """What is owned and what is rented, in a few words."""
    owned = f"{option.systems} system{'s' if option.systems > 1 else ''}" if option.systems else ""
    rented = (
        f"{option.cloud_gpu_hours_per_year:,.0f} GPU-hours, up to {option.cloud_gpus_at_peak} GPUs"
        if option.cloud_gpu_hours_per_year
        else ""
    )
    between = ""
    if option.usd_per_year_low is not None and option.usd_per_year_high is not None and option.usd_per_year_low < option.usd_per_year_high:
        between = f"({usd(option.usd_per_year_low)} to {usd(option.usd_per_year_high)})"
    return " ".join(text for text in (" + ".join(filter(None, (owned, rented))), between) if text)


def _parts(comparison: YearlyCost) -> str:
    rows = [
        (option.where, part.name, part.kind, usd(part.usd_per_year), part.how)
        for option in comparison.ways
        for part in option.parts
        if not _is_on_prem_again(option, comparison.way("on-prem"))
    ]
    return table(("Parts", "of", "kind", "USD a year", "how"), rows) if rows else ""


def _is_on_prem_again(option: WayCost, on_prem: WayCost | None) -> bool:
    return on_prem is not None and option.where == "hybrid" and option.parts == on_prem.parts


def _break_evens(comparison: YearlyCost) -> str:
    lines = []
    for each in comparison.break_evens:
        lines.append(wrapped(f"{' or '.join(each.between)}: {break_even_text(each)}"))
        if each.bought_fleet_requests_per_year is not None:
            lines.append(
                wrapped(
                    f"the {_owned_systems(comparison)} systems of this plan, once bought, cost what the API would ask for "
                    f"{each.bought_fleet_requests_per_year:,.0f} requests a year",
                    indent="    ",
                )
            )
    volume = comparison.traffic.requests_per_year
    asked = "" if volume is None else f" (this plan: {volume:,.0f} requests a year)"
    return "\n".join([f"Break-even{asked}", *lines]) if lines else ""


def _owned_systems(comparison: YearlyCost) -> int:
    owned = comparison.way("on-prem")
    return 0 if owned is None else owned.systems


def _prices(comparison: YearlyCost) -> str:
    figures = comparison.figures
    if not figures:
        return ""
    rows = [(figure.path, amount(figure), figure.date or "–", figure.source) for figure in figures]
    lines = [table(("Prices", "value", "of", "source"), rows)]
    if comparison.stale_prices:
        old = ", ".join(figure.path for figure in comparison.stale_prices)
        lines.append(wrapped(f"! older than a year, set your own with --price or --prices: {old}", indent=""))
    return "\n".join(lines)


def show_job(job: JobCost) -> str:
    """What a job costs, as lines of text."""
    owned = job.owned
    lines = [f"Cost of the job: {job.requests:,.0f} requests within {number(job.hours)} h"]
    if owned.usd_per_year is None:
        lines.append(f"  Owned       no cost, {_missing(owned.reason)}")
    else:
        power = f", and {money(job.power_usd_per_job)} USD of electricity a job (estimate)" if job.power_usd_per_job else ""
        lines.append(f"  Owned       {usd(owned.usd_per_year)} USD a year for {owned.systems} × {owned.gpus // owned.systems} GPUs{power}")
    for name, each, how in (
        ("Cloud", job.cloud_usd_per_job, job.cloud_how or _missing(job.cloud_reason)),
        ("API", job.api_usd_per_job, job.api_how or _missing(job.api_reason)),
    ):
        lines.append(f"  {name:11} {money(each)} USD a job  ({how})" if each is not None else f"  {name:11} no cost, {how}")
    for name, jobs in (("the cloud", job.jobs_per_year_against_cloud), ("the API", job.jobs_per_year_against_api)):
        if jobs is not None:
            lines.append(
                f"  Owning is cheaper than {name} from {number(jobs)} jobs a year on; a year has time for {number(job.most_jobs_per_year)}"
            )
    return "\n".join([lines[0], *(wrapped(line.strip()) for line in lines[1:])])


def _missing(reason: NoCost | None) -> str:
    return "" if reason is None else no_cost_text(reason)
