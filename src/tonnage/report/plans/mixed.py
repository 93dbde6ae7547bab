"""The fleet of several kinds of a plan: what to add to old systems, what these are worth, and when
the next ones are bought; or a purchase of two kinds next to that of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.plan.limit import Limit
from tonnage.plan.mixed import Compared, Group, Mixed, Named, Purchase, Retirement, WhyNotAdded
from tonnage.plan.plan import Plan
from tonnage.report.document import Block, Section, Table, Text, section
from tonnage.report.numbers import ABSENT, dollars, number, percent, sentence_of
from tonnage.report.plans.cost import NAMES
from tonnage.report.plans.deployments import name_of

WHY_NOT: dict[WhyNotAdded, str] = {
    "traffic": "not known: unlike instances are simulated for drawn requests that share nothing",
    "ranks": "not known: unlike instances with data-parallel attention ranks are not simulated",
    "pools": "not known: prefill and decode apart are not simulated on systems of several kinds",
    "standby": "not known: standby systems for failures are counted for a fleet of one kind alone",
    "limits": "nothing helps: no deployment on the systems that may be added meets the limits",
    "many": "nothing helps: no number of systems that is simulated makes the fleet carry the load",
    "price": "not known: the price of a system is missing; give it as --price systems.NAME=USD",
    "kinds": "nothing to combine: no two kinds of system meet the limits, together or apart",
    "dearer": "nothing gained",
}

SHOWN = 8  # purchases that a line names


def systems_text(counts: Sequence[tuple[int, str]]) -> str:
    """Such as "3 × dgx-h100 + 1 × dgx-b300"."""
    return " + ".join(f"{count:,} × {system}" for count, system in counts)


def add_text(mixed: Mixed) -> str:
    """What to add, what then serves which share of the load, its cost, and the other kinds that
    would do.
    """
    if mixed.reason is not None:
        return WHY_NOT[mixed.reason]
    shares = ", ".join(f"{group.system} {percent(group.share)}" for group in mixed.groups)
    fleet = systems_text([(group.owned + group.added, group.system) for group in mixed.groups])
    carries = (
        "carries" if sum(group.owned + group.added for group in mixed.groups) == 1 else "carry"
    )
    together = f"{fleet} {carries} the load" + (
        f" together, of the requests {shares}" if len(mixed.groups) > 1 else ""
    )
    if not mixed.added:
        return f"nothing; {together}"
    bought = " + ".join(
        f"{group.added:,} × {group.system} ({name_of(group.candidate.identity)})"
        for group in mixed.groups
        if group.added
    )
    usd = (
        ""
        if mixed.usd_per_year is None
        else f"; {dollars(mixed.usd_per_year)} USD a year before electricity"
    )
    return f"{bought}: {together}{usd}{_instead_text(mixed)}"


def _instead_text(mixed: Mixed) -> str:
    kinds = (
        f"{kind.systems:,} × {kind.system}"
        + ("" if kind.usd_per_year is None else f" for {dollars(kind.usd_per_year)}")
        for kind in mixed.instead
    )
    text = ", ".join(kinds)
    return f"; or {text}" if text else ""


def retire_text(mixed: Mixed) -> str:
    """State the upkeep of each kind that exists, and the cost of the systems that would do its
    work.
    """
    return "; ".join(map(_retirement_text, mixed.retirements))


def _retirement_text(retirement: Retirement) -> str:
    systems = f"{retirement.systems:,} × {retirement.system}"
    cost = "cost" if retirement.systems > 1 else "costs"
    instead = (
        f"{retirement.instead_systems:,} × {retirement.instead_system} more would do their work"
        if retirement.instead_systems
        else "the others do their work"
    )
    upkeep, usd = retirement.upkeep_usd_per_year, retirement.instead_usd_per_year
    if upkeep is None or usd is None:
        return f"{systems}: {instead}; what either costs is not known"
    verdict = "retire them" if retirement.worth else "keep them"
    return (
        f"{verdict}: {systems} {cost} {dollars(upkeep)} USD a year in hosting, licences and "
        f"electricity; {instead} for {dollars(usd)}, purchase included"
    )


def purchases_text(mixed: Mixed) -> str:
    """What is bought today and in which months, such as "2 × dgx-b300 today, 1 in month 4, …; 12
    within 36 months".
    """
    if not mixed.months:
        return ""
    if not mixed.purchases:
        return f"nothing within {mixed.months} months"
    steps = [_step(purchase) for purchase in mixed.purchases[:SHOWN]]
    more = ", …" if len(mixed.purchases) > SHOWN else ""
    whole = sum(purchase.systems for purchase in mixed.purchases)
    return f"{mixed.buys}: {', '.join(steps)}{more}; {whole:,} within {mixed.months} months"


def _step(purchase: Purchase) -> str:
    return (
        f"{purchase.systems:,} today"
        if purchase.month == 0
        else f"{purchase.systems:,} in month {purchase.month}"
    )


def mix_text(mixed: Mixed) -> str:
    """A purchase of two kinds and what it saves, or why there is none."""
    if mixed.compared is None:
        return WHY_NOT[mixed.reason or "kinds"]
    single, mix = mixed.compared.single, mixed.compared.mix
    alone = systems_text([(count, name) for name, count in single.systems.items()])
    share = percent(abs(mixed.compared.saved_usd_per_year) / single.usd_per_year)
    if mixed.reason is not None:
        verb = "more" if mixed.compared.saved_usd_per_year < 0 else "less, which is too little,"
        costs = f"cost {dollars(mix.usd_per_year)} USD a year with electricity, {share} {verb}"
        systems = systems_text([(count, name) for name, count in mix.systems.items()])
        split = f", split at {mix.over_tokens:,} tokens," if mix.over_tokens is not None else ""
        return (
            f"{WHY_NOT[mixed.reason]}: the cheapest mix, {systems}{split} {costs} than"
            f" {alone} ({dollars(single.usd_per_year)})"
        )
    saves = (
        f"{dollars(mix.usd_per_year)} USD a year with electricity, {share}"
        f" ({dollars(mixed.compared.saved_usd_per_year)}) less than {alone}"
        f"{_cheaper_text(mixed.compared)}"
    )
    short, long = (f"{group.added:,} × {group.system}" for group in mixed.groups)
    if mixed.over_tokens is None:
        shares = ", ".join(f"{group.system} {percent(group.share)}" for group in mixed.groups)
        return f"{short} + {long} behind one router, of the requests {shares}: {saves}"
    return (
        f"prompts up to {mixed.over_tokens:,} tokens ({percent(mixed.groups[0].share)} of the"
        f" requests) on {short}, longer ones on {long}: {saves}"
    )


def _cheaper_text(compared: Compared) -> str:
    """The line of the answer that costs still less; "" where none does."""
    cheaper = compared.cheaper
    if cheaper is None:
        return ""
    systems = systems_text([(count, name) for name, count in cheaper.systems.items()])
    names: dict[Named, str] = {name: f"{text} (Cost)" for name, text in NAMES.items()}
    names["pools_instead"] = f"{systems} with prefill and decode apart (Other way)"
    names["narrow_cache"] = f"{systems} with the KV cache in FP8"
    share = percent(1 - cheaper.usd_per_year / compared.mix.usd_per_year)
    return f"; cheaper still, by {share}: {names[cheaper.named]} at {dollars(cheaper.usd_per_year)}"


def mixed_rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The lines of the first screen."""
    mixed = plan.mixed
    if mixed is None:
        return ()
    if plan.existing is None:
        return (("Mix", mix_text(mixed)),)
    return (
        ("Add", add_text(mixed)),
        ("Old systems", retire_text(mixed)),
        ("Buy", purchases_text(mixed)),
    )


def mixed_section(plan: Plan) -> Section:
    """A row for each kind of system, and what is bought when; empty where nothing is added to what
    exists.
    """
    mixed, blocks = plan.mixed, list[Block]()
    if mixed is not None and plan.existing is None:
        return section("mixed", "A purchase of two kinds", *_purchase_blocks(plan, mixed))
    if mixed is not None and mixed.reason is not None:
        blocks = [Text(sentence_of(WHY_NOT[mixed.reason]))]
    elif mixed is not None:
        limits = plan.scenario.limits_that_count
        header = (
            *(
                "systems",
                "exist",
                "to add",
                "deployment",
                "instances",
                "share",
                "carry, requests/s",
            ),
            *map(str, limits),
        )
        rows = tuple(_group_row(group, limits) for group in mixed.groups)
        blocks = [
            Table(
                caption="The whole fleet at the peak, by the prediction as it is",
                header=header,
                rows=rows,
            ),
            Text(_routed(mixed)),
        ]
        blocks += [Text(sentence_of(text)) for text in (retire_text(mixed),) if text]
        if mixed.purchases:
            steps = tuple(
                (f"{step.month}", f"{step.systems:,}", number(step.requests_per_second))
                for step in mixed.purchases
            )
            header = ("month", f"{mixed.buys} to buy", "requests/s then")
            blocks.append(
                Table(caption=f"Purchases over {mixed.months} months", header=header, rows=steps)
            )
    return section("mixed", "The whole fleet, old and new", *blocks)


def _purchase_blocks(plan: Plan, mixed: Mixed) -> list[Block]:
    """What a purchase of two kinds saves, and a row for each kind or pool."""
    blocks: list[Block] = [Text(sentence_of(mix_text(mixed)))]
    if not mixed.groups:
        return blocks
    limits = plan.scenario.limits_that_count
    first, names = "systems", [group.system for group in mixed.groups]
    if mixed.over_tokens is not None:
        first = "prompts"
        names = [f"{side} {mixed.over_tokens:,} tokens" for side in ("up to", "over")]
    of_all = ("deployment", "instances", "share", "carry, requests/s", "USD a year")
    header = (first, "to buy", *of_all)
    rows = []
    for name, group in zip(names, mixed.groups, strict=True):
        _, _, added, *rest = _group_row(group, limits)
        usd = ABSENT if group.usd_per_year is None else dollars(group.usd_per_year)
        rows.append((name, f"{added} × {group.system}", *rest[:4], usd, *rest[4:]))
    caption = "The mix at the peak, by the prediction as it is"
    blocks.append(Table(caption=caption, header=(*header, *map(str, limits)), rows=tuple(rows)))
    split = (
        "Each pool holds every limit for its own requests. The router needs the length of a"
        " prompt in tokens; a router that sees bytes alone needs those of a token."
    )
    blocks.append(Text(_routed(mixed) if mixed.over_tokens is None else split))
    return blocks


def _group_row(group: Group, limits: Sequence[Limit]) -> tuple[str, ...]:
    peak = group.candidate.at_peak
    values = (
        None
        if peak is None or limit.share is not None
        else getattr(peak, f"{limit.metric}_ms").value(limit.statistic)
        for limit in limits
    )
    return (
        group.system,
        f"{group.owned:,}",
        f"{group.added:,}",
        name_of(group.candidate.identity),
        f"{group.candidate.instances:,}",
        percent(group.share),
        number(group.requests_per_second),
        *(ABSENT if value is None else f"{number(value)} ms" for value in values),
    )


def _routed(mixed: Mixed) -> str:
    weights = ", ".join(
        f"{number(group.weight)} for an instance on {group.system}" for group in mixed.groups
    )
    run = mixed.run
    simulated = (
        ""
        if run is None
        else f" {run.simulated_instances:,} of {run.instances:,} instances were simulated together."
    )
    carries = "its weights are the requests/s that an instance carries"
    return f"The router is {mixed.router}; {carries}: {weights}.{simulated}"
