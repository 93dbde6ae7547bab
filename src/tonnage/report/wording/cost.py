"""Costs in words: notes, prices that are missing or old, and where the cheaper way changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tonnage.plan import cost_note as notes
from tonnage.plan.traffic import HOURS_PER_YEAR
from tonnage.report.numbers import number, sentence_of, whole
from tonnage.spec.prices import amount

if TYPE_CHECKING:
    from tonnage.plan.cost import BreakEven
    from tonnage.spec.prices import Figure


THE = {"on-prem": "on-prem", "cloud": "the cloud", "hybrid": "the hybrid", "api": "the API", "hybrid-api": "the hybrid with an API"}
"""What a way is called in the middle of a sentence."""


def no_cost_text(reason: notes.NoCost) -> str:
    """Why a way has no cost, and what would give it one."""
    match reason.code:
        case "system-price":
            return f"the price of {reason.name} is not known; give it as systems.{reason.name} (USD)"
        case "cloud-price":
            return f"no cloud price of {reason.name} is known; give it as cloud.{reason.name} (USD per GPU and hour)"
        case "api-price":
            of = f" of {reason.name}" if reason.name else ""
            return f"no API price{of} is known; give it as api (USD per million tokens in and out)"
        case "only-peak":
            return "only the peak is known; give a mean or a profile to know the tokens of a year"


def stale_text(figure: Figure) -> str:
    """A price that is older than a year."""
    return f"{figure.path}: {amount(figure)} is of {figure.date}, older than a year; set your own ({figure.source})"


def break_even_text(found: BreakEven) -> str:
    """At which volumes which of two ways is the cheaper, in one clause."""
    below, above = (THE.get(way, way) for way in (found.cheaper_below, found.cheaper_above))
    up_to = found.searched_to_requests_per_year
    first, last = found.first_requests_per_year, found.last_requests_per_year
    if first is None or last is None:
        return f"{below} is cheaper at every volume up to {whole(up_to)} requests a year" if below else "they cost the same at every volume"
    if found.changes == 1:
        return f"below {whole(first)} requests a year {below} is cheaper, above it {above}"
    return (
        f"below {whole(first)} requests a year {below} is cheaper; then the cheaper one changes {found.changes} times, because systems "
        f"are whole; from {whole(last)} up to {whole(up_to)}, the largest volume compared, {above} is cheaper"
    )


def cost_note_texts(note: notes.CostNote) -> tuple[str, ...]:
    """One note, in a sentence or two."""
    match note:
        case notes.TokenPriceRatio():
            return (
                f"A cost is split over tokens as if an output token cost {amount(note.ratio)} times an input token ({note.ratio.source}).",
            )
        case notes.NoProfile():
            return (
                "No hourly profile is given: the cloud is rented for the peak all year, and an API gets the most that mean and "
                "peak allow; a profile shows what scaling by the hour saves.",
            )
        case notes.OnlyPeakKnown():
            return ("Only the peak is known: costs per request and per token need a mean or a profile.",)
        case notes.SameAs():
            return (same_as_text(note),)
        case notes.CourseWay():
            return (course_way_text(note),)
        case notes.OwnedElectricity():
            return _electricity(note)
        case notes.NotComparable():
            return (f"Not comparable: only one way has a price ({THE[note.way]}).",)
        case notes.EstimatedPrice():
            what = note.price.source.removeprefix("estimate: ")
            return (f"The price of {note.system} is an estimate, as no quotation was found: {what}.",)
        case notes.HostingLeftOut():
            return (
                f"Hosting is not in the cost of the owned systems, as the power of {note.system} is not known; give "
                "hosting_usd_per_system_year to add it.",
            )
        case _:
            assert_never(note)


def same_as_text(note: notes.SameAs) -> str:
    """Why a mixture is not shown."""
    does = "owns everything" if note.same == "on-prem" else "owns nothing"
    return sentence_of(f"{THE[note.way]} is left out: its cheapest split {does}, which is {THE[note.same]}")


def course_way_text(note: notes.CourseWay) -> str:
    """Our cost per 1,000 requests, and the course's."""
    systems = number(note.systems_exact, 4).removesuffix(".000")
    return (
        f"{note.usd_per_1000_requests:,.2f} USD per 1,000 requests is the cost of exactly {systems} systems over the "
        f"fleet's requests. NVIDIA's course divides it by what one system would carry if it were full all year ({HOURS_PER_YEAR:,} h, "
        f"{whole(note.one_system_requests_per_year)} requests): {note.course_usd_per_1000_requests:,.2f}."
    )


def _electricity(note: notes.OwnedElectricity) -> tuple[str, ...]:
    usd = "" if note.usd_per_year is None else f", {whole(note.usd_per_year)} USD"
    added = "added as power" if note.added else "not added: hosting is taken to pay for it; give power_usd_per_kwh to add it"
    first = f"Electricity of the owned systems is an estimate, {whole(note.kwh_per_year)} kWh a year{usd}; {added}."
    if note.hosting_usd_per_year is None:
        return (first,)
    return first, f"That is more than the whole hosting of {whole(note.hosting_usd_per_year)} USD, which can then hardly hold it."
