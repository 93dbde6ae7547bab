"""Every deployment inside the limits: in short next to the choice, and as a whole table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tonnage.errors import option
from tonnage.plan import reason as why
from tonnage.plan.candidate import FAR, ROWS, Candidate, Identity, first_rows
from tonnage.plan.limit import Breach
from tonnage.plan.notes import Warning, WideOverPcie
from tonnage.plan.plan import Plan
from tonnage.plan.reason import Reachable, Reached, Rejected, TooMuch
from tonnage.report.document import Section, Table, Text, section
from tonnage.report.numbers import ABSENT, counted, dollars, number, percent, plain, usd
from tonnage.report.plans.deployments import (
    deployment_text,
    exactly_text,
    measured_load_text,
    of_pools,
    split,
    unlike,
)
from tonnage.report.plans.question import (
    alone_text,
    bound_text,
    breach_text,
    first_text,
    in_tokens,
    value_text,
)
from tonnage.units import format_duration

OPEN = 15  # rows up to which a page shows the table open
MARKED = "* rests in part on values that were not measured on this GPU and engine."
MARKED_TOO = "* and the answer rest in part on values not measured on this GPU and engine."
IDENTITY = ("GPU", "format", "TP", "engine")
LATENCIES = ("TTFT p95 ms", "TPOT ms", "E2E ms")
# Columns that a narrow page does without, the first to go first
SPARED = (
    "req/s per instance",
    "E2E ms",
    "USD a year",
    "TPOT ms",
    "req/s per 8 GPUs",
    "TTFT p95 ms",
    "bound by",
)
SPARED_BESIDE = ("bound by", "TTFT p95", "USD a year", "systems")  # likewise of a first screen

Costed = tuple["Candidate", float | None]
Column = tuple[str, Callable[["Candidate", float | None], str]]
NAMED: tuple[Column, ...] = (
    ("GPU", lambda c, _: of_pools(c, lambda pool: pool.gpu)),
    ("format", lambda c, _: of_pools(c, lambda pool: pool.precision)),
    ("TP", lambda c, _: of_pools(c, lambda pool: split(pool, " × ").removeprefix("TP "))),
    ("engine", lambda c, _: of_pools(c, lambda pool: pool.engine) + ("*" if c.marks else "")),
)
COUNTED: tuple[Column, ...] = (
    ("systems", lambda c, _: f"{c.systems:,}"),
    ("GPUs", lambda c, _: f"{c.gpus:,}"),
)
COLUMNS: tuple[Column, ...] = (
    *NAMED,
    ("req/s per instance", lambda c, _: number(c.requests_per_second_per_instance)),
    ("req/s per 8 GPUs", lambda c, _: number(c.requests_per_second_per_8_gpus)),
    ("systems exactly", lambda c, _: number(c.systems_exact)),
    *COUNTED,
    ("TTFT p95 ms", lambda c, _: number(c.ttft_ms.p95)),
    ("TPOT ms", lambda c, _: number(c.tpot_ms.mean)),
    ("E2E ms", lambda c, _: number(c.e2e_ms.mean)),
    ("USD a year", lambda _, cost: usd(cost)),
    ("bound by", lambda c, _: bound_text(c.binds)),
)
COLUMNS_BESIDE: tuple[Column, ...] = (
    *NAMED[:2],
    ("TP", lambda c, _: of_pools(c, lambda pool: split(pool).removeprefix("TP "))),
    *NAMED[3:],
    *COUNTED,
    ("USD a year", lambda _, cost: dollars(cost)),
    ("TTFT p95", lambda c, _: number((c if c.at_peak is None else c.at_peak).ttft_ms.p95)),
    ("bound by", lambda c, _: bound_text(c.binds)),
)


def others_block(plan: Plan, most_rows: int = ROWS) -> Table | Text | None:
    """The best deployments next to the choice, one line each, and why a requested GPU has none.

    The best of every GPU comes before others of one; deployments of many times the choice's GPUs
    are only counted.
    """
    if plan.choice is None:
        return None
    (best, _), *rest = zip(plan.candidates, yearly_costs(plan), strict=True)
    near = [pair for pair in rest if pair[0].gpus <= FAR * best.gpus]
    far = [c for c, _ in rest if c.gpus > FAR * best.gpus]
    absent_gpus = "".join(f"\nNo answer on {text}." for text in left_out_texts(plan))
    if not near:
        counted_only = (
            f"Other deployments inside the limits: {_far(best, far)}.{_on_others([best], far)}"
            if far
            else ""
        )
        return Text((counted_only + absent_gpus).strip()) if counted_only or absent_gpus else None
    shown = [
        near[place]
        for place in first_rows([c.pools[0].gpu for c in (best, *(c for c, _ in near))], most_rows)
    ]
    candidates = [c for c, _ in near if all(c is not candidate for candidate, _ in shown)]
    rows = _rows(COLUMNS_BESIDE, shown)
    formats = {row[1] for row in rows}
    names = [name for name, _ in COLUMNS_BESIDE]
    alike = {"format"} if len(formats) == 1 else set[str]()
    absent = {
        name
        for i, name in enumerate(names)
        if name not in IDENTITY and all(row[i] == ABSENT for row in rows)
    }
    in_format = f" in {formats.pop()}" if alike else ""
    loaded = "the peak" if all(c.at_peak is not None for c, _ in near) else "the highest load"
    facts = [
        text
        for name, text in (("USD a year", "; owned"), ("TTFT p95", f", TTFT in ms at {loaded}"))
        if name not in absent
    ]
    starred = any(c.marks for c, _ in shown)
    marked = (MARKED_TOO if best.marks else MARKED) if starred else ""
    table = Table(
        caption=f"Other deployments{in_format}, {first_text(plan)} first{''.join(facts)}",
        header=tuple(names),
        rows=rows,
        note="\n".join(
            filter(
                None,
                (
                    _without_row([best, *(c for c, _ in shown)], candidates, far),
                    absent_gpus.strip(),
                    marked,
                ),
            )
        ),
        spare=tuple(name for name in SPARED_BESIDE if name != _decides(plan)),
    )
    return table.without(alike | absent)


def _without_row(
    shown: Sequence[Candidate], near: Sequence[Candidate], far: Sequence[Candidate]
) -> str:
    """Deployments without a row: "… and 5 more, and 3 that need 10 to 130 times the GPUs; 1,616
    GPUs of mi355x would do".
    """
    texts = ([f"{len(near)} more"] if near else []) + ([_far(shown[0], far)] if far else [])
    return f"… and {', and '.join(texts)}{_on_others(shown, [*near, *far])}" if texts else ""


def _on_others(shown: Sequence[Candidate], candidates: Sequence[Candidate]) -> str:
    """The GPUs that have no row, and how many of each are needed."""
    shown_gpus = {c.pools[0].gpu for c in shown}
    fewest = {
        c.pools[0].gpu: c.gpus for c in reversed(candidates) if c.pools[0].gpu not in shown_gpus
    }
    needs = [f"{counted(count, 'GPU')} of {gpu}" for gpu, count in reversed(fewest.items())]
    return f"; {', '.join(needs)} would do" if needs else ""


def _far(best: Candidate, far: Sequence[Candidate]) -> str:
    low, high = (f"{end(c.gpus for c in far) / best.gpus:,.0f}" for end in (min, max))
    return (
        f"{len(far)} that {'need' if len(far) > 1 else 'needs'}"
        f" {low if low == high else f'{low} to {high}'} times the GPUs"
    )


def runner_up_text(plan: Plan) -> str:
    """The best on another GPU type: "2 × dgx-h200 (16 GPUs; 1.60 systems exactly), 140,000 USD a
    year more"; "" where there is none.
    """
    runner_up, best = plan.runner_up, plan.choice
    if runner_up is None or best is None:
        return ""
    more = runner_up.more_usd_per_year
    cost = (
        ""
        if more is None
        else f", {dollars(abs(more))} USD a year {'more' if more >= 0 else 'less'}"
    )
    exactly = f"{counted(runner_up.gpus, 'GPU')}; {exactly_text(runner_up.systems_exact)}"
    runs = unlike(best, runner_up.deployment, gpu=False)
    return (
        f"{runner_up.systems:,} × {runner_up.system} ({exactly}){f': {runs}' if runs else ''}{cost}"
    )


def candidates_table(plan: Plan) -> Table | None:
    """One row for each deployment inside the limits, the fewest GPUs first."""
    candidates = plan.candidates
    if not candidates:
        return None
    scenario = plan.scenario
    lengths = (
        f"{scenario.model},"
        f" {in_tokens(scenario.isl, scenario.mean_isl)}/"
        f"{in_tokens(scenario.osl, scenario.mean_osl)} tokens"
    )
    within = f"{counted(len(candidates), 'deployment')} inside the limits, {first_text(plan)} first"
    table = Table(
        caption=f"{within} ({lengths}), each at its highest load there",
        header=tuple(name for name, _ in COLUMNS),
        rows=_rows(COLUMNS, list(zip(candidates, yearly_costs(plan), strict=True))),
        chosen=0,
        folded=len(candidates) > OPEN,
        note=MARKED if any(c.marks for c in candidates) else "",
        spare=tuple(name for name in SPARED if name != _decides(plan)),
    )
    return table.filled(*LATENCIES, "USD a year")


def _rows(columns: Sequence[Column], costed: Sequence[Costed]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(read(candidate, cost) for _, read in columns) for candidate, cost in costed)


def _decides(plan: Plan) -> str:
    """The column that the choice was made by, which stays however narrow the page is; "" where it
    is one that always stays.
    """
    return (
        ""
        if plan.aim is None
        else {"cost": "USD a year", "latency": "E2E ms"}.get(plan.aim.objective, "")
    )


def yearly_costs(plan: Plan) -> tuple[float | None, ...]:
    """USD a year of every candidate owned for the peak, where it is known."""
    if len(plan.pareto) != len(plan.candidates):
        return (None,) * len(plan.candidates)
    return tuple(point.cost_per_year for point in plan.pareto)


UNFOLDED_REJECTED = 12  # rows up to which a page shows the table open
# Reasons that no limit and no memory would change: told only where there is no other
NEVER = (
    why.VendorUnsupported,
    why.PrecisionUnsupported,
    why.TargetLacks,
    why.WiderThanSystem,
    why.TooManyStages,
    why.DoesNotDivide,
)


def rejected_section(plan: Plan) -> Section:
    """Deployments on one GPU that fail for one reason share a row, each with its own number."""
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for rejected in plan.rejected:
        why_not, detail = _grouped(rejected.reason)
        degrees = split(rejected, " × ").removeprefix("TP ") + (f" ({detail})" if detail else "")
        groups.setdefault((rejected.gpu, why_not), {}).setdefault(
            f"{rejected.precision} {rejected.engine}", []
        ).append(degrees)
    if not groups:
        return section("rejected", "Rejected, and why")
    rows = tuple(
        (
            gpu,
            why_not,
            "; ".join(
                f"{kind} TP {', '.join(degrees_list)}" for kind, degrees_list in kinds.items()
            ),
        )
        for (gpu, why_not), kinds in groups.items()
    )
    table = Table(
        caption=(
            f"{counted(len(plan.rejected), 'deployment')} that cannot carry the load, or that"
            " another one outdoes"
        ),
        header=("GPU", "reason", "deployments"),
        rows=rows,
        folded=len(rows) > UNFOLDED_REJECTED,
    )
    left_out = left_out_texts(plan)
    nearest = (
        Text(f"Left out, with the reason that comes nearest: {'; '.join(left_out)}.")
        if left_out
        else None
    )
    return section("rejected", "Rejected, and why", nearest, table)


def _grouped(reason: why.Reason) -> tuple[str, str]:
    """The part of a reason that several deployments share, and the number that differs; "" where
    all of it is shared.
    """
    match reason:
        case why.CannotRun():
            needs, misfit, _ = reason.error.partition(" do not fit ")
            return ("does not fit the memory of its GPUs", needs) if misfit else (reason.error, "")
        case why.Outdone() if reason.needed_per_gpu is not None:
            needed = (
                f"{number(reason.needed_per_gpu)} are needed to take fewer GPUs than"
                f" {deployment_text(reason.other)}"
            )
            return f"at most so many requests/s per GPU by closed form, and {needed}", number(
                reason.at_most_per_gpu
            )
        case why.Behind():
            needed = f"which are needed to take fewer GPUs than {deployment_text(reason.other)}"
            return (
                f"breaks a limit at {number(reason.per_gpu)} requests/s per GPU, {needed}",
                breach_text(reason.breach),
            )
        case why.NeedsMoreGpus():
            detail = (
                f"{counted(reason.gpus, 'GPU')}, {number(reason.systems_exact)} systems exactly"
            )
            return (
                (
                    f"takes no fewer GPUs than {deployment_text(reason.other)},"
                    f" {counted(reason.other_gpus, 'GPU')}"
                ),
                detail,
            )
        case why.BrokenAtAnyLoad(lowest=None):
            return f"breaks {reason.breach.limit} at any load", _value_text(reason.breach)
        case why.NotSure():
            slower = f"where steps take {number(reason.step_factor)} times as long as predicted"
            fails = (
                f"breaks {reason.breach.limit} at any load"
                if reason.breach.broken
                else alone_text(reason.breach)
            )
            return f"{fails} {slower}", _value_text(reason.breach)
        case why.AboveSaturation():
            return (
                (
                    f"saturates below the {number(reason.requests_per_second)} requests/s that it"
                    " has to carry"
                ),
                number(reason.most),
            )
        case _:
            return reason_text(reason), ""


def _value_text(breach: Breach) -> str:
    return "not measured" if breach.value_ms is None else value_text(breach.limit, breach.value_ms)


def nearest_table(plan: Plan, most_rows: int) -> Table | None:
    """The nearest deployment of each GPU that is not among the answers, and what it breaks.

    None where every GPU is, or where the line of what is reachable says the same of the only one.
    """
    left_out = _left_out(plan)
    reached = (
        set() if plan.reachable is None else {value.deployment for value in plan.reachable.best}
    )
    if (
        len(left_out) == 1
        and isinstance(left_out[0].reason, why.BrokenAtAnyLoad)
        and reached == {left_out[0].identity}
    ):
        return None
    rows = tuple(
        (rejected.gpu, _name(rejected), reason_text(rejected.reason))
        for rejected in left_out[:most_rows]
    )
    more = (
        f"… and {counted(len(left_out) - most_rows, 'more GPU')}"
        if len(left_out) > most_rows
        else ""
    )
    header = ("GPU", "nearest deployment", "why it fails")
    return (
        Table(caption="The nearest deployment of each GPU", header=header, rows=rows, note=more)
        if rows
        else None
    )


def left_out_texts(plan: Plan) -> tuple[str, ...]:
    """Such as "l40s: TTFT p95 612 ms > 500 ms at any load (fp8 TP 8 vllm-0.32)"."""
    return tuple(
        f"{rejected.gpu}:"
        f" {reason_text(rejected.reason)}{f' ({name})' if (name := _name(rejected)) else ''}"
        for rejected in _left_out(plan)
    )


def _left_out(plan: Plan) -> tuple[Rejected, ...]:
    """The nearest rejected deployment of every requested GPU that is not among the answers."""
    inside = {pool.gpu for candidate in plan.candidates for pool in candidate.pools}
    refused = (
        [rejected for rejected in plan.rejected if rejected.gpu == gpu]
        for gpu in plan.scenario.gpus
        if gpu not in inside
    )
    return tuple(min(group, key=_far_from_limits) for group in refused if group)


def _name(rejected: Rejected) -> str:
    """A deployment without its GPU; "" where the reason is that of the GPU or the engine as
    such.
    """
    return (
        ""
        if isinstance(rejected.reason, NEVER)
        else deployment_text(rejected).removeprefix(rejected.gpu).strip()
    )


def _far_from_limits(refused: Rejected) -> tuple[int, float]:
    """How far a deployment is from an answer: what it costs or takes first, limits by their factor,
    then memory, then what never works.
    """
    reason = refused.reason
    if isinstance(reason, (TooMuch, why.CannotRun, *NEVER)):
        return (
            -1 if isinstance(reason, TooMuch) else 1 if isinstance(reason, why.CannotRun) else 2
        ), 0.0
    breach = getattr(reason, "breach", None)
    value = None if breach is None else breach.value_ms
    return 0, float("inf") if breach is None or value is None else value / breach.limit.milliseconds


def reachable_text(reachable: Reachable) -> str:
    """The best values, and by which deployment each is reached; then the deployment that comes
    nearest to all limits, if it is another.
    """
    who: dict[Identity, list[Reached]] = {}
    for reached in reachable.best:
        who.setdefault(reached.deployment, []).append(reached)
    best = "; ".join(map(_values_text, who.values()))
    nearest = (
        ""
        if set(who) == {reachable.nearest[0].deployment}
        else f"; nearest to all limits: {_values_text(reachable.nearest)}"
    )
    inside = all(value.value_ms <= value.asked_ms for value in reachable.nearest)
    alone = (
        ", so the limits hold with one request at a time, and at no load above that"
        if inside
        else ""
    )
    return best + nearest + alone


def _values_text(values: Sequence[Reached]) -> str:
    """Such as "TTFT p95 35.2 ms (asked: 1 ms) by h100-sxm-80gb fp8 TP 8 vllm-0.32"."""
    return f"{', '.join(map(_value, values))} by {deployment_text(values[0].deployment)}"


def _value(reached: Reached) -> str:
    if reached.limit is not None and reached.limit.share is not None:
        return f"{reached.limit}: {value_text(reached.limit, reached.value_ms)}"
    if reached.limit is None:
        return (
            f"one request {format_duration(reached.value_ms / 1e3)} (asked:"
            f" {format_duration(reached.asked_ms / 1e3)})"
        )
    return (
        f"{reached.limit.name} {value_text(reached.limit, reached.value_ms)} (asked:"
        f" {value_text(reached.limit, reached.asked_ms)})"
    )


def most_text(reason: TooMuch) -> str:
    """What the most that is allowed is good for, such as "400,000 USD buy 1 × dgx-h100, which
    carries 140 requests/s".
    """
    systems, rate = reason.most_systems or 0, reason.most_requests_per_second or 0.0
    match reason:
        case why.OverBudget():
            if reason.budget_of == "year":
                return (
                    f"{dollars(reason.budget_usd)} USD a year pay for"
                    f" {f'{number(rate)} requests/s' if rate else 'no instance'}"
                )
            allowance = f"{dollars(reason.budget_usd)} USD buy"
        case why.OverPower():
            allowance = f"{plain(reason.most_kw)} kW feed"
        case why.OverRacks():
            allowance = (
                f"{counted(reason.most_racks, 'rack')} of {plain(reason.rack_kw)} kW"
                f" {'holds' if reason.most_racks == 1 else 'hold'}"
            )
    if not systems:
        return f"{allowance} no system"
    carry = "carries" if systems == 1 else "carry"
    return (
        f"{allowance} {systems:,} × {reason.system}, which {carry}"
        f" {f'{number(rate)} requests/s' if rate else 'no load'}"
    )


def taken(reason: TooMuch) -> float | None:
    """The systems that the whole load takes."""
    return (
        reason.usd
        if isinstance(reason, why.OverBudget)
        else reason.kw
        if isinstance(reason, why.OverPower)
        else reason.racks
    )


def taken_text(reason: TooMuch) -> str:
    """State what the whole load takes, such as "930,000 USD to buy"; "" where it is not known."""
    match reason:
        case why.OverBudget():
            return (
                ""
                if reason.usd is None
                else (
                    f"{dollars(reason.usd)} USD"
                    f" {'to buy' if reason.budget_of == 'purchase' else 'a year'}"
                )
            )
        case why.OverPower():
            return "" if reason.kw is None else f"{number(reason.kw)} kW"
        case why.OverRacks():
            return "" if reason.racks is None else counted(reason.racks, "rack")


def _exceeded(reason: TooMuch) -> str:
    need = taken_text(reason)
    match reason:
        case why.OverBudget():
            budget = f"the budget of {dollars(reason.budget_usd)} USD"
            return (
                f"{need}, over {budget}"
                if need
                else f"it has no price that could be held against {budget}"
            )
        case why.OverPower():
            drawn = f"its systems draw {need}" if need else "the power of its systems is not known"
            return f"{drawn}, {plain(reason.most_kw)} kW are allowed"
        case why.OverRacks():
            racks = f"its systems take {need}" if need else "the power of its systems is not known"
            return f"{racks}, {reason.most_racks:,} of {plain(reason.rack_kw)} kW are allowed"


def reason_text(reason: why.Reason) -> str:
    """The reason with its numbers, as one clause."""
    match reason:
        case why.OverBudget() | why.OverPower() | why.OverRacks():
            return _exceeded(reason) + (
                f"; {most_text(reason)}" if reason.most_requests_per_second else ""
            )
        case why.VendorUnsupported():
            kind = reason.generation or reason.vendor
            return f"{reason.engine} does not run on {kind} accelerators"
        case why.PrecisionUnsupported():
            return f"{reason.subject} has {reason.lacks}"
        case why.TargetLacks():
            return reason.lacks
        case why.WiderThanSystem():
            which = f"TP {reason.tp}{f' × DP {reason.dp}' if reason.dp > 1 else ''}"
            return f"{which} needs more GPUs than the {reason.system_gpus} of one {reason.system}"
        case why.TooManyStages():
            return f"PP {reason.pp} has more stages than {reason.model} has layers, {reason.layers}"
        case why.CannotRun():
            return reason.error
        case why.DoesNotDivide():
            return (
                f"an instance of {reason.gpus} GPUs does not divide the {reason.system_gpus} of one"
                f" {reason.system}"
            )
        case why.ThroughputNotMeasured():
            return "its requests/s were not measured"
        case why.StatisticNotMeasured():
            return f"{reason.metric.upper()} {reason.statistic} was not measured"
        case why.NoMeasuredLoadHolds():
            broken = [
                f"{breach_text(breach.breach)} ({measured_load_text(breach.load)})"
                for breach in reason.breaches
            ]
            return f"no load measured meets every limit: {', '.join(broken)}"
        case _:
            return _simulated(reason)


def _simulated(reason: why.Reason) -> str:
    match reason:
        case why.Outdone(needed_per_gpu=None):
            return f"by closed form at no load better than {deployment_text(reason.other)}"
        case why.Outdone():
            return (
                f"at most {number(reason.at_most_per_gpu)} requests/s per GPU by closed form; with"
                f" fewer than {number(reason.needed_per_gpu)} it needs no fewer GPUs than"
                f" {deployment_text(reason.other)}"
            )
        case why.Behind():
            return (
                f"{breach_text(reason.breach)} at {number(reason.requests_per_second)} requests/s,"
                f" {number(reason.per_gpu)} per GPU; with fewer it needs no fewer GPUs than"
                f" {deployment_text(reason.other)}"
            )
        case why.NeedsMoreGpus():
            return (
                f"it takes {counted(reason.gpus, 'GPU')} ({number(reason.systems_exact)} systems"
                f" exactly), {deployment_text(reason.other)} {counted(reason.other_gpus, 'GPU')}"
            )
        case why.NotSure():
            return (
                f"{alone_text(reason.breach)} where steps take {number(reason.step_factor)} times"
                " as long as predicted"
            )
        case why.AboveSaturation():
            return (
                f"{number(reason.requests_per_second)} requests/s exceed the {number(reason.most)}"
                " of saturation"
            )
        case why.TooSlowForJob():
            return (
                f"one request takes {format_duration(reason.seconds)} >"
                f" {format_duration(reason.allowed)}"
            )
        case why.NothingMeetsLimits():
            return "no deployment meets the limits"
        case why.BrokenAtAnyLoad():
            measured = (
                ""
                if reason.lowest is None
                else f"every load measured (lowest: {measured_load_text(reason.lowest)})"
            )
            return f"{breach_text(reason.breach)} at {measured or 'any load'}"
        case why.BrokenEarly():
            at = (
                f"{number(reason.requests_per_second)} requests/s,"
                f" {percent(reason.share_of_saturation)} of saturation"
            )
            return f"{breach_text(reason.breach)} already at {at}"
        case why.BrokenInVerification():
            return (
                f"{breach_text(reason.breach)} at {number(reason.requests_per_second)} requests/s"
                " in the verifying run"
            )
        case why.BrokenOnManyInstances():
            return f"{breach_text(reason.breach)} even with {counted(reason.instances, 'instance')}"
    raise TypeError(reason.code)


def larger_text(plan: Plan, warning: Warning) -> str:
    """What one larger card would cost that takes the place of several over PCIe; "" for other
    warnings.
    """
    if not isinstance(warning, WideOverPcie):
        return ""
    priced = zip(plan.candidates, yearly_costs(plan), strict=True)
    fewer = (
        (c, cost)
        for c, cost in priced
        if len(c.pools) == 1 and c.pool.gpu != warning.gpu and c.pool.parallelism.tp < warning.tp
    )
    card, cost = next(fewer, (None, None))
    if card is None:
        return f" ({option('gpu')} {warning.larger} sizes and prices it)" if warning.larger else ""
    price = "" if cost is None else f", {dollars(cost)} USD a year"
    return (
        f": {card.pool.gpu} at TP {card.pool.parallelism.tp} needs"
        f" {counted(card.gpus, 'GPU')}{price}"
    )
