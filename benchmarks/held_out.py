"""The held-out errors and decisions of the shipped fit in small tables, for README.md and the first
page of docs/accuracy.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.evidence.predict import MeasuredTable
from tonnage.evidence.score import report_of
from tonnage.perf.terms_file import shipped
from tools.fit.decisions import decided, surely

OF_A_GROUP = "NIM, the other five curves of a group that was left out"
ROWS = {
    "a model on a GPU (NIM, under load)": "NIM, one group left out",
    "a model (TensorRT-LLM, one batch)": "static batches, a model left out",
    "a GPU (TensorRT-LLM, one batch)": "static batches, a GPU left out",
    "a model on vLLM, SGLang or TensorRT-LLM of 2025": (
        "current engines, a model left out; TTFT where KV fits"
    ),
    "a mixture of experts on the same engines": (
        "current engines, MoE, a model left out; TTFT where KV fits"
    ),
    "a model on a GPU, calibrated on one curve of it": (
        f"{OF_A_GROUP}, calibrated on each curve in turn"
    ),
}
"""What was left out, as a planner would say it, and the name that the fit has for it."""

COLUMNS = {
    "mean TTFT": "ttft_ms",
    "p95 of TTFT": "ttft_p95_ms",
    "time per token": "itl_ms",
    "E2E": "e2e_ms",
    "requests/s": "requests_s",
}


def held_out_in_short() -> list[str]:
    """The table in Markdown: mean absolute errors in percent on rows that their own fit had not
    seen.
    """
    means = {title: folds["mean"] for title, folds in shipped()["report"]["held_out"].items()}
    found = [f"| left out of the fit | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for said, title in ROWS.items():
        found.append(
            f"| {said} |"
            f" {' | '.join(f'{means[title][m]:.1f}' if m in means[title] else '–' for m in COLUMNS.values())} |"
        )
    return found


OUT = {"gpu": "GPU"}  # What a column is called in prose

SHARES = ("near", "near at level", "too much", "sure too much")
DECIDED = {
    "decisions": "decisions",
    "median": "median",
    "near": "within 20 %",
    "near at level": "at the right level",
    "too much": "over 10 % too much",
    "sure median": "median at 80 %",
    "sure too much": "over 10 % too much at 80 %",
}
"""A figure of the decisions, and what the table calls it."""


def decisions_in_short(measured: Mapping[str, MeasuredTable]) -> list[str]:
    """The decisions on models and GPUs that were left out, and on measured files, in Markdown."""
    found = [f"| curves of | {' | '.join(DECIDED.values())} |"]
    found.append("|---" * (len(DECIDED) + 1) + "|")
    for column, tables in shipped()["report"]["modern"]["held_out"].items():
        kind = OUT.get(column, column)
        found += [_decided(f"{name}, {kind} left out", figures) for name, figures in tables.items()]
        count = sum(figures["decisions"] for figures in tables.values())
        shares = {
            key: sum(each["decisions"] * each.get(key, 0.0) for each in tables.values()) / count
            for key in SHARES
        }
        found.append(_decided(f"all of these, a {kind} left out", {"decisions": count} | shares))
    report = shipped()["report"]["modern"]
    for column, classes in report["apart"].items():
        found += [
            _decided(f"{name}, a {OUT.get(column, column)} left out", figures)
            for name, figures in classes.items()
        ]
    found += [
        _decided(f"one run for another, {name}", figures)
        for name, figures in report["floor"].items()
    ]
    for name, table in measured.items():
        rows = [
            row
            for row in report_of(table)[1]
            if row.point.concurrency and row.measured.get("itl_ms") and "itl_ms" in row.predicted
        ]
        loads = [
            (
                (row.group["deployment"], row.group["engine"], row.group["lengths"]),
                float(row.point.concurrency or 0),
                row.measured["itl_ms"],
                row.predicted["itl_ms"],
            )
            for row in rows
        ]
        found.append(_decided(name, decided(loads, [surely(row.regime) for row in rows])))
    return found


def _decided(name: str, figures: Mapping[str, float]) -> str:
    """One line of the table; a dash where no curve crosses a limit."""
    cells = [
        f"{figures[key]:.{2 if 'median' in key else 0}f}" if key in figures else "–"
        for key in DECIDED
    ]
    return f"| {name} | {' | '.join(cells)} |"
