"""Errors of predictions against measurements, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tonnage.cli.table import number, table

if TYPE_CHECKING:
    from tonnage.validation.compare import ModelScores
    from tonnage.validation.score import ErrorOf, ScoredRow, ScoreReport

GROUPS_SHOWN = ("family", "model", "gpu", "precision", "tp", "engine", "regime", "cache")
NAMES = {
    "ttft_ms": "TTFT",
    "ttft_p95_ms": "TTFT p95",
    "itl_ms": "TPOT",
    "itl_p95_ms": "ITL p95",
    "e2e_ms": "E2E",
    "e2e_p95_ms": "E2E p95",
    "requests_s": "requests/s",
    "output_tok_s": "tokens/s",
    "peak_gpu_memory_gb": "peak memory",
}
LEGEND = "MAPE: mean of |predicted − measured| / measured; bias: mean of (predicted − measured) / measured; all in percent; "
LEGEND += "inside: of the 80 % intervals (docs/intervals.md)"
MODELS_LEGEND = "MAPE: mean of |predicted − measured| / measured; bias: mean of (predicted − measured) / measured; same scheduler, "
MODELS_LEGEND += "memory plan and client for all (docs/step-models.md)"


def show_score(report: ScoreReport) -> str:
    """The whole report as lines of text."""
    apart = [f"Apart: {kind}\n\n{_parts(other)}" for kind, other in report.apart.items()]
    return "\n\n".join([_parts(report), *apart, LEGEND])


def _parts(report: ScoreReport) -> str:
    parts = [f"{report.predicted} of {report.rows} rows predicted", _overall(report)]
    parts += [_unknown(report)] if report.unknown or report.skipped else []
    parts += [_group(kind, report.groups[kind]) for kind in GROUPS_SHOWN if len(report.groups.get(kind, {})) > 1]
    parts += [_worst(report.worst)] if report.worst else []
    return "\n\n".join([*parts, *report.remarks])


def _overall(report: ScoreReport) -> str:
    kinds = [("all rows", report.overall)]
    if report.not_steady:
        kinds += [("steady rows", report.steady), ("not steady", report.not_steady)]
    within = report.steady if report.not_steady else report.overall
    rows = [
        (
            f"{NAMES.get(metric, metric)}, {kind}",
            number(e.mape),
            number(e.median_ape),
            number(e.bias),
            number(report.coverage.get(metric)) if errors is within else "–",
            str(e.n),
        )
        for kind, errors in kinds
        for metric, e in errors.items()
    ]
    return table(("metric", "MAPE %", "median %", "bias %", "inside %", "n"), rows)


def _unknown(report: ScoreReport) -> str:
    lines = [f"unknown {kind} '{name}': {count} rows" for kind, names in report.unknown.items() for name, count in names.items()]
    lines += [f"line {s.line}: {s.reason}" for s in report.skipped[:10]]
    left = len(report.skipped) - 10
    return "\n".join(["Not predicted", *lines, *([f"… and {left} more"] if left > 0 else [])])


def _group(kind: str, groups: Mapping[str, Mapping[str, ErrorOf]]) -> str:
    metrics = [m for m in NAMES if any(m in errors for errors in groups.values())]
    rows = [
        (name, *(number(errors[m].mape) if m in errors else "–" for m in metrics), str(max(e.n for e in errors.values())))
        for name, errors in groups.items()
    ]
    return f"MAPE % by {kind}\n{table((kind, *(NAMES[m] for m in metrics), 'n'), rows)}"


def _worst(rows: tuple[ScoredRow, ...]) -> str:
    cells = []
    for row in rows:
        metric, error = max(row.errors.items(), key=lambda item: abs(item[1]))
        bounds = "–".join(number(bound) for bound in row.intervals[metric]) if metric in row.intervals else "–"
        values = (number(row.measured[metric]), number(row.predicted[metric]), bounds, f"{error:+.0f} %")
        load = f"{row.group['load']} {row.point.batch or row.point.concurrency or row.point.request_rate:g}"
        cells.append((str(row.line), f"{row.group['deployment']}, {row.group['lengths']}, {load}", NAMES.get(metric, metric), *values))
    reasons = [f"  · line {row.line}: {row.reason}" for row in rows if row.worst_metric]
    found = f"Worst rows\n{table(('line', 'row', 'metric', 'measured', 'predicted', '80 % interval', 'error'), cells)}"
    return "\n".join([found, *reasons])


def show_models(scores: ModelScores) -> str:
    """Several step models side by side over the rows that all of them predicted, and how far they are apart."""
    apart = [f"Apart: {kind}\n\n{_models(other)}" for kind, other in scores.apart.items()]
    return "\n\n".join([_models(scores), *apart, MODELS_LEGEND])


def _models(scores: ModelScores) -> str:
    predicted = ", ".join(f"{name} {report.predicted} of {report.rows}" for name, report in scores.reports.items())
    errors = f"Errors over the {scores.common} rows that all of them predicted\n{_side_by_side(scores)}"
    parts = [f"{predicted} rows predicted", errors if scores.common else "No row that all of them predicted"]
    if scores.disagreement:
        parts.append(f"Disagreement, mean of |second / first − 1| in %\n{_apart(scores)}")
    remarks = [remark for report in scores.reports.values() for remark in report.remarks]
    return "\n\n".join([*parts, *_not_predicted(scores), *dict.fromkeys([*scores.remarks, *remarks])])


def _side_by_side(scores: ModelScores) -> str:
    metrics = [m for m in NAMES if any(m in errors for errors in scores.errors.values())]
    rows = []
    for m in metrics:
        each = [errors.get(m) for errors in scores.errors.values()]
        cells = [f"{number(e.mape)} ({e.bias:+.1f})" if e is not None else "–" for e in each]
        rows.append((NAMES[m], *cells, str(max(e.n for e in each if e is not None))))
    return table(("MAPE % (bias)", *scores.errors, "n"), rows)


def _apart(scores: ModelScores) -> str:
    metrics = [m for m in NAMES if any(m in found for found in scores.disagreement.values())]
    rows = [(name, *(number(found.get(m)) for m in metrics)) for name, found in scores.disagreement.items()]
    return table(("models", *(NAMES[m] for m in metrics)), rows)


def _not_predicted(scores: ModelScores) -> list[str]:
    """Why rows were not predicted, by step model and reason."""
    found = []
    for name, report in scores.reports.items():
        reasons = Counter(skipped.reason for skipped in report.skipped)
        found += [f"{name}, {count} rows: {reason}" for reason, count in reasons.most_common(5)]
    return ["Not predicted\n" + "\n".join(found)] if found else []
