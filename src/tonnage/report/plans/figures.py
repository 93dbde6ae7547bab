"""The figures of a plan, as values: the drawing, on which axes, with what under the pointer.

Each function answers None where the plan does not hold what the figure needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tonnage.plan.candidate import Candidate, CurvePoint
from tonnage.plan.cost import WayCost
from tonnage.plan.plan import TERMS, Plan
from tonnage.plan.sensitivity import Changed
from tonnage.plan.sensitivity import Swing as Swung
from tonnage.report.drawing.figure import (
    Axis,
    Bar,
    Bars,
    Plot,
    Point,
    Rule,
    Segment,
    Series,
    Swing,
    Tornado,
)
from tonnage.report.numbers import dollars, number, percent, signed, usd
from tonnage.report.plans.candidates import yearly_costs
from tonnage.report.plans.cost import NAMES, priced, spread, yearly
from tonnage.report.plans.deployments import MEMORY, deployment, name_of, of_pools, tip
from tonnage.report.plans.explained import INPUTS, gpus_per_system, needed, other_size
from tonnage.report.plans.question import METRICS

USUAL = {"ttft": "p95", "tpot": "mean", "e2e": "mean"}  # statistic of a metric that nobody limited
FAR_APART = 12  # ratio of the largest value to the smallest from which an axis is logarithmic
DWARFS = 4  # ratio of the longest bar to the next from which it is broken off
LOAD = Axis("requests per second per 8 GPUs")
MILLISECONDS = Axis("latency, ms (logarithmic)", log=True)
MARKED = {"limit": "the highest load inside the limits", "peak": "the load at the peak"}


def curve(plan: Plan) -> Plot | None:
    """Latency against throughput of the chosen deployment, with the limits and the chosen load."""
    points = sorted(plan.curve, key=lambda p: p.requests_per_second_per_8_gpus)
    if len(points) < 2:
        return None
    tones = {metric: tone for tone, metric in enumerate(("ttft", "tpot", "e2e", "itl"))}
    limits = [limit for limit in plan.scenario.limits_that_count if limit.metric in METRICS]
    limited: list[tuple[str, str]] = [(limit.metric, limit.statistic) for limit in limits]
    shown = limited + [
        (m, s) for m, s in USUAL.items() if m not in {metric for metric, _ in limited}
    ]
    shown.sort(key=lambda pair: METRICS.index(pair[0]))
    series = [
        _of_curve(points, metric, statistic, tones[metric])
        for metric, statistic in dict.fromkeys(shown)
    ]
    rules = [
        Rule("y", limit.milliseconds, str(limit), tone=tones[limit.metric]) for limit in limits
    ]
    return Plot(
        "curve",
        "Latency against throughput of the chosen deployment",
        LOAD,
        MILLISECONDS,
        tuple(s for s in series if s.points),
        rules=(*rules, *_loads(plan)),
    )


def curves(plans: Sequence[Plan], names: Sequence[str]) -> Plot | None:
    """The same latency of several plans against throughput: that of the first limit of the first
    plan, or the p95 of TTFT.
    """
    limits = [limit for limit in plans[0].scenario.limits_that_count if limit.metric in METRICS]
    metric, statistic = (limits[0].metric, limits[0].statistic) if limits else ("ttft", "p95")
    all_series = []
    for tone, (plan, name) in enumerate(zip(plans, names, strict=True)):
        points = sorted(plan.curve, key=lambda p: p.requests_per_second_per_8_gpus)
        all_series.append(replace(_of_curve(points, metric, statistic, tone), name=name))
    drawable = tuple(series for series in all_series if series.points)
    rules = tuple(Rule("y", limit.milliseconds, str(limit)) for limit in limits[:1])
    title = f"{metric.upper()} {statistic} against throughput"
    return Plot("curves", title, LOAD, MILLISECONDS, drawable, rules=rules) if drawable else None


def _of_curve(points: Sequence[CurvePoint], metric: str, statistic: str, tone: int) -> Series:
    curve_points = []
    for point in points:
        y = getattr(getattr(point, f"{metric}_ms"), statistic)
        if y is not None and y > 0:
            words = _reading(point, metric, statistic, y)
            curve_points.append(
                Point(point.requests_per_second_per_8_gpus, y, words, chosen=point.mark == "limit")
            )
    return Series(f"{metric.upper()} {statistic}", tuple(curve_points), tone=tone, line=True)


def _reading(point: CurvePoint, metric: str, statistic: str, y: float) -> str:
    in_flight = point.concurrency_per_instance
    lines = [
        f"{metric.upper()} {statistic} {number(y)} ms",
        f"at {number(point.requests_per_second_per_8_gpus)} requests/s per 8 GPUs",
    ]
    lines += (
        [f"{number(in_flight)} requests in flight in one instance"] if in_flight is not None else []
    )
    return "\n".join(
        [
            *lines,
            MARKED.get(point.mark)
            or f"{'inside' if point.inside_limits else 'outside'} the limits",
        ]
    )


def _loads(plan: Plan) -> list[Rule]:
    """The highest load inside the limits, and what the fleet of whole systems carries at the
    peak.
    """
    if plan.choice is None:
        return []
    highest_load = plan.choice.requests_per_second_per_8_gpus
    rules = [Rule("x", highest_load, f"highest load inside the limits, {number(highest_load)}/s")]
    mine = next((p.requests_per_second_per_8_gpus for p in plan.curve if p.mark == "peak"), None)
    if mine is not None:
        rules.append(Rule("x", mine, f"your peak, {number(mine)}/s"))
    return rules


def speed(candidate: Candidate) -> tuple[str, float] | None:
    """The latency that candidates are compared by: mean E2E, else mean TTFT, with the load that it
    is at, and its value in ms.
    """
    peak = candidate.at_peak
    at, load = (
        (candidate, "the highest load inside the limits")
        if peak is None
        else (peak, "the asked load")
    )
    for name, value in (("mean E2E", at.e2e_ms.mean), ("mean TTFT", at.ttft_ms.mean)):
        if value is not None and value > 0:
            return f"{name} at {load}", value
    return None


def pareto(plan: Plan) -> Plot | None:
    """The candidates by price, or by GPUs where no price is known, against latency at the asked
    load; the front drawn through.

    Those without a price are left out where others have one, and the title says how many there are.
    """
    candidates, costs = plan.candidates, yearly_costs(plan)
    has_prices = any(cost is not None for cost in costs)
    compared: list[tuple[Candidate, Point]] = []
    names = set()
    for place, (candidate, usd_per_year) in enumerate(zip(candidates, costs, strict=True)):
        fast, height = speed(candidate), usd_per_year if has_prices else float(candidate.gpus)
        if fast is not None and height is not None:
            names.add(fast[0])
            paid = f"\n{usd(usd_per_year)} USD a year" if usd_per_year is not None else ""
            compared.append(
                (candidate, Point(fast[1], height, tip(candidate) + paid, chosen=place == 0))
            )
    if len(compared) < 2 or len(names) > 1:
        return None
    whole = (
        "every candidate"
        if len(compared) == len(candidates)
        else f"the {len(compared)} of {len(candidates)} candidates with a price"
    )
    return _pareto(compared, names.pop(), has_prices, whole)


def _pareto(
    compared: Sequence[tuple[Candidate, Point]], latency: str, known: bool, whole: str
) -> Plot:
    kinds = [of_pools(candidate, lambda pool: pool.gpu) for candidate, _ in compared]
    series = [
        Series(
            gpu,
            tuple(point for kind, (_, point) in zip(kinds, compared, strict=True) if kind == gpu),
            tone=tone,
        )
        for tone, gpu in enumerate(dict.fromkeys(kinds))
    ]
    name = f"front: nothing is both {'cheaper' if known else 'smaller'} and faster"
    drawn = Series(name, _front([point for _, point in compared]), tone=5, line=True, marks=False)
    heights = [point.y for _, point in compared]
    wide = max(heights) > FAR_APART * min(heights) > 0
    named = "USD a year, owned" if known else "GPUs bought (whole systems)"
    y = Axis(f"{named}, logarithmic" if wide else named, log=wide)
    title = f"{'Cost' if known else 'GPUs'} against latency of {whole}"
    x = Axis(f"{latency}, ms (logarithmic)", log=True)
    return Plot("pareto", title, x, y, (drawn, *series))


def _front(points: list[Point]) -> tuple[Point, ...]:
    """The points that no other undercuts in both, fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.x, p.y)):
        if not front or point.y < front[-1].y:
            front.append(point)
    return tuple(front)


def cost(plan: Plan) -> Bars | None:
    """USD a year of each way to run it, by what it is paid for."""
    whole = yearly(plan)
    way_costs = priced(whole)
    if whole is None or not way_costs:
        return None
    tones = {
        name: tone
        for tone, name in enumerate(
            dict.fromkeys(name for way in way_costs for name, _, _ in _paid(way))
        )
    }
    bars = tuple(_way_bar(way, tones, chosen=way.where == whole.cheapest) for way in way_costs)
    *shorter, longest = sorted(way.total_usd_per_year or 0.0 for way in way_costs)
    cut = 1.5 * shorter[-1] if shorter and longest > DWARFS * shorter[-1] > 0 else None
    axis = Axis("USD a year" if cut is None else "USD a year; a broken bar goes on")
    return Bars("cost", "Cost of a year by way of running it", axis, bars, cut=cut)


def _paid(way: WayCost) -> list[tuple[str, float, str]]:
    """The parts of a way's cost: names, USD a year, arithmetic; without free ones."""
    parts = [(part.name, part.usd_per_year, part.how) for part in way.parts if part.usd_per_year]
    return parts or [("all", way.total_usd_per_year or 0.0, "")]


def _way_bar(way: WayCost, tones: dict[str, int], *, chosen: bool) -> Bar:
    name, between = NAMES[way.where], spread(way)
    segments = tuple(Segment(part, max(size, 0.0), tones[part]) for part, size, _ in _paid(way))
    lines = [f"{name}: {usd(way.total_usd_per_year)} USD a year"]
    lines += (
        [f"{usd(between[0])} to {usd(between[1])} USD over the range of prices"]
        if between is not None
        else []
    )
    lines += (
        [f"{usd(way.usd_per_1000_requests)} USD per 1,000 requests"]
        if way.usd_per_1000_requests is not None
        else []
    )
    lines += [
        f"{part}: {usd(size)} USD{f', {how}' if how else ''}" for part, size, how in _paid(way)
    ]
    return Bar(
        name,
        segments,
        total=f"{dollars(way.total_usd_per_year)} USD",
        tip="\n".join(lines),
        chosen=chosen,
    )


def tornado(plan: Plan) -> Tornado | None:
    """How the number of systems moves with each input, widest first; a side without an answer
    reaches to the edge.
    """
    sensitivity = plan.sensitivity
    if sensitivity is None:
        return None
    size = 0 if plan.choice is None else gpus_per_system(plan.choice)
    exact_counts = [
        exact
        for row in sensitivity.swings
        for side in (row.low, row.high)
        if (exact := _exactly(side, size)) is not None
    ]
    if not exact_counts:
        return None
    base = sensitivity.systems_exact
    edge = max(*exact_counts, base) * 1.1
    mixed_sizes = any(
        other_size(side, size) for row in sensitivity.swings for side in (row.low, row.high)
    )
    swings = sorted(
        (_swing(row, edge, size) for row in sensitivity.swings),
        key=lambda s: -max(abs(s.low - base), abs(s.high - base)),
    )
    return Tornado(
        "sensitivity",
        "Systems needed when one input is lower or higher",
        Axis(
            "systems exactly; whole systems beside each"
            f" bar{'; other sizes counted by their GPUs' if mixed_sizes else ''}"
        ),
        base=base,
        base_label=f"now {sensitivity.systems} ({number(base)})",
        swings=tuple(swings),
    )


def _exactly(side: Changed, size: int) -> float | None:
    """The systems of a side before rounding up, those of another size counted by their GPUs in
    systems of ``size`` GPUs.
    """
    if side.systems_exact is None or side.systems is None or not other_size(side, size):
        return side.systems_exact
    return side.systems_exact * side.gpus / side.systems / size


def _swing(row: Swung, edge: float, size: int) -> Swing:
    low, high = (
        edge if exact is None else exact
        for exact in (_exactly(row.low, size), _exactly(row.high, size))
    )
    labels = ["none" if side.systems is None else f"{side.systems}" for side in (row.low, row.high)]
    name = INPUTS[row.input]
    tips = [_side(side, size) for side in (row.low, row.high)]
    return Swing(
        name=name,
        low=low,
        high=high,
        low_label=labels[0],
        high_label=labels[1],
        tip="\n".join([name, *tips]),
    )


def _side(side: Changed, size: int) -> str:
    where = "" if side.deployment is None else f", {name_of(side.deployment)}"
    return (
        f"{signed(side.change)}:"
        f" {needed(side, size)}{' systems' if side.systems is not None else ''}{where}"
    )


def profile(plan: Plan) -> Plot | None:
    """Requests per second hour by hour, and the peak that is sized for."""
    rates, peak = plan.demand.profile or (), plan.demand.sizing_requests_per_second
    if not 2 <= len(rates) <= 168:
        return None
    points = tuple(
        Point(hour + 0.5, rate, f"{hour % 24}:00 to {hour % 24 + 1}:00: {number(rate)} requests/s")
        for hour, rate in enumerate(rates)
    )
    day = len(rates) == 24
    return Plot(
        "profile",
        "The load hour by hour",
        Axis(
            "hour of the day" if day else "hour of the profile",
            ticks=tuple(map(float, range(0, 25, 3))) if day else (),
        ),
        Axis("requests per second"),
        (Series("load", points, tone=0, line=True),),
        rules=(Rule("y", peak, f"sized for, {number(peak)}/s"),),
    )


def memory(plan: Plan) -> Bars | None:
    """Draw how the memory of one GPU is divided."""
    choice = plan.choice
    if choice is None or len(choice.pools) != 1 or not choice.memory:
        return None
    parts = [(MEMORY[part.part], part.bytes_per_gpu / 1e9) for part in choice.memory]
    segments = tuple(Segment(name, size, tone) for tone, (name, size) in enumerate(parts))
    total = sum(size for _, size in parts)
    words = "\n".join([deployment(choice), *(f"{name}: {number(size)} GB" for name, size in parts)])
    bar = Bar("one GPU", segments, total=f"{number(total)} GB", tip=words)
    return Bars("memory", "Memory of one GPU", Axis("GB"), (bar,))


def step(plan: Plan) -> Bars | None:
    """The mean step at the chosen load, by term."""
    terms = (
        []
        if plan.explain is None
        else [(TERMS.get(t.term, t.term), t.seconds * 1e3) for t in plan.explain.terms if t.seconds]
    )
    if not terms:
        return None
    total = sum(ms for _, ms in terms)
    bars = tuple(
        Bar(
            name,
            (Segment(name, ms, 0),),
            total=f"{number(ms)} ms",
            tip=f"{name}: {number(ms)} ms of a step, {percent(ms / total)}",
        )
        for name, ms in sorted(terms, key=lambda pair: -pair[1])
    )
    return Bars("step", "A mean step by what takes its time", Axis("ms of one step"), bars)
