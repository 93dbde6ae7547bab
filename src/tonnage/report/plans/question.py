"""The question as the plan understood it: its lines, and lengths, demand and aim in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, dollars, number, percent, plain, span, whole
from tonnage.spec.use_cases import FAST_READING_S, READING_P99_S, READING_S
from tonnage.units import format_duration

if TYPE_CHECKING:  # a run is shown by some of these words too, and loads no plan
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.demand import Demand, DemandSource
    from tonnage.plan.fleet import AtPeak
    from tonnage.plan.limit import Bound, Breach, Limit
    from tonnage.plan.notes import OlderPreset
    from tonnage.plan.plan import Plan
    from tonnage.results.metrics import Attained, Latencies
    from tonnage.spec.scenario import Objective

METRICS = ("ttft", "itl", "tpot", "e2e")
BOUNDS = {
    "saturation": "saturation",
    "throughput": "throughput",
    "highest-measured": "the highest throughput measured",
}

LITTLE = 0.01  # share below which no number is named

ALWAYS = ("ttft", "tpot", "e2e")  # metrics that are named with their mean where no limit names them


def breach_text(breach: Breach) -> str:
    """Such as "TTFT p95 612 ms > 500 ms", or "95% of requests take up to 1.2 times TTFT ≤ 500 ms &
    TPOT ≤ 50 ms".
    """
    limit, value = breach.limit, breach.value_ms
    name = limit.name
    if value is None:
        return f"{name} was not measured"
    if limit.asked.is_ratio:
        return f"{name} {value / 1e3:.2f}× > {limit.seconds:g}×"
    if limit.share is not None:
        share, _, parts = str(limit).partition(": ")
        times = number(value / 1e3)
        return (
            f"{share} of requests take up to {times if times != '1.00' else f'{value / 1e3:.5g}'}"
            f" times {parts}"
        )
    shown, bound = format_duration(value / 1e3), format_duration(limit.seconds)
    if shown == bound:
        shown, bound = f"{value:.6g} ms", f"{plain(limit.milliseconds)} ms"
    return f"{name} {shown} > {bound}"


def alone_text(breach: Breach) -> str:
    """What a single request comes to: "TTFT p95 612 ms > 500 ms at any load", or "a single request
    comes near TTFT p95 ≤ 500 ms".
    """
    return (
        f"{breach_text(breach)} at any load"
        if breach.broken
        else f"a single request comes near {breach.limit}"
    )


def value_text(limit: Limit, value: float) -> str:
    """A value of what is limited, in milliseconds, such as "612 ms"; of joint attainment "1.2 times
    its limits".
    """
    if limit.asked.is_ratio:
        return f"{value / 1e3:.2f}×"
    return (
        format_duration(value / 1e3)
        if limit.share is None
        else f"{number(value / 1e3)} times its limits"
    )


def attained_text(attainment: Attained) -> str:
    """Such as "95%: TTFT ≤ 500 ms & TPOT ≤ 50 ms: met by 97.1% of requests (96.2 to 97.8%), goodput
    11.6 requests/s".
    """
    between = f"{100 * attainment.low:.3g} to {100 * attainment.high:.3g}%"
    return (
        f"{attainment.limits}: met by {100 * attainment.share:.3g}% of requests ({between}),"
        f" goodput {number(attainment.requests_per_second)} requests/s"
    )


def bound_text(bound: Bound) -> str:
    """What ends a load: a limit, saturation, the throughput of a job, or the last point of a
    benchmark.
    """
    return BOUNDS[bound.kind] if bound.limit is None else str(bound.limit)


def latency(candidate: Candidate | AtPeak, metrics: tuple[str, ...] = METRICS) -> tuple[str, ...]:
    """Mean and high percentiles of each latency that is known, such as "TTFT mean 104, p95 232, p99
    305 ms".
    """
    lines = []
    for metric in metrics:
        values = getattr(candidate, f"{metric}_ms")
        figures = [
            f"{name} {number(value)}"
            for name in ("mean", "p95", "p99")
            if (value := getattr(values, name)) is not None
        ]
        lines += [f"{metric.upper()} {', '.join(figures)} ms"] if figures else []
    return tuple(lines)


def at_peak_text(peak: AtPeak, limits: Sequence[Limit]) -> str:
    """Such as "TTFT p95 189 ms (limit 500), TPOT p95 28.3 ms (limit 50), E2E mean 4,034 ms; 79% of
    capacity".
    """
    latencies = ", ".join(
        f"{name} {value} ms{limit}" for name, value, limit in peak_values(peak, limits)
    )
    for attainment, sure in zip(peak.attained or (), peak.sure or (), strict=True):
        latencies += f"; {attained_text(attainment)}; {100 * sure:.3g}% at the asked confidence"
    used = used_text(peak.utilisation)
    return f"{latencies}; {used}" if latencies else used


def used_text(share: float) -> str:
    """State how much of what the fleet carries inside the limits is used: "79% of capacity"."""
    return f"{used_share(share)} of capacity"


def used_share(share: float) -> str:
    """The share alone: "79%", or "under 1%"."""
    return percent(share) if share >= LITTLE else "under 1%"


def peak_values(peak: AtPeak, limits: Sequence[Limit]) -> tuple[tuple[str, str, str], ...]:
    """Name, value in milliseconds and limit of every limited statistic, and of the mean of what is
    not limited.

    Where gaps between tokens are limited, they stand for the time per token as well.
    """
    rows = []
    gaps = any(bound.metric == "itl" for bound in limits)
    for metric in METRICS:
        values: Latencies = getattr(peak, f"{metric}_ms")
        limited = [
            (bound.statistic, f" (limit {plain(bound.milliseconds)})")
            for bound in limits
            if bound.metric == metric
        ]
        for statistic, limit in limited or (
            [("mean", "")] if metric in ALWAYS and not (gaps and metric == "tpot") else []
        ):
            value = values.value(statistic)
            if value is not None:
                rows.append((f"{metric.upper()} {statistic}", number(value), limit))
    return tuple(rows)


def pace_text(itl_mean_s: float, itl_p99_s: float) -> str:
    """Such as "faster than a fast reader (90 ms per token), and p99 is within the 250 ms that
    readers accept"; both in seconds.
    """
    fast, usual = (f"{whole(1e3 * seconds)} ms" for seconds in (FAST_READING_S, READING_S))
    if itl_mean_s <= FAST_READING_S:
        than = f"faster than a fast reader ({fast} per token)"
    elif itl_mean_s <= READING_S:
        than = f"faster than an average reader ({usual} per token), slower than a fast one ({fast})"
    else:
        than = f"slower than an average reader ({usual} per token)"
    inside = "within" if itl_p99_s <= READING_P99_S else "beyond"
    return f"{than}, and p99 is {inside} the {whole(1e3 * READING_P99_S)} ms that readers accept"


_SPREAD = re.compile(r"(normal|lognormal|uniform):(\d+(?:\.\d+)?),(\d+(?:\.\d+)?)")
_EITHER = re.compile(r"(\d+(?:\.\d+)?)\+-(\d+(?:\.\d+)?)")
_OTHERWISE = re.compile(r"(\d+(?:\.\d+)?)(words|chars)")
_WITHIN = re.compile(r"(.+)\+-(\d+(?:\.\d+)?%)(?:\+(\d+(?:\.\d+)?))?")
_RANGE = re.compile(r"uniform:(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")

_VALUE = re.compile(r"[:,]\s*([\d.e+-]+)\s*:")  # A value of a histogram, before its weight

LEAST: dict[Objective, str] = {
    "gpus": "fewest GPUs",
    "cost": "lowest cost of a year",
    "power": "least power of the systems",
    "latency": "lowest mean E2E at the peak",
}


def question_rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Name and text of each line of the question."""
    shares = f"; with {plan.scenario.shares}" if plan.scenario.shares else ""
    rows = (
        ("Question", f"{plan.scenario.model}, {lengths_text(plan)}{shares}"),
        (
            "Model",
            next((note.model.reading for note in plan.notes if note.code == "model-read"), ""),
        ),
        (
            "Engine",
            "; ".join(newer_text(note) for note in plan.notes if note.code == "older-preset"),
        ),
        ("Demand", demand_text(plan.demand)),
        ("Limits", ", ".join(map(str, plan.scenario.limits)) or "none"),
        ("Aim", aim_text(plan)),
    )
    return tuple(row for row in rows if row[1])


def newer_text(note: OlderPreset) -> str:
    """Name the preset that answers for a newer engine."""
    return f"{note.requested} is newer than every preset; {note.preset} answers for it"


def lengths_text(plan: Plan) -> str:
    """Such as "2,000 tokens in, 200 out (lengths within ±20%, assumed)", or "(lengths as spread as
    recorded chat)".
    """
    from tonnage.plan.notes import LengthsVary

    understood = plan.scenario
    assumed = next((note for note in plan.notes if isinstance(note, LengthsVary)), None)
    isl, osl = (
        in_tokens(understood.isl, understood.mean_isl),
        in_tokens(understood.osl, understood.mean_osl),
    )
    if assumed is None:
        return f"{isl} tokens in, {osl} out"
    share = percent(assumed.share)
    isl, osl = (
        (
            text
            if which not in assumed.which
            else plain(round(mean))
            if assumed.recorded
            else text.replace(f" ± {share}", "", 1)
        )
        for which, text, mean in (
            ("isl", isl, understood.mean_isl),
            ("osl", osl, understood.mean_osl),
        )
    )
    which = (
        "lengths" if len(assumed.which) > 1 else "prompts" if "isl" in assumed.which else "answers"
    )
    spread = (
        f"as spread as recorded {assumed.recorded}"
        if assumed.recorded
        else f"within ±{share}, assumed"
    )
    return f"{isl} tokens in, {osl} out ({which} {spread})"


def first_text(plan: Plan) -> str:
    """Name what candidates are sorted by: "fewest GPUs"."""
    objective: Objective = "gpus" if plan.aim is None else plan.aim.objective
    return "lowest cost" if objective == "cost" and plan.demand.offline else LEAST[objective]


def aim_text(plan: Plan) -> str:
    """The objective and the maxima in one clause; "" without an aim."""
    aim = plan.aim
    if aim is None:
        return ""
    caps = []
    if aim.budget_usd is not None:
        caps.append(
            f"at most {dollars(aim.budget_usd)} USD"
            f" {'to buy' if aim.budget_of == 'purchase' else 'a year'}"
        )
    if aim.max_kw is not None:
        caps.append(f"at most {plain(aim.max_kw)} kW")
    if aim.max_racks is not None:
        caps.append(f"at most {counted(aim.max_racks, 'rack')} of {plain(aim.rack_kw)} kW")
    return ", ".join((first_text(plan), *caps))


def length_text(written: str) -> str:
    """A length as a question writes it, in words; a form that has none, such as the name of a file,
    unchanged.
    """
    if (match := _WITHIN.fullmatch(written)) is not None:
        return (
            f"{length_text(match[1])} ±"
            f" {match[2]}{f' + {plain(float(match[3]))}' if match[3] else ''}"
        )
    if written.startswith("exact:"):
        return f"exactly {length_text(written.removeprefix('exact:'))}"
    if re.fullmatch(r"\d+(\.\d+)?", written):
        return f"{plain(round(float(written)))} tokens"
    if (match := _RANGE.fullmatch(written)) is not None:
        return f"{plain(float(match[1]))} to {plain(float(match[2]))} tokens"
    if (match := _EITHER.fullmatch(written)) is not None:
        return f"{plain(float(match[1]))} ± {plain(float(match[2]))} tokens (normal)"
    if (match := _SPREAD.fullmatch(written)) is not None:
        return f"{plain(float(match[2]))} ± {plain(float(match[3]))} tokens ({match[1]})"
    if written.startswith("histogram:"):
        values = [float(value) for value in _VALUE.findall(written)]
        return f"{plain(min(values))} to {plain(max(values))} tokens (histogram)"
    if (match := _OTHERWISE.fullmatch(written)) is not None:
        return f"{plain(float(match[1]))} {'words' if match[2] == 'words' else 'characters'}"
    return f"{written} tokens"


def short_length(written: str) -> str:
    """A length in words without its unit, "2,000", "500 to 3,500", "600 ± 400 (lognormal)"; a
    length in words keeps "words".
    """
    return length_text(written).replace(" tokens", "", 1)


def in_tokens(written: str, mean: float) -> str:
    """A length in tokens: "2,000", "500 to 3,500"; "2,000 (8,000 characters)" where it was written
    in something else.

    Of a histogram it is the mean and the range, "3,000 (histogram, 1,000 to 6,000)", of a file the
    mean and its name, "1,987 (trace.csv)".
    """
    if written.endswith(")") and " (mean " in written:
        return f"{mean:,.0f} ({written.rpartition(' (mean ')[0]})"
    if written.startswith("histogram:"):
        return f"{mean:,.0f} (histogram, {short_length(written).removesuffix(' (histogram)')})"
    return (
        f"{mean:,.0f} ({length_text(written)})"
        if re.match(r"[\d.,]+ ?(chars|words)", written)
        else short_length(written)
    )


def demand_text(demand: Demand) -> str:
    """The rate that the systems are sized for, and what it was made of."""
    source = demand.source
    if source.kind == "trace":
        return _trace(demand, source)
    if source.kind == "existing":
        return (
            f"none asked: the {number(demand.sizing_requests_per_second)} requests/s that the"
            " systems carry"
        )
    if source.kind == "sessions":
        whose = f" ({plain(source.engineers)} engineers)" if source.engineers is not None else ""
        sessions = f"{number(source.sessions)} recorded sessions at once{whose}"
        return (
            f"{sessions}, {number(demand.sizing_requests_per_second)} requests/s at the recorded"
            f" pace{source.trace_change}"
        )
    if source.kind == "concurrency":
        stay = (source.concurrency or 0.0) / demand.sizing_requests_per_second
        what = f"{plain(source.concurrency)} requests at once at the peak"
        return (
            f"{what}: {number(demand.sizing_requests_per_second)} requests/s, each there for"
            f" {stay:.3g} s"
        )
    if source.kind == "job":
        rate = f"{number(demand.sizing_requests_per_second, 4)} requests/s throughout, no peak"
        return (
            f"{many(demand.offline_requests or 0)} requests within"
            f" {span(demand.offline_seconds or 0.0)}: {rate}"
        )
    rate = f"{plain(demand.sizing_requests_per_second)} requests/s"
    if source.profile_hours is None and source.kind == "peak":
        return f"{rate} at the peak, as given"
    if source.profile_hours is None:
        mean, name, times, origin = (
            source.requests_per_second,
            "the mean",
            "the mean of",
            _origin(source),
        )
    else:
        mean, name, times, origin = (
            max(demand.profile or (0.0,)),
            "the busiest hour",
            "the busiest hour's",
            _profile(demand, source),
        )
    if demand.factor is not None:
        return f"{rate} at the peak: {plain(demand.factor)} × {times} {plain(mean)}{origin}"
    return (
        f"{rate}: {name}{origin}"
        if demand.percentile is None
        else f"{rate}: {_second(demand, mean, name + origin)}"
    )


def many(count: float) -> str:
    """A count, in millions where it is that large."""
    return f"{plain(count / 1e6)} million" if count >= 1e6 else f"{count:,.10g}"


def _second(demand: Demand, mean: float | None, name: str) -> str:
    """State whether a mean or a percentile of its Poisson arrivals in one second is sized for, and
    why.
    """
    peak, counted = demand.peak_requests_per_second, demand.source.counted
    second = f"{plain(demand.percentile)}th percentile of the arrivals in one second"
    if peak == mean:
        return f"{name}; the {second}, {plain(counted)}, is not above it"
    if demand.sizing_requests_per_second == peak:
        return f"the {second}; {plain(mean)} is {name}"
    return (
        f"{name}; Tonnage simulates arrivals at this rate, bursts included; {second}, for"
        f" comparison: {plain(peak)}"
    )


def _origin(source: DemandSource) -> str:
    if source.kind == "calls":
        calls = "call" if source.calls_per_year == 1 else "calls"
        requests = "request" if source.requests_per_call == 1 else "requests"
        return (
            f" ({many(source.calls_per_year or 0)} {calls} a year ×"
            f" {plain(source.requests_per_call)} {requests})"
        )
    if source.kind == "users":
        daily = (
            f"{plain(source.requests_per_user_day)} requests a day over"
            f" {plain(source.working_hours)} working hours"
        )
        return f" ({many(source.users or 0)} users × {daily})"
    return ""


def _profile(demand: Demand, source: DemandSource) -> str:
    """The hours that a busiest one is of, and their mean, in brackets."""
    shape = f"profile of {source.profile_hours} hours"
    if source.kind == "peak":
        shape += f" with its busiest at {plain(source.requests_per_second)}/s"
    elif source.kind != "profile":
        shape += f" over a mean of {plain(source.requests_per_second)} requests/s{_origin(source)}"
    return f" ({shape}, mean of all hours {plain(demand.mean_requests_per_second)})"


def _trace(demand: Demand, source: DemandSource) -> str:
    mean, peak, poisson = (
        demand.mean_requests_per_second,
        demand.peak_second or 0,
        demand.poisson_peak_requests_per_second or 0.0,
    )
    by_second = (
        f"{peak} requests/s: the busiest second of the "
        if demand.sizing_requests_per_second == peak != mean
        else ""
    )
    burst = (
        f"; a Poisson peak of that mean would be {plain(poisson)} (95th percentile of seconds)"
        if peak > poisson
        else ""
    )
    bursty = " (Poisson: 1)" if demand.bursty else ""
    return (
        f"{by_second}trace {PurePath(source.trace).name}{source.trace_change}:"
        f" {source.trace_requests:,} requests in {whole(source.trace_seconds)} s, mean"
        f" {number(mean)}/s, busiest second {peak}, CV of the gaps"
        f" {number(demand.cv)}{bursty}{burst}"
    )
