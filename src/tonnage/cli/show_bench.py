"""A measurement as text: the verdict first, then the numbers, each with its definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.cli.table import number, table, wrapped

if TYPE_CHECKING:
    from tonnage.bench.benchmark import Measured
    from tonnage.bench.find_max import Maximum
    from tonnage.bench.selftest import SelfTest

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
METRICS = ("ttft", "itl", "tpot", "e2e")


def show_bench(runs: Sequence[Measured]) -> str:
    """One load in full, or one line per load of a sweep; what makes a run invalid stands above its numbers."""
    from tonnage.results.metrics import DEFINITIONS

    lines = []
    for run in runs:
        lines.append(wrapped(f"{run.load.words}: {run.validity.verdict}"))
        lines += [wrapped(f"  invalid: {reason}") for reason in run.validity.reasons]
        lines += [wrapped(f"  note: {note}") for note in run.validity.notes]
    body = _one(runs[0]) if len(runs) == 1 else _sweep(runs)
    names = [("TTFT", "ttft_ms"), ("ITL", "itl_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms")]
    return "\n".join([*lines, "", body, "", *(wrapped(f"{label}: {DEFINITIONS[name]}") for label, name in names)])


def _one(run: Measured) -> str:
    summary = run.summary.to_json()
    rows = []
    for metric in METRICS:
        values = summary[f"{metric}_ms"]
        rows.append((f"{metric.upper()} ms", *(number(values[s]) if isinstance(values, dict) else "–" for s in STATISTICS)))
    s = run.summary
    rates = f"{number(s.requests_per_second)} requests/s, {number(s.output_tokens_per_second)} output tokens/s, {s.counted} completed"
    errors = run.summary_json["errors_by_kind"]
    failed = "".join(f", {count} {kind}" for kind, count in errors.items())
    good = f"; goodput {number(run.good.requests_per_second)} requests/s ({run.good.share:.1%})" if run.good is not None else ""
    lines = [wrapped(rates + failed + good), *(wrapped(line) for line in _trends(run))]
    return "\n".join([table(("", *STATISTICS), rows), "", *lines])


def _trends(run: Measured) -> list[str]:
    """What TTFT and ITL depend on, where lengths vary enough to tell."""
    found, lines = run.run_json["trends"], []
    for name, words in (
        ("ttft_ms_per_1000_prompt_tokens", "TTFT rises by {} ms per 1,000 prompt tokens (± {})"),
        ("itl_ms_per_1000_output_tokens", "ITL drifts by {} ms per 1,000 output tokens (± {})"),
    ):
        if found[name] is not None:
            lines.append(words.format(number(found[name]["slope"]), number(1.96 * found[name]["standard_error"])))
    return lines


def _sweep(runs: Sequence[Measured]) -> str:
    header = ("load", "TTFT ms", "p95", "ITL ms", "p99", "TPOT ms", "E2E ms", "requests/s", "tokens/s", "verdict")
    rows = []
    for run in runs:
        s = run.summary
        values = (s.ttft_ms.mean, s.ttft_ms.p95, s.itl_ms.mean, s.itl_ms.p99, s.tpot_ms.mean, s.e2e_ms.mean)
        rates = (s.requests_per_second, s.output_tokens_per_second)
        rows.append((run.load.words, *(number(v) for v in (*values, *rates)), run.validity.verdict))
    return table(header, rows)


def show_selftest(tests: Sequence[SelfTest]) -> str:
    """One line per number of streams, and what the columns mean."""
    header = ("streams", "TTFT ms", "server's", "bias ms", "p99", "last token", "µs a token", "tokens/s at most")
    rows = []
    for test in tests:
        values = (test.ttft_ms, test.server_ttft_ms, test.bias_ms, test.bias_p99_ms, test.last_bias_ms, test.cpu_us_per_token)
        rows.append((str(test.streams), *(number(v) for v in values), f"{test.ceiling_tokens_per_second:,.0f}"))
    words = (
        "TTFT: as the client reports it, from the moment of sending; the server's: its first write − its receipt of the request.",
        "bias: the client's stamp of a first token (last token) − the server's stamp of its write; one clock, one machine.",
        "tokens/s at most: where the client's CPU for each token would take 85 % of a core.",
    )
    return "\n".join([table(header, rows), "", *(wrapped(line) for line in words)])


def show_maximum(found: Maximum) -> str:
    """What the search found, and every run that it made."""
    low, high = found.interval
    limits = ", ".join(found.limits)
    if found.load != found.load:
        title = f"No load met {limits}."
    else:
        between = f"the highest is between {number(low)} and {number(high)} with a confidence of 0.9"
        title = f"{number(found.load)} {found.unit} meet {limits}; {between}."
    lines = [wrapped(title)]
    if found.client_limited:
        lines.append(wrapped("The client was too slow for the last load: the server can do more than this machine can ask for."))
    elif not found.precise:
        lines.append(wrapped("The runs ended before the interval was narrow: ask for longer runs."))
    rows = []
    for trial in found.trials:
        s = trial.measured.summary
        values = (trial.load, s.ttft_ms.p95, s.tpot_ms.mean, s.requests_per_second)
        rows.append((*(number(v) for v in values), "passed" if trial.passed else "failed", f"{trial.sure:.2f}", trial.why or "–"))
    header = (found.unit, "TTFT p95 ms", "TPOT ms", "requests/s", "", "sure", "why")
    return "\n".join([*lines, "", table(header, rows)])
