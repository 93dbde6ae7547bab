"""The fleet of a plan: autoscaling, systems that exist, growth, routers, prefix caches and recorded
sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tonnage.plan.cost import WayCost
from tonnage.plan.demand import (
    ADay,
    Demand,
    Existing,
    Growth,
    HeldSessions,
    Region,
    Regions,
    SessionTiers,
    SpeedTier,
)
from tonnage.plan.fleet import Autoscaling, AutoscalingCost, BehindRouter, OverHours, WhyNot
from tonnage.plan.limit import Limit
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import PrefixCache
from tonnage.report.document import Block, Section, Table, Text, section
from tonnage.report.numbers import (
    ABSENT,
    counted,
    dollars,
    number,
    percent,
    plain,
    sentence_of,
    span,
    usd,
    whole,
)
from tonnage.report.plans.cost import NAMES, owned_and_cheapest, yearly
from tonnage.report.plans.deployments import deployment_text, name_of
from tonnage.report.plans.question import alone_text, bound_text
from tonnage.results.metrics import Latencies
from tonnage.spec.deployment import LimitMetric, Statistic

WHY_NOT: dict[WhyNot, str] = {
    "one-instance": "one instance serves the peak, so that there is nothing to release",
    "attention-ranks": (
        "none is proposed, because a controller is not simulated over data-parallel attention ranks"
    ),
    "no-rule": (
        "none is proposed, because no rule that was tried holds the limits in every hour and saves"
        " instance-hours"
    ),
}

# what a controller looks at, of one instance
METRICS = {"outstanding": "requests in flight", "rate": "requests/s"}


def autoscaling_text(autoscaling: Autoscaling) -> str:
    """Describe the autoscaling, such as "1 to 3 instances at 4.79 requests/s each: 41.3
    instance-hours of 72.0 in 24 hours, 43 % fewer; …".
    """
    best = autoscaling.best
    if best is None or autoscaling.fixed is None:
        return "" if autoscaling.reason is None else WHY_NOT[autoscaling.reason]
    saved = (
        f"{number(best.run.instance_hours)} instance-hours of"
        f" {number(autoscaling.fixed.instance_hours)} in {hours_text(autoscaling)}"
    )
    cost = "" if autoscaling.cost is None else f"; {_rent(autoscaling.cost)}"
    limits_words = "".join(f"; {text}" for text in broken_texts(best.run))
    warm = f" and {best.warm} warm" if best.warm else ""
    bounds = (
        f"{best.least} to {best.most} instances{warm} at {number(best.target)}"
        f" {METRICS[best.metric]} each"
    )
    return f"{bounds}: {saved}, {percent(autoscaling.saved_share)} fewer{limits_words}{cost}"


def hours_text(autoscaling: Autoscaling) -> str:
    """Such as "24 hours"."""
    return f"{plain(round(autoscaling.hours, 2))} hour{'' if autoscaling.hours == 1 else 's'}"


def broken_texts(run: OverHours) -> Iterator[str]:
    """Such as "TTFT p95 ≤ 500 ms exceeded by 1.8 % of the requests, 3.5 % in the worst hour"."""
    for limit in run.limits:
        worst = f", {_share(limit.worst_share)} in the worst hour" if limit.hours > 1 else ""
        broken = (
            f", and broken in {counted(limit.broken_hours, 'hour')} of {limit.hours}"
            if limit.broken_hours
            else ""
        )
        yield f"{limit.limit} exceeded by {_share(limit.share)} of the requests{worst}{broken}"


def _rent(cost: AutoscalingCost) -> str:
    """State what a year on cloud GPUs costs with the first rule and without."""
    scaled, fixed = cost.scaled_usd_per_year, cost.fixed_usd_per_year
    if fixed - scaled < 1:
        return (
            f"cloud GPUs for {dollars(fixed)} USD a year with and without it, as machines are"
            " rented whole"
        )
    return (
        f"cloud GPUs for {dollars(scaled)} USD a year in place of {dollars(fixed)},"
        f" {dollars(fixed - scaled)} less"
    )


def _share(share: float) -> str:
    """A share of requests in per cent, with two digits."""
    return f"{100 * share:.2g}%"


def autoscaling_section(plan: Plan) -> Section:
    """The section; empty where no autoscaling was requested."""
    autoscaling = plan.autoscaling
    blocks: tuple[Block, ...] = ()
    if autoscaling is not None and autoscaling.reason is None and autoscaling.fixed is not None:
        blocks = (_table(autoscaling, autoscaling.fixed), Text(_reading(autoscaling)))
    elif autoscaling is not None:
        blocks = (
            Text(sentence_of("" if autoscaling.reason is None else WHY_NOT[autoscaling.reason])),
        )
    return section("autoscaling", "Autoscaling", *blocks)


def _table(autoscaling: Autoscaling, fixed: OverHours) -> Table:
    rows = [
        (
            "all the time",
            f"{autoscaling.instances}",
            ABSENT,
            number(fixed.instance_hours),
            "; ".join(broken_texts(fixed)),
        )
    ]
    for proposal in autoscaling.proposals:
        served = f"{proposal.least} to {proposal.most}" + (
            f", {proposal.warm} warm" if proposal.warm else ""
        )
        rule = f"{number(proposal.target)} {METRICS[proposal.metric]}"
        times = (
            f"a look every {span(proposal.interval_s)}, a start of {span(proposal.start_s)}, fewer"
            f" after {span(proposal.hold_s)}"
        )
        rows.append(
            (
                rule,
                served,
                times,
                number(proposal.run.instance_hours),
                "; ".join(broken_texts(proposal.run)),
            )
        )
    header = ("target of an instance", "instances", "times", "instance-hours", "limits")
    return Table(
        caption=f"Rules of a controller over {hours_text(autoscaling)}",
        header=header,
        rows=tuple(rows),
        chosen=1,
    )


def _reading(autoscaling: Autoscaling) -> str:
    part = ""
    if autoscaling.simulated_instances < autoscaling.instances:
        part = (
            f" {autoscaling.simulated_instances} of {autoscaling.instances} instances were"
            " simulated, with their share of the load."
        )
    cost = (
        ""
        if autoscaling.cost is None
        else f" {sentence_of(f'{_rent(autoscaling.cost)} ({autoscaling.cost.offer})')}"
    )
    return (
        f"Each rule was simulated over {whole(autoscaling.requests)} requests, with steps as slow"
        f" as the plan's confidence allows for, after {counted(autoscaling.tried, 'run')} of a"
        f" search.{part}{cost}"
    )


NOTHING_RUNS = "no deployment on these systems meets the limits"


def existing_title(plan: Plan) -> str:
    """Such as "3 × dgx-h100 carry 60.6 requests/s of llama-3.1-70b"; "" where nothing exists."""
    existing = plan.existing
    if existing is None:
        return ""
    systems = " and ".join(f"{group.count:,} × {group.system}" for group in existing.groups)
    return (
        f"{systems} carry {number(existing.requests_per_second)} requests/s of"
        f" {plan.scenario.model}"
    )


def running(existing: Existing) -> str:
    """What runs on the systems, such as "8 instances of FP8, TP 2, vllm-0.32 on h100-sxm-80gb on 2
    × dgx-h100".
    """
    return "; ".join(
        f"{counted(group.instances, 'instance')} of {name_of(group.deployment)}, on {group.count:,}"
        f" × {group.system}"
        for group in existing.groups
        if group.deployment is not None
    )


def existing_glance(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The numbers to see first of systems that exist."""
    existing = plan.existing
    if existing is None:
        return ()
    months = existing.months_left
    rows = [
        ("requests/s inside the limits", number(existing.requests_per_second)),
        ("requests/s today, at the peak", number(existing.asked_requests_per_second)),
        ("headroom now", percent(existing.headroom)),
        ("months left", ABSENT if months is None else "none" if months < 0 else f"{months}"),
    ]
    return tuple(row for row in rows if row[1] != ABSENT)


def existing_section(plan: Plan) -> Section:
    """Report existing systems, one row per kind; empty where there are none."""
    existing = plan.existing
    if existing is None:
        return section("existing", "Systems that exist")
    rows = []
    for group in existing.groups:
        best = ABSENT if group.deployment is None else deployment_text(group.deployment)
        breaks = NOTHING_RUNS if group.binds is None else bound_text(group.binds)
        rows.append(
            (
                f"{group.count:,} × {group.system}",
                best,
                str(group.instances),
                number(group.requests_per_second),
                breaks,
            )
        )
    header = (
        "systems",
        "best deployment on them",
        "instances",
        "requests/s inside the limits",
        "what breaks first",
    )
    growth = existing.growth_per_month
    grows = None if growth is None else Text(f"The load is taken to grow by {growth:.1%} a month.")
    return section(
        "existing",
        "Systems that exist",
        Table(caption="What they carry", header=header, rows=tuple(rows)),
        grows,
    )


def existing_text(existing: Existing) -> str:
    """State in one clause what the systems carry in addition to today's load, and how long that
    lasts.
    """
    systems = " + ".join(f"{group.count:,} × {group.system}" for group in existing.groups)
    total, today = existing.requests_per_second, existing.asked_requests_per_second
    growth, months = existing.growth_per_month, existing.months_left
    if total == 0 or existing.breaks_first is None:
        return f"{systems}: {NOTHING_RUNS}"
    carry = "carries" if sum(group.count for group in existing.groups) == 1 else "carry"
    change = 0.0 if today is None else total / today - 1.0
    room = (
        ""
        if today is None
        else (
            f", {percent(abs(change))} {'more' if change >= 0 else 'less'} than today's"
            f" {plain(today)}"
        )
    )
    text = (
        f"{systems} {carry} {number(total)} requests/s inside the limits{room}; what breaks first"
        f" is {bound_text(existing.breaks_first)}"
    )
    if growth is None or months == -1:
        return text
    if months is None:
        return (
            f"{text}; at {growth:.1%} growth a month that lasts beyond fifty years"
            if growth > 0
            else text
        )
    return (
        f"{text}; at {growth:.1%} growth a month that lasts for {months} months and runs out in"
        f" month {months + 1}"
    )


def day_text(day: ADay) -> str:
    """A working day of the highest load, such as "2.04 million requests in a working day of 8 h:
    679,000 users at 3 a day".
    """
    mean = "" if day.peak_factor == 1 else f", whose peak is {plain(day.peak_factor)} × its mean"
    tokens = f"{_many(day.input_tokens)} tokens in and {_many(day.output_tokens)} out"
    text = (
        f"{_many(day.requests)} requests in a working day of {plain(day.hours)} h{mean}, {tokens}"
    )
    if day.users is None or day.requests_per_user is None:
        return text
    return f"{text}: {_many(day.users)} users at {plain(day.requests_per_user)} requests a day"


def _many(count: float) -> str:
    """A count to three digits: "679,000", "2.04 million", "4.07 billion"."""
    for scale, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= scale:
            return f"{number(count / scale)} {name}"
    return f"{float(f'{count:.3g}'):,.0f}" if count >= 100 else number(count)


def growth_text(growth: Growth, systems: int) -> str:
    """Such as "at 5.0% a month 2 systems are enough for 3 months, the next is needed in month 4; 3
    in 12 months (180 requests/s), …".
    """
    now = f"{counted(systems, 'system')} {'is' if systems == 1 else 'are'} enough"
    months = growth.months_left
    if months is None:
        lasts = f"{now} for fifty years" if growth.per_month > 0 else now
    elif months == 0:
        lasts = f"{now} today, the next is needed in month 1"
    else:
        lasts = f"{now} for {counted(months, 'month')}, the next is needed in month {months + 1}"
    counts = (
        "no number" if ahead.systems is None else f"{ahead.systems:,}" for ahead in growth.ahead
    )
    loads = (
        f"in {ahead.months} months ({number(ahead.requests_per_second)} requests/s)"
        for ahead in growth.ahead
    )
    later = ", ".join(map(" ".join, zip(counts, loads, strict=True)))
    return f"at {growth.per_month:.1%} a month {lasts}{f'; {later}' if later else ''}"


HOW_KEPT = {
    "offload": "offloaded",
    "pin": "pinned",
    "cache": "evicted when others need the room",
    "recompute": "recomputed",
}
"""What becomes of the cache of a session that waits."""


def kept_text(plan: Plan) -> str:
    """The systems and the money that each way to treat a waiting session's cache takes; "" without
    recorded sessions.
    """
    if plan.sessions is None:
        return ""
    caches = {cache.how: cache for cache in plan.sessions.kept}
    clauses = []
    for how, name in HOW_KEPT.items():
        cache = caches.get(how)  # type: ignore[call-overload]
        if cache is None:
            continue
        if cache.systems is None:
            alone = "" if cache.alone is None else f": {alone_text(cache.alone)}"
            clauses.append(f"{name} no number{alone}")
            continue
        money = "".join(
            f", {usd(cache.systems * year)} USD a year on-prem" for year in _usd_per_system(plan)
        )
        clauses.append(f"{name} {counted(cache.systems, 'system')}{money}")
    return f"a waiting session's cache {'; '.join(clauses)}" if clauses else ""


def _usd_per_system(plan: Plan) -> list[float]:
    """USD a year that one system of the choice costs on-prem, where that is known."""
    if plan.choice is None:
        return []
    return [
        (way.total_usd_per_year or 0.0) / plan.choice.systems
        for way in owned_and_cheapest(yearly(plan))
        if way.where == "on-prem"
    ]


def admission_text(tiers: SessionTiers) -> str:
    """More sessions than the limits allow, without and with admission by session."""
    first = tiers.admission[0]
    without = [f"{number(first.per_hour)} end in an hour on an instance"]
    if first.slowdown_p90 is not None:
        without.insert(0, f"{first.slowdown_p90:.2f}× as slow as alone")
    if first.further_ttft_p95_ms is not None:
        without.insert(1, f"further TTFT p95 {span(first.further_ttft_p95_ms / 1e3)}")
    return (
        f"with {percent(first.over - 1)} more sessions than the limits allow, without it"
        f" {', '.join(without)}; with it {number(first.per_hour_admitted)} end, and one waits"
        f" {span(first.wait_seconds)} until it begins"
    )


def session_tiers_section(plan: Plan) -> Section:
    """Sessions of a system at each speed and time to first token; empty unless asked."""
    tiers = plan.session_tiers
    if tiers is None:
        return section("session-tiers", "Sessions at other limits")
    seconds = sorted({tier.further_ttft_p95_ms for tier in tiers.speeds})
    cells = {(tier.slowdown_p90, tier.further_ttft_p95_ms): tier for tier in tiers.speeds}
    header = ("p90 slowdown", *(f"further TTFT p95 ≤ {limit / 1e3:g} s" for limit in seconds))
    rows = tuple(
        (f"≤ {slowdown:g}×", *(_cell(cells[slowdown, limit]) for limit in seconds))
        for slowdown in sorted({tier.slowdown_p90 for tier in tiers.speeds})
    )
    caption = (
        "Sessions at once on a system, at the asked confidence; in brackets where 80% of recordings"
        " of as many sessions put it"
    )
    return section(
        "session-tiers",
        "Sessions at other limits",
        Table(caption=caption, header=header, rows=rows),
        Text(sentence_of(f"Admission by session: {admission_text(tiers)}")),
    )


def _cell(tier: SpeedTier) -> str:
    if not tier.per_system:
        return "none"
    return f"{number(tier.per_system)} ({number(tier.least)} to {number(tier.most)})"


def regions_text(regions: Regions) -> str:
    """Such as "a fleet in each takes 2 + 2 = 4 systems, one for all 3: following the sun saves 1;
    eu causes 60% of the peak …".
    """
    apart = regions.systems_apart
    if apart is None:
        saved = "a fleet in each region was not sized"
    else:
        each = " + ".join(f"{region.systems:,}" for region in regions.regions)
        less = apart - regions.systems
        saved = (
            f"a fleet in each takes {each} = {counted(apart, 'system')}, one for all"
            f" {regions.systems:,}: following the sun saves {less if less > 0 else 'none'}"
        )
    return f"{saved}; {'; '.join(map(_region_text, regions.regions))}"


def _region_text(region: Region) -> str:
    usd = "" if region.usd_per_year is None else f", {dollars(region.usd_per_year)} USD a year"
    return (
        f"{region.name} causes {percent(region.at_peak)} of the peak and"
        f" {percent(region.over_year)} of the year{usd}"
    )


def regions_section(plan: Plan) -> Section:
    """What each region uses, takes alone and costs; empty without regions."""
    regions = plan.regions
    if regions is None:
        return section("regions", "Regions")
    names = ("region", "peak requests/s", "hour UTC", "at the peak", "over the year", "systems")
    header = (*names, "USD a year")
    rows = tuple(
        (
            region.name,
            number(region.peak_requests_per_second),
            f"{region.peak_hour}",
            percent(region.at_peak),
            percent(region.over_year),
            ABSENT if region.systems is None else f"{region.systems:,}",
            dollars(region.usd_per_year),
        )
        for region in regions.regions
    )
    way = {"on-prem": "owned systems", "cloud": "rented GPUs"}.get(regions.where, "")
    caption = "What each region uses of the busiest hour and of the year, and takes alone"
    note = (
        "The purchase, and what else does not depend on use, is divided by the use in the busiest"
        " hour of all regions, the rest by the use over the year."
    )
    blocks = (Table(caption=caption, header=header, rows=rows), Text(f"{note} Costs of {way}."))
    return section("regions", "Regions", *(blocks if way else blocks[:1]))


ROUTERS = {"random": "random choice", "round-robin": "round robin", "session": "session affinity"}


def router_text(rows: Sequence[BehindRouter], limits: Sequence[Limit], systems: int) -> str:
    """What the router of the plan saves: "the answer counts on least-outstanding; a plain … would
    need 14 systems …".

    Of ``limits`` the first one on TTFT, or the first, says which latency is named.
    """
    service = next((row for row in rows[1:] if row.router == "random"), None)
    if service is None:
        return routers_text(rows, limits, systems)
    text, plain = (
        f"the answer counts on {_named(rows[0].router)}; ",
        "a plain Kubernetes service (random choice)",
    )
    if service.systems is None:
        return f"{text}behind {plain} no number of systems holds the limits"
    if service.systems != systems:
        return (
            f"{text}{plain} would need {counted(service.systems, 'system')} in place of {systems:,}"
        )
    name = _metric(limits)
    return (
        f"{text}{plain} needs as many systems, at {_name(name)} {_value(service, name)} in place of"
        f" {_value(rows[0], name)}"
    )


def routers_text(rows: Sequence[BehindRouter], limits: Sequence[Limit], systems: int) -> str:
    """Such as "random choice, TTFT p95 150 ms at the peak; behind least-outstanding 132 ms (4
    systems would do), behind round robin 78 ms".

    Arguments as of ``router_text``.
    """
    if not rows:
        return ""
    name, (first, *behind_routers) = _metric(limits), rows
    rest = [
        f"{_named(row.router)} {_value(row, name)}{_systems(systems, row)}"
        for row in behind_routers
    ]
    chosen_words = (
        f"{_named(first.router)}, {_name(name)} {_value(first, name)} at the"
        f" peak{_systems(systems, first)}"
    )
    return f"{chosen_words}; behind {', behind '.join(rest)}" if rest else chosen_words


Metric = tuple["LimitMetric", "Statistic"]


def _metric(limits: Sequence[Limit]) -> Metric:
    """The latency that routers are compared by."""
    single = [candidate for candidate in limits if candidate.share is None]
    limit = next((candidate for candidate in single if candidate.metric == "ttft"), None) or (
        single[0] if single else None
    )
    return ("ttft", "p95") if limit is None else (limit.metric, limit.statistic)


def _name(metric: Metric) -> str:
    return f"{metric[0].upper()} {metric[1]}"


def _value(row: BehindRouter, metric: Metric) -> str:
    values: Latencies = getattr(row, f"{metric[0]}_ms")
    return f"{number(values.value(metric[1]))} ms"


def _named(router: str) -> str:
    return ROUTERS.get(router, router)


def _systems(planned: int, row: BehindRouter) -> str:
    if row.systems is None:
        return " (no number of systems holds the limits)"
    if row.systems == planned:
        return ""
    count = counted(row.systems, "system")
    return f" (it takes {count})" if row.systems > planned else f" ({count} would do)"


def prefix_cache_text(prefix_cache: PrefixCache | None, systems: int) -> str:
    """Such as "62% of prompt tokens come from the cache behind session, 31% behind random; without
    a cache 5 systems in place of 3".
    """
    if prefix_cache is None:
        return ""
    shown = f" behind {_named(prefix_cache.router)}" if prefix_cache.instances > 1 else ""
    if prefix_cache.simulated_instances < prefix_cache.instances:
        shown += (
            f" ({prefix_cache.simulated_instances} of {prefix_cache.instances} instances simulated)"
        )
    clauses = [f"{percent(prefix_cache.hit_rate)} of prompt tokens come from the cache{shown}"]
    if prefix_cache.other_hit_rate is not None:
        clauses.append(
            f"behind {_named(prefix_cache.other_router)} {percent(prefix_cache.other_hit_rate)}"
        )
    if prefix_cache.without_systems is None:
        without = "no number of systems of this deployment would hold the limits"
    elif prefix_cache.without_systems == systems:
        without = f"as many, {counted(systems, 'system')}"
    else:
        without = (
            f"{counted(prefix_cache.without_systems, 'system')} of this deployment in place of"
            f" {systems}"
        )
    return "; ".join([*clauses, f"without a cache {without}"])


MEMORIES = {"host": "host memory", "disk": "local NVMe", "store": "the shared store"}

WEEKS = 365 / 7
MONTHS = 12


def sessions_text(plan: Plan) -> str:
    """Such as "17.1 at once on a system; 63 requests each, 7.9 million tokens in of which 96% come
    from caches, 27,700 out; …".
    """
    sessions = plan.sessions
    if sessions is None:
        return ""
    tokens = (
        f"{number(sessions.input_tokens / 1e6)} million tokens in ({percent(sessions.hit_rate)}"
        " from caches)"
    )
    parts = [
        f"{number(sessions.per_system)} at once on a system",
        (
            f"each {number(sessions.requests)} requests, {tokens} and"
            f" {number(sessions.output_tokens)} out, over {span(sessions.seconds)}"
        ),
    ]
    if sessions.slowdown_p90 is not None:
        parts.append(f"p90 of them {sessions.slowdown_p90:.2f}× as slow as alone")
    if sessions.left_out > 0:
        parts.append(
            f"{percent(sessions.left_out)} of the recorded requests exceed the context and are left"
            " out"
        )
    parts += _tiers(plan, sessions)
    return "; ".join(
        [*parts, *(_cost(sessions, plan.demand, way) for way in owned_and_cheapest(yearly(plan)))]
    )


def _tiers(plan: Plan, held_sessions: HeldSessions) -> list[str]:
    """What each memory below the KV cache buys, such as "host memory (vllm: 1,600 GB at 445 GB/s)
    raises 12.7 a system to 21.3 and …".
    """
    clauses = []
    for before, tier in pairwise(held_sessions.tiers):
        size = (
            f"{number(tier.bytes_per_instance / 1e9)} GB at"
            f" {number((tier.bytes_per_second or 0.0) / 1e9)} GB/s an instance"
        )
        offloader = held_sessions.offloader or "write-back"
        where = f"{MEMORIES.get(tier.name, tier.name)} ({offloader}, {size})"
        if (
            before.per_system is None
            or before.systems is None
            or tier.per_system is None
            or tier.systems is None
        ):
            clauses.append(f"no load holds the limits without {where}")
            continue
        if number(before.per_system) == number(tier.per_system):
            clauses.append(f"{where} adds nothing to {number(before.per_system)} a system")
            continue
        gain = f"{where} raises {number(before.per_system)} a system to {number(tier.per_system)}"
        fewer = before.systems - tier.systems
        if fewer > 0:
            money = "".join(
                f", {usd(fewer * year)} USD a year on-prem" for year in _usd_per_system(plan)
            )
            gain += f" and saves {fewer} of {before.systems} systems{money}"
        clauses.append(gain)
    return clauses


def _cost(held_sessions: HeldSessions, demand: Demand, way: WayCost) -> str:
    engineers, hours = demand.source.engineers, demand.source.working_hours or 8.0
    days = sum(
        1
        for hour in range(0, 168, 24)
        if demand.profile is None or any(demand.profile[hour : hour + 24])
    )
    sessions = held_sessions.at_once * WEEKS * days * hours * 3600 / held_sessions.seconds
    usd_per_session = (way.total_usd_per_year or 0.0) / sessions
    month = (
        ""
        if engineers is None
        else (
            f" and {usd((way.total_usd_per_year or 0.0) / engineers / MONTHS)} an engineer and"
            " month"
        )
    )
    return (
        f"{NAMES[way.where]} {usd(usd_per_session)} USD a session{month}, at {plain(days)} days of"
        f" {plain(hours)} h a week"
    )
