"""A run, or a sweep of runs, as a report: the measurement and its validity, then every figure, then
how it was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tonnage.bench.steady import DEFINITIONS, trends
from tonnage.report.document import (
    Block,
    Command,
    Document,
    Facts,
    Section,
    Table,
    Text,
    document,
    facts_known,
    items,
    section,
)
from tonnage.report.numbers import ABSENT, STATISTICS, number, plain, sentence_of, statistics
from tonnage.report.runs.figures import (
    boxes,
    gaps_by_position,
    heat_map,
    in_flight,
    loads_table,
    percentiles_over_time,
    request_gantt,
    server_figures,
    swept,
    ttft_by_prompt,
)
from tonnage.report.runs.shown_run import (
    NO_GAPS,
    NO_TOKENS,
    ShownRun,
    load_words,
    name,
    reasons,
    remarks,
    verdict,
)
from tonnage.report.simulated import timeline_page
from tonnage.results.timeline import Timeline

METRICS = (
    ("ttft", "time to first token"),
    ("itl", "single gaps between tokens"),
    ("tpot", "mean gap of a request"),
    ("e2e", "whole request"),
)
TTFT, E2E = "Time to first token", "Request latency"


def run_report(runs: Sequence[ShownRun], timeline: Timeline | None = None) -> Document:
    """The report of one run; of several, the loads side by side first, then each of them. A
    timeline's panels come last.
    """
    first = runs[0]
    slots = () if timeline is None else timeline_page(timeline, "").sections
    if len(runs) == 1:
        sections, title = _sections(first), f"{name(first)}, {load_words(first)}: {first.kind}"
    else:
        parts = (
            _of_several(s, place, run) for place, run in enumerate(runs, 1) for s in _sections(run)
        )
        sections, title = (
            (*_together(runs), *parts),
            f"{name(first)} under {len(runs)} loads, {first.kind}",
        )
    return document(*(s for s in sections if s.blocks), *slots, title=title, subtitle=_by(first))


def _by(run: ShownRun) -> str:
    source = run.provenance
    day = f", {source['date']}" if source.get("date") else ""
    return f"{run.kind.capitalize()} by Tonnage {source.get('tonnage', '')}".rstrip() + day


def _of_several(section: Section, place: int, run: ShownRun) -> Section:
    """A section of one run of several: under its load, and all but the first of each folded, and
    not in the list of parts.
    """
    title = load_words(run) if section.key == "answer" else f"{load_words(run)}: {section.title}"
    return replace(
        section,
        key=f"{section.key}-{place}",
        title=title,
        listed=section.key == "answer",
        folded=section.key != "answer",
    )


def _sections(run: ShownRun) -> tuple[Section, ...]:
    run_trends = trends(run.requests)
    otherwise = (
        "No TTFT per 1,000 prompt tokens: that takes 20 completed requests with prompts of"
        " different lengths."
    )
    slope = _slope(
        run_trends["ttft_ms_per_1000_prompt_tokens"], "of TTFT per 1,000 prompt tokens", otherwise
    )
    return (
        _answer(run),
        _latencies(run),
        section(
            "first-token",
            TTFT,
            slope,
            boxes((run,), "ttft-box", TTFT, "ttft_ms"),
            ttft_by_prompt(run, run_trends),
        ),
        section("tokens", "Token-to-token latency", *_position(run, run_trends)),
        section("whole", E2E, boxes((run,), "e2e-box", E2E, "e2e_ms")),
        section(
            "lengths",
            "Lengths",
            *_limits(run_trends),
            heat_map(run.isl, run.osl) if run.rows.size else None,
        ),
        section(
            "time",
            "Over the run",
            percentiles_over_time(run, "ttft-over-time", TTFT, run.ttft_ms),
            percentiles_over_time(run, "e2e-over-time", E2E, run.e2e_ms),
            in_flight(run),
            request_gantt(run),
        ),
        section("server", "What the server said", *server_figures(run)),
        _made(run),
    )


def _answer(run: ShownRun) -> Section:
    s = run.summary
    rates = (
        f"{number(s.requests_per_second)} requests/s and {number(s.output_tokens_per_second)}"
        f" output tokens/s under {load_words(run)}"
    )
    ttft = f"within {number(s.ttft_ms.p50)} ms, 95 % within {number(s.ttft_ms.p95)} ms"
    words = f"{name(run)} completed {rates}; half of the requests had their first token {ttft}."
    cards = (
        ("verdict", verdict(run)),
        ("TTFT p95, ms", number(s.ttft_ms.p95)),
        ("ITL p99, ms", number(s.itl_ms.p99)),
        ("E2E p95, ms", number(s.e2e_ms.p95)),
        ("requests/s", number(s.requests_per_second)),
        ("output tokens/s", number(s.output_tokens_per_second)),
    )
    against = items(tuple(map(sentence_of, reasons(run))), "warning")
    return section(
        "answer",
        "Result",
        Text(words, tone="answer"),
        Facts(cards, big=True),
        against,
        items(remarks(run), "note"),
    )


def _latencies(run: ShownRun) -> Section:
    from tonnage.results.metrics import DEFINITIONS

    intervals = run.facts.get("intervals", {})
    rows = []
    for metric, words in METRICS:
        values, sure = (
            getattr(run.summary, f"{metric}_ms"),
            intervals.get(f"{metric}_ms", {}).get("mean"),
        )
        between = "–".join(map(number, sure)) if sure and None not in sure else ABSENT
        rows.append((f"{metric.upper()}, {words}", *statistics(values), between))
    sure_of = f"mean, {intervals.get('confidence', 0.95):.0%} interval"
    caption, header = (
        f"Latencies of {run.summary.counted:,} completed requests",
        ("latency, ms", *STATISTICS, sure_of),
    )
    table = Table(
        caption=caption,
        header=header,
        rows=tuple(rows),
        spare=("p90", "p50"),
        note=sentence_of(run.summary.window),
    )
    definitions = tuple((metric.upper(), DEFINITIONS[f"{metric}_ms"]) for metric, _ in METRICS)
    return section("latencies", "Latencies", table.filled(sure_of), Facts(definitions))


def _slope(line: Mapping[str, float] | None, what: str, otherwise: str) -> Text:
    if line is None:
        return Text(otherwise, tone="note")
    slope, error = line["slope"], line["standard_error"]
    little = ", which does not stand out from 0" if abs(slope) < 2 * error else ""
    return Text(
        f"{number(slope)} ± {number(error)} ms {what} (slope of a straight line, ± its standard"
        f" error){little}."
    )


def _position(run: ShownRun, document: Mapping[str, Any]) -> tuple[Block | None, ...]:
    drawn = gaps_by_position(run, document)
    if drawn is None:
        return (Text(NO_GAPS, tone="note"),)
    otherwise = "No drift of ITL: that takes 20 completed requests with outputs of some length."
    note = None if run.tokens is not None else Text(NO_TOKENS, tone="note")
    return (
        _slope(
            document["itl_ms_per_1000_output_tokens"],
            "of ITL per 1,000 output tokens, the drift",
            otherwise,
        ),
        note,
        drawn,
    )


def _limits(document: Mapping[str, Any]) -> tuple[Block, ...]:
    limits = document["limits_tokens"]
    if limits is None:
        return ()
    prompt, output, both = (
        plain(float(round(limits[key]))) for key in ("prompt_p99", "output_p99", "sum_p99")
    )
    words = (
        "What an engine is built for where 99 % of these requests must fit; longer ones are refused"
        " or cut."
    )
    rows = (
        ("Prompt, p99", f"{prompt} tokens (TensorRT-LLM: max_input_len)"),
        ("Output, p99", f"{output} tokens"),
        (
            "Both together, p99",
            (
                f"{both} tokens (TensorRT-LLM: max_seq_len; vLLM: max_model_len; SGLang:"
                " context_length)"
            ),
        ),
    )
    return (Text(words), Facts(rows))


def _made(run: ShownRun) -> Section:
    source, s, facts = run.provenance, run.scenario, run.facts
    client, test = facts.get("client") or {}, facts.get("selftest") or {}
    rows = (
        ("Model", str(s.get("model") or "")),
        ("Endpoint", " ".join(str(s[key]) for key in ("endpoint_type", "url") if s.get(key))),
        ("Tool", str(facts.get("imported", {}).get("tool", ""))),
        (
            "Lengths",
            f"{s['isl']} tokens in, {s['osl']} out" if s.get("isl") and s.get("osl") else "",
        ),
        ("Load", load_words(run)),
        (
            "Client's CPU",
            (
                f"{number(client['cpu_us_per_token'])} µs per token"
                if client.get("cpu_us_per_token")
                else ""
            ),
        ),
        (
            "Self-test",
            (
                f"bias of TTFT {number(test['bias_ms'])} ms at {test['streams']} streams"
                if test.get("bias_ms") is not None
                else ""
            ),
        ),
        ("Seed", str(source.get("seed", ""))),
        ("Tonnage", str(source.get("tonnage", ""))),
        ("Date", str(source.get("date", ""))),
    )
    command = Command(str(source["command"])) if source.get("command") else None
    return section("made", "How it was made", command, facts_known(rows))


def _together(runs: Sequence[ShownRun]) -> tuple[Section, ...]:
    """Report several loads side by side."""
    best = max(runs, key=lambda run: run.summary.requests_per_second)
    words = (
        f"{name(runs[0])} completed at most {number(best.summary.requests_per_second)} requests/s,"
        f" under {load_words(best)}, with a TTFT p95 of {number(best.summary.ttft_ms.p95)} ms;"
        f" {len(runs)} loads were {runs[0].kind}."
    )
    against = tuple(
        sentence_of(f"{load_words(run)}: {reason}") for run in runs for reason in reasons(run)
    )
    drawn = swept(runs) if any(run.rows.size for run in runs) else loads_table(runs)
    box_plots = (
        boxes(runs, "ttft-boxes", TTFT, "ttft_ms"),
        boxes(runs, "e2e-boxes", E2E, "e2e_ms"),
    )
    return (
        section("answer", "Result", Text(words, tone="answer"), items(against, "warning")),
        section("sweep", "Latency and throughput", drawn),
        section("boxes", "Latencies side by side", *box_plots),
    )


def run_values(runs: Sequence[ShownRun]) -> dict[str, Any]:
    """Convert a run to an object like the one that ``bench`` prints; several to its "points"."""
    points = []
    for run in runs:
        run_trends = {**trends(run.requests), "definitions": DEFINITIONS}
        identity = {"run": run.name, "kind": run.kind, "scenario": dict(run.scenario)}
        points.append({**identity, **run.summary.to_json(), **run.facts, "trends": run_trends})
    return points[0] if len(points) == 1 else {"points": points}
