"""Prices and what is known of them in words: names in place of keys, missing and old prices, and the notes of a cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from tonnage.plan import note as notes
from tonnage.plan.cost import HOURS_PER_YEAR
from tonnage.report.document import Table
from tonnage.report.numbers import ABSENT, number, sentence_of, whole
from tonnage.spec.prices import amount

if TYPE_CHECKING:
    from tonnage.spec.prices import Figure

THE = {"on-prem": "on-prem", "cloud": "the cloud", "hybrid": "the hybrid", "api": "the API", "hybrid-api": "the hybrid with an API"}
"""What a way is called in the middle of a sentence."""
NAMES = {
    "depreciation_years": "Years over which systems are written off",
    "hosting_usd_per_kw_month": "Hosting, USD per kW and month",
    "hosting_usd_per_system_year": "Hosting, USD per system and year",
    "licence_usd_per_gpu_year": "Licences, USD per GPU and year",
    "licence_usd_per_gpu_hour": "Cloud licences, USD per GPU and hour",
    "power_usd_per_kwh": "Electricity, USD per kWh",
    "pue": "Power of the site over that of its machines (PUE)",
    "output_to_input_price_ratio": "Price of an output token over that of an input token",
    "server_over_gpus": "Price of a server over that of its GPUs",
    "power_in_hosting": "Whether hosting pays for the electricity",
}
"""By the key of the list that has one value for all."""
TOKENS = {"usd_per_million_input_tokens": "input tokens", "usd_per_million_output_tokens": "output tokens"}


def price_name(path: str) -> str:
    """The name of a price, with its unit; the key where it is none that is known.

    Args:
        path: where the price stands in a list, such as "cloud.h100-sxm-80gb.Civo on-demand".
    """
    if path in NAMES:
        return NAMES[path]
    kind, _, rest = path.partition(".")
    if kind == "systems" and rest:
        return f"{rest}, USD per system"
    if kind == "gpus" and rest:
        return f"{rest}, USD per GPU"
    if kind == "cloud" and "." in rest:
        gpu, _, offer = rest.partition(".")
        return f"{gpu} in the cloud, USD per GPU and hour: {offer}"
    name, _, tokens = rest.rpartition(".")
    if kind == "api" and tokens in TOKENS:
        return f"{name} through an API, USD per million {TOKENS[tokens]}"
    return path


def prices_table(figures: Sequence[Figure]) -> Table | None:
    """Every price that went into a cost: what, how much, of which day, from where, and by which key it is replaced."""
    rows = tuple((price_name(f.path), _amount(f), f.date or ABSENT, f.source, f.path) for f in figures)
    header = ("price", "value", "of", "source", "key")
    return Table(caption="Prices, with source and date", header=header, rows=rows, folded=True, spare=("key",)) if rows else None


def _amount(figure: Figure) -> str:
    return f"{amount(figure)}{', estimate' if figure.estimate else ''}"


def stale(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Prices that are older than a year, in one sentence."""
    names = "; ".join(price_name(figure.path) for figure in figures)
    return (f"Prices older than a year, better replaced by your own (--price or --prices): {names}.",) if names else ()


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
