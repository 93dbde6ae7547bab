"""The usable points of ``agg.csv.gz``, by the rules of ``modern.yaml``."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.errors import DoesNotFit, InputError
from tonnage.evidence.rows import column
from tonnage.perf.memory import memory_plan
from tonnage.spec.catalog import find_gpu, find_model
from tools.fit.evidence import CONTRADICTS, STATED, LeftOutLines
from tools.fit.rules import LeftOut, Rule, Verdict, read_rules, settings, verdict_of
from tools.fit.silicon.silicon_rows import SiliconRows, point_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.perf.step import StepModel
    from tonnage.spec.workload import Workload

FILE, SUBMITTED = "agg.csv.gz", "mlperf_v61.csv"
COLUMNS = (
    "source",
    "model",
    "gpu",
    "tp",
    "ep",
    "dp",
    "engine",
    "precision",
    "spec_decoding",
    "isl",
    "osl",
    "concurrency",
    "tier",
    "date",
)
SPREAD = 0.2
"""InferenceX draws lengths uniformly in 0.8 to 1.0 of the nominal ones (README of the data)."""

MEDIAN = "ttft_p50_ms"

RELEASED = re.compile(r"^(v?\d+\.\d|latest|vllm-openai|release)|atom\d+\.\d|vllm_\d")
"""What the tag of an image begins with, or holds, that is a version: others are of a branch, a
commit or a night."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernRules:
    """``modern.yaml`` as it is written."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    gpus: dict[str, str]
    engines: dict[str, str]
    versions: tuple[Rule, ...]
    formats: tuple[Rule, ...]
    caches: tuple[Rule, ...]
    runs: tuple[Rule, ...]
    alone: tuple[Rule, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModernPoints:
    """Usable points, and the number of the other lines by reason and by the class of what is known
    against them.
    """

    rows: list[Row]
    left_out: dict[str, int]
    evidence: dict[str, int]


class ModernRows(SiliconRows):
    """Such points as residuals; the file's values are medians over many runs and versions."""

    sigma: ClassVar[Mapping[str, float]] = {
        "itl_ms": 0.10,
        "ttft_ms": 0.3,
        MEDIAN: 0.3,
        "output_tok_s": 0.12,
    }

    def __init__(self, rows: Sequence[Row]) -> None:
        """Look up the rows and read what was measured, medians of the TTFT too."""
        super().__init__(rows)
        medians = column(rows, MEDIAN)
        if np.isfinite(medians).any():
            self.measured[MEDIAN] = medians

    def workload(self, i: int, model: StepModel, *, turnaround_s: float) -> Workload:
        """A closed loop with the lengths of the benchmark, and as many requests as it sent."""
        load, sent = super().workload(i, model, turnaround_s=turnaround_s), self.rows[i].get("sent")
        return replace(load, requests=sent) if sent else load

    def predict(self, terms: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
        """As for all rows; a median TTFT changes as the mean does."""
        means = {name: values for name, values in self.measured.items() if name != MEDIAN}
        medians, unknown = self.measured.get(MEDIAN), np.full(len(self.rows), np.nan)
        self.measured = {"ttft_ms": unknown} | means
        found = super().predict(terms)
        self.measured = means if medians is None else means | {MEDIAN: medians}
        if medians is not None:
            found[MEDIAN] = (
                self.simulated(MEDIAN)
                * found["ttft_ms"]
                / (1e3 * np.maximum(self.base[:, 0], 1e-4))
            )
        return {name: found[name] for name in self.measured}


@cache
def rules() -> ModernRules:
    """The rules of the points."""
    return read_rules(Path(__file__).with_name("modern.yaml"), ModernRules)


def select_modern(file: Path) -> ModernPoints:
    """The usable points of the file.

    Raises:
        InputError: it cannot be read, or is no such file.
    """
    others = LeftOutLines()
    rows: list[Row] = []
    for line in lines_of(file):
        facts = facts_of(line)
        verdict = verdict_of(rules().left_out, facts)
        if verdict is None:
            verdict = row_of(facts, rows)
        if verdict is not None:
            others.count(verdict.reason, verdict.evidence)
    return ModernPoints(
        rows=rows,
        left_out=dict(others.reasons.most_common()),
        evidence=dict(others.classes.most_common()),
    )


UNSAID = dict.fromkeys(("tp", "dp", "ep"), "1") | {
    "engine": "vllm",
    "kv_precision": "fp8",
    "spec_decoding": "none",
    "tier": "A",
    "date": "..",
}
"""What the submissions have and the file does not say; the date is that of a median, for the newest
preset."""

QUEUED, ORCA_ISL = 1024, 294
"""Requests of an Offline run that an instance has at once: as many slots as its throughput still
gains from; mean prompt of OpenOrca."""


def select_submitted(file: Path) -> list[Row]:
    """AMD's Offline runs of Llama 2 70B in MLPerf v6.1: one GPU of each system, with tokens/s
    alone.

    Its other scenarios and models, and other vendors, are left to judge. The engine is AMD's tuned
    vLLM 0.22 (README of the data).

    Raises:
        InputError: the file cannot be read.
    """
    rows: list[Row] = []
    for line in lines_of(
        file, ("gpu_id", "model", "scenario", "tokens_per_s", "tokens_per_sample")
    ):
        if (
            line["scenario"] != "Offline"
            or line["model"] != "llama-2-70b"
            or find_gpu(line["gpu_id"]).vendor != "AMD"
        ):
            continue
        drawn = 1.0 - SPREAD / 2
        told = {
            "gpu": line["gpu_id"],
            "output_tokens_per_s": str(float(line["tokens_per_s"]) / float(line["gpus"])),
        }
        told |= {
            "isl": str(ORCA_ISL / drawn),
            "osl": str(float(line["tokens_per_sample"]) / drawn),
            "concurrency": str(QUEUED),
        }
        facts = facts_of(line | UNSAID | told) | {"spread": SPREAD, "submitted": True}
        if row_of(facts, rows) is not None:
            raise InputError(f"{file}: a row of {line['gpu']} cannot be predicted")
    return rows


def lines_of(file: Path, columns: Sequence[str] = COLUMNS) -> list[dict[str, str]]:
    """The lines of the file by column.

    Raises:
        InputError: it cannot be read, or lacks a column.
    """
    try:
        content = file.read_bytes()
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); give {FILE} of ../shared/data/modern"
        ) from None
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    missing = [name for name in columns if not lines or name not in lines[0]]
    if missing:
        raise InputError(
            f"{file} has no column '{missing[0]}'; give {FILE} of ../shared/data/modern"
        )
    return lines


def facts_of(line: Mapping[str, str]) -> Row:
    """What a line says, by the names of this package."""
    gpu = rules().gpus.get(line["gpu"], line["gpu"].lower())
    clients, rate = float(line["concurrency"]), _number(line, "output_tokens_per_s")
    tp, dp = (int(float(line[name] or 1)) for name in ("tp", "dp"))
    return {
        "source": line["source"],
        "model": find_model(line["model"]).name,
        "gpu": gpu,
        "amd": find_gpu(gpu).vendor == "AMD",
        "dump": line["source"].startswith(("inferencex", "aiconfigurator")),
        "engine": line["engine"],
        "day": _day(line["date"]),
        "precision": line["precision"],
        "kv": line.get("kv_precision", ""),
        "spec_decoding": line["spec_decoding"],
        "tp": tp // dp,
        "dp": dp,
        "ep": int(float(line["ep"] or 1)),
        "isl": int(float(line["isl"])),
        "osl": int(float(line["osl"])),
        "concurrency": max(int(clients), 1),
        "tier": line["tier"],
        "released": is_released(line.get("engine_version", "")),
        "itl_ms": _number(line, "tpot_ms_mean", "tpot_ms_median"),
        "ttft_ms": _number(line, "ttft_ms_mean"),
        MEDIAN: None if line.get("ttft_ms_mean") else _number(line, "ttft_ms_median"),
        # of fewer clients than instances, the one that has a client
        "output_tok_s": rate and rate / min(clients, 1.0),
    }


def is_released(versions: str) -> bool:
    """Whether the newest of a point's images is a released version of its engine, or none is
    stated.

    Otherwise nothing but images of the first weeks in which an engine ran the model, the format or
    the GPU is known: of a branch such as "deepseek-v4-mi35x", or of a night. Such a point is *first
    support*: slower than what a release does later, by how much nobody knows.
    """
    newest = versions.rpartition(" .. ")[2].rpartition("/")[2].rpartition(":")[2].partition("@")[0]
    return not newest or (RELEASED.search(newest) is not None and "nightly" not in newest)


def derived_ttft_ms(row: Row) -> float | None:
    """The TTFT of one client alone, from tokens/s and the time per token: what its answers take
    beyond their tokens; None for others.

    Where one is measured as well it is within 2 % of that (36 points of 2026).
    """
    if row["concurrency"] != 1 or not row["output_tok_s"] or not row["itl_ms"]:
        return None
    tokens = row["osl"] * (1 - row["spread"] / 2)
    return max(1e3 * tokens / row["output_tok_s"] - (tokens - 1) * row["itl_ms"], 0.0) or None


def _day(date: str) -> str:
    """The day, or the month, of a run as ISO 8601 writes it; empty for a median over many runs."""
    if ".." in date:
        return ""
    return date if "-" in date else f"{date[:4]}-{date[4:6]}-{date[6:]}"


def _number(line: Mapping[str, str], *columns: str) -> float | None:
    text = next((line[name] for name in columns if line.get(name)), "")
    return float(text) if text else None


def row_of(facts: Row, rows: list[Row]) -> Verdict | None:
    """Append the row of a line with the settings of its run; or say why it cannot be predicted.

    That weights find no room is what our estimate of memory says of a run that took place, so that
    it is no evidence against the line.
    """
    row = facts | settings(rules().formats, facts)
    if "format" not in row:
        return Verdict(reason=f"precision {facts['precision']}", evidence=STATED)
    for part in (rules().caches, rules().runs, rules().alone):
        row |= settings(part, row)
    cache = {"fp8_e4m3": "fp8", "fp8": "fp8", "auto": "fp16"}.get(row["kv"], row["cache"])
    row["precision"] = f"{row['format']}+kv-{cache}"
    row |= {
        "family": row["engine"],
        "submitted": row.get("submitted", False),
        "spread": row.get("spread", SPREAD if row["dump"] else 0.0),
    }
    row |= {"engine": rules().engines[row["engine"]]} | settings(rules().versions, row)
    row["ttft_ms"] = row["ttft_ms"] if row["ttft_ms"] or row[MEDIAN] else derived_ttft_ms(row)
    try:
        if memory_plan(point_of(row).deployment).blocks < 1:
            return Verdict(reason="no room for a KV cache", evidence=CONTRADICTS)
    except DoesNotFit:
        return Verdict(reason="weights beyond the engine's share of memory", evidence=CONTRADICTS)
    except InputError as error:
        return Verdict(
            reason=f"a split that is not estimated: {error.path or 'other'}", evidence=STATED
        )
    rows.append(row)
    return None
