"""Measurements as documents: the verdict first, then the numbers; imported runs, two runs side by
side, a run next to its plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.report.document import (
    Document,
    Drawing,
    Facts,
    Table,
    Text,
    charted,
    document,
    items,
    section,
)
from tonnage.report.drawing.figure import Axis, Plot, Point, Series
from tonnage.report.numbers import (
    ABSENT,
    STATISTICS,
    between,
    counted,
    number,
    sentence_of,
    statistics,
)
from tonnage.report.plans.question import attained_text
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.bench.benchmark import Measured
    from tonnage.bench.find_max import Maximum
    from tonnage.bench.intervals import Comparison, Ratio
    from tonnage.bench.selftest import SelfTest
    from tonnage.evidence.replay import MetricBeside, RunBesidePlan
    from tonnage.results.metrics import Summary
    from tonnage.serve.demonstration import Demonstration, Failure

METRICS = ("ttft", "itl", "tpot", "e2e")
SWEPT = (
    "load",
    "TTFT ms",
    "p95",
    "ITL ms",
    "p99",
    "TPOT ms",
    "E2E ms",
    "requests/s",
    "tokens/s",
    "verdict",
)
# How completed outputs ended, by the server's finish reason
ENDS = {
    "": "without a reason for their end",
    "completed": "whole",
    "content_filter": "cut by a content filter",
    "function_call": "with a call of a function",
    "length": "at the length limit",
    "max_output_tokens": "at the length limit",
    "stop": "ended by the model",
    "tool_calls": "with calls of tools",
}
WAYS = {"on-prem": "owned systems, their share", "cloud": "cloud GPUs"}
SELF_TEST = (
    (
        "TTFT",
        (
            "as the client reports it, from the moment of sending; the server's: its first write −"
            " its receipt of the request"
        ),
    ),
    (
        "bias",
        (
            "the client's stamp of a first token (last token) − the server's stamp of its write;"
            " one clock, one machine"
        ),
    ),
    ("tokens/s at most", "where the client's CPU for each token would take 85 % of a core"),
)


def measured(runs: Sequence[Measured]) -> Document:
    """One load in full, or one line per load of a sweep; what makes a run invalid is above its
    numbers.
    """
    from tonnage.results.metrics import DEFINITIONS

    verdicts = []
    for run in runs:
        items = (
            f", {int(run.load.isl[0])} items each"
            if run.run_json["endpoint"]["type"] == "infer"
            else ""
        )
        verdicts.append(Text(f"{run.load.words}{items}: {run.validity.verdict}"))
        verdicts += [Text(f"invalid: {reason}", tone="warning") for reason in run.validity.reasons]
        verdicts += [Text(f"note: {note}") for note in run.validity.notes]
    infers = runs[0].run_json["endpoint"]["type"] == "infer"
    body = (
        (_inferences(runs),)
        if infers
        else (_statistics(runs[0]), Text(_rates(runs[0])))
        if len(runs) == 1
        else (_sweep(runs),)
    )
    body = (*body, *_costs(runs), *_tiers(runs))
    definitions = Facts(
        tuple(
            (metric.upper(), DEFINITIONS[f"{metric}_ms"])
            for metric in (METRICS[3:] if infers else METRICS)
        )
    )
    sections = (
        section("verdict", "", *verdicts),
        section("numbers", "", *body),
        section("definitions", "", definitions),
    )
    return Document(sections=sections)


def _statistics(run: Measured) -> Table:
    # tokens of a whole reply have no moments
    metrics = METRICS if run.run_json["endpoint"]["streaming"] else METRICS[3:]
    rows = tuple(
        (f"{metric.upper()} ms", *statistics(getattr(run.summary, f"{metric}_ms")))
        for metric in metrics
    )
    return Table(header=("", *STATISTICS), rows=rows, spare=("p90", "p50"))


def _rates(run: Measured) -> str:
    s = run.summary
    ends = ", ".join(
        f"{count} {ENDS.get(word, f'with “{word}”')}"
        for word, count in run.run_json["tokens"]["finish_reasons"].items()
    )
    rates = (
        f"{number(s.requests_per_second)} requests/s, {number(s.output_tokens_per_second)} output"
        f" tokens/s, {s.counted} completed"
    )
    rates += f" ({ends})" if ends else ""
    failed = "".join(
        f", {count} {kind}" for kind, count in run.summary_json["errors_by_kind"].items()
    )
    joules = ""
    if energy := run.summary_json.get("energy"):
        joules = (
            f"; {number(energy['mean_gpu_watts'])} W of GPUs,"
            f" {number(energy['joules_per_output_token'])} J an output token"
        )
    return (
        rates
        + failed
        + joules
        + "".join(f"; {attained_text(attainment)}" for attainment in run.good)
    )


def _costs(runs: Sequence[Measured]) -> tuple[Table | Text, ...]:
    """Report what the tokens of each run cost, owned and rented; empty without named hardware."""
    rows, hardware, explanations, missing = [], "", dict[str, None](), dict[str, None]()
    for run in runs:
        cost = run.run_json.get("cost", {"ways": ()})
        for way in cost["ways"]:
            hardware = f"{cost['gpus']} × {cost['gpu']}; {cost['definition']}"
            if way["usd_per_hour"] is None:
                missing[f"{WAYS[way['where']]}: {way['how'][0]}"] = None
                continue
            explanations[f"{WAYS[way['where']]}, a year: {'; '.join(way['how'])}"] = None
            kinds = (
                "usd_per_hour",
                "usd_per_million_input_tokens",
                "usd_per_million_output_tokens",
                "usd_per_1000_requests",
            )
            rows.append(
                (run.load.words, WAYS[way["where"]], *(number(way[kind]) for kind in kinds))
            )
    header = (
        "load",
        "USD of",
        "an hour",
        "million input tokens",
        "million output tokens",
        "1,000 requests",
    )
    table = (Table(header=header, rows=tuple(rows)), Text(f"Cost of {hardware}.")) if rows else ()
    return (*table, *(Text(sentence_of(line)) for line in (*explanations, *missing)))


def _tiers(runs: Sequence[Measured]) -> tuple[Table, ...]:
    """The most users in each tier of speed and TTFT, over the loads of a sweep; nothing where no
    tiers are counted.
    """
    from tonnage.bench.tiers import most_users

    loads = [run.run_json["tiers"] for run in runs if "tiers" in run.run_json]
    if not loads:
        return ()
    rows = []
    for place, tier in enumerate(loads[0]["tiers"]):
        name = (
            f"{tier['output_tokens_per_second']:g} tokens/s, TTFT {format_duration(tier['ttft_s'])}"
        )
        rows.append((name, most_users(loads, place)))
    speeds = [
        (
            f"{load['users']} users",
            number(load["output_tokens_per_second_p25"]),
            number(load["ttft_ms_p95"]),
        )
        for load in loads
    ]
    return (
        Table(header=("load", "tokens/s of a user, p25", "TTFT p95 ms"), rows=tuple(speeds)),
        Table(header=("tier", "users of the loads measured"), rows=tuple(rows)),
    )


def _inferences(runs: Sequence[Measured]) -> Table:
    """One line for each load of a model that is no LLM: an inference is an item."""
    rows = []
    for run in runs:
        s = run.summary
        values = (
            s.e2e_ms.mean,
            s.e2e_ms.p50,
            s.e2e_ms.p95,
            s.e2e_ms.p99,
            s.requests_per_second,
            s.input_tokens_per_second,
        )
        rows.append(
            (run.load.words, f"{int(run.load.isl[0])}", *map(number, values), run.validity.verdict)
        )
    header = (
        "load",
        "items",
        "E2E ms",
        "p50",
        "p95",
        "p99",
        "requests/s",
        "inferences/s",
        "verdict",
    )
    return Table(header=header, rows=tuple(rows), spare=("p50", "p95"))


def _sweep(runs: Sequence[Measured]) -> Table:
    rows = []
    for run in runs:
        s = run.summary
        values = (
            s.ttft_ms.mean,
            s.ttft_ms.p95,
            s.itl_ms.mean,
            s.itl_ms.p99,
            s.tpot_ms.mean,
            s.e2e_ms.mean,
        )
        rates = (s.requests_per_second, s.output_tokens_per_second)
        rows.append((run.load.words, *map(number, (*values, *rates)), run.validity.verdict))
    return Table(header=SWEPT, rows=tuple(rows), spare=("ITL ms", "tokens/s", "p95", "p99"))


def selftest(tests: Sequence[SelfTest]) -> Document:
    """Report the test of the client: one line per number of streams, and what the columns mean."""
    rows = []
    for test in tests:
        values = (
            test.ttft_ms,
            test.server_ttft_ms,
            test.bias_ms,
            test.bias_p99_ms,
            test.last_bias_ms,
            test.cpu_us_per_token,
        )
        rows.append(
            (str(test.streams), *map(number, values), f"{test.ceiling_tokens_per_second:,.0f}")
        )
    header = (
        "streams",
        "TTFT ms",
        "server's",
        "bias ms",
        "p99",
        "last token",
        "µs per token",
        "tokens/s at most",
    )
    table = Table(header=header, rows=tuple(rows))
    return document(section("tests", "", table), section("words", "", Facts(SELF_TEST)))


def maximum(maximum: Maximum) -> Document:
    """Report the search for the highest load, with every run that it made."""
    remark = ""
    if maximum.client_limited:
        remark = (
            "The client was too slow for the last load: the server can do more than this machine"
            " can ask for."
        )
    elif not maximum.precise:
        remark = "The runs ended before the interval was narrow; ask for longer runs."
    rows = []
    for trial in maximum.trials:
        s = trial.measured.summary
        values = (trial.load, s.ttft_ms.p95, s.tpot_ms.mean, s.requests_per_second)
        rows.append(
            (
                *map(number, values),
                "passed" if trial.passed else "failed",
                f"{trial.sure:.2f}",
                trial.why or ABSENT,
            )
        )
    header = (maximum.unit, "TTFT p95 ms", "TPOT ms", "requests/s", "verdict", "sure", "why")
    table = Table(header=header, rows=tuple(rows))
    return document(section("trials", "", table), title=_maximum_text(maximum), subtitle=remark)


def _maximum_text(maximum: Maximum) -> str:
    limits = ", ".join(maximum.limits)
    if math.isnan(maximum.load):
        return f"No load met {limits}."
    low, high = maximum.interval
    between = f"the highest is between {number(low)} and {number(high)} with a confidence of 0.9"
    return f"{number(maximum.load)} {maximum.unit} meet {limits}; {between}."


# By the name that the column has in a file of measured points, where "itl" is the mean time per
# token of a request: TPOT
METRIC_TITLES = {
    "ttft_ms": "TTFT",
    "ttft_p95_ms": "TTFT p95",
    "itl_ms": "TPOT",
    "itl_p95_ms": "ITL p95",
    "e2e_ms": "E2E",
    "e2e_p95_ms": "E2E p95",
    "requests_s": "requests/s",
    "joules_per_token": "joules per output token",
    "output_tok_s": "tokens/s",
    "peak_gpu_memory_gb": "peak memory",
}


HEADER = ("run", "requests", "TTFT ms", "from send", "TPOT ms", "E2E ms", "requests/s", "tokens/s")


def imported(folders: Sequence[tuple[Path, Summary, Mapping[str, Any]]]) -> Document:
    """Folders with their summaries, and what of each file was left out, failed or is to be
    known.
    """
    rows, remarks = [], []
    for folder, s, facts in folders:
        counts = {**facts["left_out"], **facts["failed"]}
        whose = f"{folder.name}: " if len(folders) > 1 else ""
        if counts:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
            remarks.append(
                f"{whose}{s.counted:,} completed, {sum(counts.values()):,} left out ({reasons})."
            )
        remarks += [f"{whose}{remark}" for remark in facts["remarks"]]
        latencies = (s.ttft_ms.mean, s.ttft_from_send_ms.mean, s.tpot_ms.mean, s.e2e_ms.mean)
        rows.append(
            (
                folder.name,
                str(s.counted),
                *map(number, (*latencies, s.requests_per_second, s.output_tokens_per_second)),
            )
        )
    return document(
        section(
            "runs", "", Table(header=HEADER, rows=tuple(rows)), items(tuple(remarks), "warning")
        )
    )


LABELS = {"ttft_ms": "TTFT mean ms", "tpot_ms": "TPOT mean ms", "requests_per_second": "requests/s"}


def demonstrated(demonstration: Demonstration) -> Document:
    """Report a demonstration: what was served, how it compares, and what a failure did."""
    rows = tuple(
        (
            LABELS[metric.metric],
            number(metric.predicted),
            number(metric.measured),
            f"{metric.difference:+.1%}",
            "agrees" if metric.agrees else "differs",
        )
        for metric in demonstration.beside
    )
    table = Table(header=("", "predicted", "measured", "difference", ""), rows=rows)
    reasons = tuple(
        f"The client calls its measurement {demonstration.client}: {reason}"
        for reason in demonstration.client_reasons
    )
    return document(
        section("beside", "", table, items(reasons, "warning")),
        section("failure", "", Text(_failure(demonstration.failure))),
        section("next", "", Text(NEXT)),
        title=VERDICT[demonstration.verdict == "agree"],
        subtitle=(
            f"{demonstration.fleet}; {demonstration.load}; {demonstration.requests:,} requests"
            " compared."
        ),
    )


NEXT = (
    "Next: tonnage serve, tonnage gateway and tonnage bench do each of these steps for your own"
    " model, GPUs and load."
)
# Whether the measurement agrees with the prediction
VERDICT = {
    True: "Measured over HTTP, the simulated fleet does what the simulator predicts.",
    False: (
        "The measurement differs from the prediction: a busy machine delivers tokens late (see"
        " below)."
    ),
}


def _failure(failure: Failure) -> str:
    returned = (
        "it was not back when the load ended"
        if failure.back_s is None
        else f"it served again {failure.back_s:.1f} s later"
    )
    sent = counted(failure.sent, "request")
    return (
        f"{failure.instance} was killed {failure.after_s:.1f} s into the second load, and"
        f" {returned}. Of {sent} {failure.completed:,} completed. Streams cut, because they had"
        f" begun on the killed instance: {failure.failed}. Requests sent to another instance,"
        f" because the killed one took no connection: {failure.retried}. TTFT p95 of that load:"
        f" {number(failure.ttft_p95_ms)} ms."
    )


STATISTIC_LABELS = {"requests_per_second": "requests/s", "output_tokens_per_second": "tokens/s"}
READING = (
    "Each dot is a quantile of both runs. On the line they are alike; above it the second run is"
    " slower, and a bend shows where."
)
FAR_APART = 30  # ratio of the largest value to the smallest from which the axes are logarithmic
SHOWN = (5, 25, 50, 75, 95, 99)
PREDICTED = ("", "measured", "predicted", "ratio", "80 % interval", "")
VERDICTS = {None: ABSENT, True: "differs", False: "alike"}


def two_runs(comparison: Comparison, first: str, second: str) -> Document:
    """The comparison of the second run with the first, by their names."""
    return document(
        section("ratios", "", _ratios(comparison, first, second)),
        section("quantiles", "", _quantiles(comparison)),
        section("notes", "", items(tuple(comparison.notes), "note")),
    )


def two_runs_page(comparison: Comparison, first: str, second: str) -> Document:
    """Report two runs as a page, with a quantile–quantile plot for each latency."""
    drawings = (
        _plot(metric, *pair, first, second) for metric, pair in comparison.quantiles_ms.items()
    )
    return document(
        section(
            "ratios",
            "Ratios",
            _ratios(comparison, first, second),
            items(tuple(comparison.notes), "note"),
        ),
        section("quantiles", "Quantile against quantile", *drawings),
        title=f"{second} beside {first}",
        subtitle=f"Ratios are of {second} to {first}.",
    )


def _plot(
    metric: str, ours: Sequence[float], theirs: Sequence[float], first: str, second: str
) -> Drawing:
    """The quantiles from 1 % to 99 % of both runs against each other."""
    name, least, greatest = (
        metric.removesuffix("_ms").upper(),
        min(ours[0], theirs[0]),
        max(ours[-1], theirs[-1]),
    )
    log = least > 0 and greatest > FAR_APART * least
    pairs = [(f"p{p}", a, b) for p, (a, b) in enumerate(zip(ours, theirs, strict=True), start=1)]
    points = tuple(
        Point(a, b, f"{p} of {name}\n{first} {number(a)} ms\n{second} {number(b)} ms")
        for p, a, b in pairs
    )
    alike = tuple(Point(value, value, "") for value in (least, greatest))
    scale = ", ms (logarithmic)" if log else ", ms"
    rows = tuple((p, number(a), number(b), f"{b / a:.3f}" if a else ABSENT) for p, a, b in pairs)
    x, y = (Axis(f"{run}{scale}", log=log) for run in (first, second))
    series = (
        Series("p1 to p99", points, tone=0),
        Series("alike", alike, tone=5, line=True, marks=False),
    )
    header = ("quantile", f"{first}, ms", f"{second}, ms", "ratio")
    return charted(
        Plot(f"quantiles-{name.lower()}", name, x, y, series),
        READING,
        f"{name} in numbers",
        header,
        rows,
    )


def _ratios(comparison: Comparison, first: str, second: str) -> Table:
    rows = []
    for metric_ratio in comparison.ratios:
        between = (
            ABSENT
            if math.isnan(metric_ratio.low)
            else f"{metric_ratio.low:.3f} to {metric_ratio.high:.3f}"
        )
        ratio = f"{metric_ratio.ratio:.3f}" if math.isfinite(metric_ratio.ratio) else ABSENT
        rows.append(
            (
                _label(metric_ratio),
                number(metric_ratio.first),
                number(metric_ratio.second),
                ratio,
                between,
                VERDICTS[metric_ratio.differs],
            )
        )
    return Table(header=("", first, second, "ratio", "0.95", ""), rows=tuple(rows))


def _label(figure: Ratio | MetricBeside) -> str:
    """Such as "TTFT p95 ms"; rates and shares have their names."""
    name, latency = figure.metric, figure.metric.endswith("_ms")
    return (
        f"{name.removesuffix('_ms').upper()} {figure.statistic} ms"
        if latency
        else STATISTIC_LABELS.get(name, name)
    )


def _quantiles(comparison: Comparison) -> Table:
    rows = []
    for metric, (ours, theirs) in comparison.quantiles_ms.items():
        pairs = ((ours[p - 1], theirs[p - 1]) for p in SHOWN)
        rows.append(
            (
                f"{metric.removesuffix('_ms').upper()} ms",
                *(f"{number(a)} → {number(b)}" for a, b in pairs),
            )
        )
    return Table(
        header=("quantiles", *(f"p{p}" for p in SHOWN)),
        rows=tuple(rows),
        spare=("p25", "p75", "p5"),
    )


LEGEND = (
    "The ratio is predicted / measured. The interval is where a measurement was expected with a"
    " probability of 80 %; percentiles other than TTFT's p95 have that of the errors of the mean"
    " (docs/intervals.md). Single gaps (ITL) have none, nor have rates, which are those that the"
    " run sent."
)


def run_and_plan(beside: RunBesidePlan, run: str) -> Document:
    """The comparison of a run, by its name, with the plan that it was laid next to."""
    verdicts = tuple(verdict(beside, metric) for metric in ("ttft_ms", "tpot_ms", "e2e_ms"))
    notes = (*map(sentence_of, beside.notes), *map(sentence_of, beside.marks), LEGEND)
    return document(
        section("replayed", "", Text(_replayed(beside, run))),
        section("metrics", "", Table(header=PREDICTED, rows=tuple(map(_row, beside.metrics)))),
        section("verdicts", "", items(verdicts)),
        section("notes", "", items(notes, "note")),
    )


def verdict(beside: RunBesidePlan, metric: str) -> str:
    """Where the measurements of a metric lie, in one line; "" where no interval is known."""
    by_place: dict[str, list[str]] = {}
    for metric_beside in beside.metrics:
        if metric_beside.metric == metric and metric_beside.inside is not None:
            by_place.setdefault(_place(metric_beside), []).append(metric_beside.statistic)
    name = metric.removesuffix("_ms").upper()
    if not by_place:
        return ""
    if set(by_place) == {"inside"}:
        return f"{name} is inside the interval of its prediction: {', '.join(by_place['inside'])}."
    outside = "; ".join(
        f"{place}: {', '.join(statistics)}" for place, statistics in by_place.items()
    )
    return f"{name} is outside the interval of its prediction ({outside})."


def _replayed(beside: RunBesidePlan, run: str) -> str:
    d = beside.deployment
    stages = f" pp{d.parallelism.pp}" if d.parallelism.pp > 1 else ""
    instance = (
        f"{d.model.name} {d.precision.name} on {d.gpu.name} {d.parallelism.label}{stages},"
        f" {d.engine}"
    )
    fleet = (
        f"{beside.instances} instances behind {beside.router}" if beside.router else "1 instance"
    )
    return f"{counted(beside.requests, 'request')} of {run}, replayed on {fleet} of {instance}"


def _row(metric_beside: MetricBeside) -> tuple[str, ...]:
    ratio = f"{metric_beside.ratio:.3f}" if math.isfinite(metric_beside.ratio) else ABSENT
    bounds = between(
        (metric_beside.low, metric_beside.high) if math.isfinite(metric_beside.low) else None
    )
    place = ABSENT if metric_beside.inside is None else _place(metric_beside)
    return (
        _label(metric_beside),
        number(metric_beside.measured),
        number(metric_beside.predicted),
        ratio,
        bounds,
        place,
    )


def _place(metric_beside: MetricBeside) -> str:
    """Say whether the measurement is "inside", "below" or "above" the interval."""
    return (
        "inside"
        if metric_beside.inside
        else "below"
        if metric_beside.measured < metric_beside.low
        else "above"
    )
