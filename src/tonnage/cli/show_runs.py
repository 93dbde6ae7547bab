"""Simulated points as text, with the definition beside each metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tonnage.cli.table import number, table, wrapped

if TYPE_CHECKING:
    from tonnage.api import SimulatedRun

DEFINED = (
    ("TTFT", "ttft_ms"),
    ("ITL", "itl_ms"),
    ("TPOT", "tpot_ms"),
    ("E2E", "e2e_ms"),
    ("requests/s", "requests_per_second"),
    ("tokens/s", "output_tokens_per_second"),
)
GAIN = "output tokens/s over those without speculative decoding; in an open loop mean E2E without over with"
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def show_runs(runs: Sequence[SimulatedRun]) -> str:
    """One point in full, or one line per point of a sweep."""
    from tonnage.results.metrics import DEFINITIONS

    first = runs[0].to_json()
    gpus = first["tp"] * first.get("dp", 1)
    where = f"{first['model']} {first['precision'].upper()} on {gpus} × {first['gpu']}{_ranks(first)}, {first['engine']}"
    guessing = f", {first['speculation']}" if "speculation" in first else ""
    title = f"{where}{guessing}, {first['isl']} tokens in, {first['osl']} out"
    body = _one(runs[0]) if len(runs) == 1 else _sweep(runs)
    marks = [wrapped(f"· {mark}") for mark in runs[0].marks]
    if runs[0].plain is not None:
        marks.append(wrapped(f"  gain: {GAIN}"))
    definitions = [wrapped(f"{label}: {DEFINITIONS[name]}") for label, name in DEFINED]
    return "\n".join([title, "", body, "", *marks, *definitions])


def _ranks(point: dict[str, Any]) -> str:
    """How a mixture of experts is split, where by more than TP: ", TP 1 DP 8 EP 8"."""
    further = "".join(f" {name.upper()} {point[name]}" for name in ("dp", "ep") if name in point)
    return f", TP {point['tp']}{further}" if further else ""


def _load(point: dict[str, object]) -> str:
    if "concurrency" in point:
        return f"{point['concurrency']} client{'' if point['concurrency'] == 1 else 's'}"
    return f"{point['request_rate']:g}/s {point['arrivals']}"


def _one(run: SimulatedRun) -> str:
    point = run.to_json()
    sure = run.intervals
    rows = [
        (f"{name.upper()} ms", *(number(point[f"{name}_ms"][s]) for s in STATISTICS), _between(sure.get(f"{name}_ms")))
        for name in ("ttft", "itl", "tpot", "e2e")
    ]
    of_rate = f" ({_between(sure['requests_s'])})" if "requests_s" in sure else ""
    rates = f"{number(point['requests_per_second'])}{of_rate} requests/s, {number(point['output_tokens_per_second'])} output tokens/s"
    if run.gain is not None:
        rates += f"; gain {run.gain:.2f}"
    return f"{_load(point)}: {rates}\n\n{table(('', *STATISTICS, 'mean, 80 %'), rows)}"


def _between(bounds: tuple[float, float] | None) -> str:
    """An 80 % interval (docs/intervals.md), such as "240–310"."""
    return "–" if bounds is None else "–".join(number(bound) for bound in bounds)


def _sweep(runs: Sequence[SimulatedRun]) -> str:
    header = ("load", "requests/s", "tokens/s", "TTFT ms", "TTFT p95", "ITL p99", "TPOT ms", "E2E ms", "E2E p95")
    guessed = runs[0].gain is not None
    rows = []
    for run in runs:
        p = run.to_json()
        rows.append(
            (
                _load(p),
                number(p["requests_per_second"]),
                number(p["output_tokens_per_second"]),
                number(p["ttft_ms"]["mean"]),
                number(p["ttft_ms"]["p95"]),
                number(p["itl_ms"]["p99"]),
                number(p["tpot_ms"]["mean"]),
                number(p["e2e_ms"]["mean"]),
                number(p["e2e_ms"]["p95"]),
                *([f"{run.gain:.2f}"] if guessed else []),
            )
        )
    return table((*header, "gain") if guessed else header, rows)
