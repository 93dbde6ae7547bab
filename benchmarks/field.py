"""What users measured beside what Tonnage predicts for it: errors, intervals and decisions, by
source and by kind of deployment.

    ./benchmark field [--file ../shared/field/measured_by_users.csv] [--rows] [--widths]

The first tables are of each source left out: predicted without the terms that were read off it
alone (``TAUGHT``), with intervals whose factors are read off the others. The next are as shipped,
by kind and by source.

Of TPOT, TTFT and tokens/s the table has the mean and the median of the sizes of the errors, their
bias, and the share of the measured values inside the 80 % interval of their prediction, all in
percent. Decisions are those of docs/accuracy.md: the most clients, or requests per second, inside a
limit on the TPOT, along the rows of one deployment with equal lengths; "too much" promises over 10
% more than was measured, as predicted and at the confidence of a plan. A measured curve answers
between two of its loads, which are up to four times apart; the next columns count as right what is
between the same two, and as too much only a load that was measured to break the limit. ``--rows``
prints every row. About ten seconds of CPU.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

from tonnage.evidence.predict import measured_table
from tonnage.evidence.score import report_of
from tonnage.perf import links
from tonnage.perf.residuals import (
    ELSEWHERE,
    STANDS_IN,
    like,
    metric_elsewhere,
    shipped_residuals,
)
from tonnage.perf.terms_file import shipped
from tools.fit.decisions import decided, surely

if TYPE_CHECKING:
    from tonnage.evidence.score import ScoredRow

FILE = Path(__file__).resolve().parents[2] / "shared" / "field" / "measured_by_users.csv"
METRICS = {"itl_ms": "TPOT", "ttft_ms": "TTFT", "output_tok_s": "tokens/s"}
SMALL_MODEL, DENSE_MODEL = 2e9, 7e9
"""Parameters up to which a model is small here, and from which a dense one on one data-centre GPU
is of the kind "dense, TP 1"."""

TARGET = {"ttft_ms": 0.92, "itl_ms": 0.8, "requests_s": 0.7}
"""The share of the rows that the factors are read off which is inside, so that 79 to 85 % of those
of sources that were left out are. The errors of a TTFT differ most between sources: with 0.9 one
source of 25 rows has 55 % inside when the others decide."""

LEAST = {"pcie": 3.5, "four bits": 3.0, "ranks": 2.0}
"""The least factor of a kind of which these rows have two sources or none. Over PCIe hosts differ
by 40 % to a factor of two, and the logarithm of two is 3.5 times half of other widths. Of dense
models in four bits 17 other rows (AWQ and GPTQ) had none inside. Attention ranks are points of 2026
with their model left out (``./fit``)."""

TAUGHT: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "github Subrahmanyam2305/LLM-serve": lambda: patch.dict(
        shipped()["gpus"]["a10g-24gb"], memory=0.92
    ),
    "github sariekr/gpu_conc": lambda: patch.dict(
        shipped()["engines"]["vllm-0.10"], expert_layer_4bit_s=130e-6
    ),
    "github IOG-Foundation/llm-inference-benchmarks": lambda: patch.object(
        links, "staged", lambda _gpu, _tp: False
    ),
}
"""What a source alone taught, undone: A10G's bandwidth (0.92 is that of A100 PCIe), layers of
experts in four bits before their kernels were fused, of which another source asks for 130 µs, and
sums of GeForce through the host's memory. The latency of sums over PCIe is what either of two
sources asks for."""

ROUNDS = 8  # In which the factors of ``ELSEWHERE`` settle

DECIDED = {
    "near": "within 20 %",
    "same": "or between the same loads",
    "too much": "too much",
    "broken": "a load that broke the limit",
    "sure too much": "too much at a plan's confidence",
    "sure broken": "such a load at a plan's confidence",
}
"""What of ``tools.fit.decisions.decided`` is printed, with the heads of its columns."""

Row = tuple[Mapping[str, str], "ScoredRow", float]
"""A row as its file has it, its prediction, and how many times as long a token takes at a plan's
usual confidence."""


def over_pcie(row: Row) -> bool:
    """Whether the GPUs of an instance exchange their sums over PCIe, or over bridges in pairs."""
    d = row[1].point.deployment
    return d.parallelism.tp > 1 and d.gpu.link in ("pcie", "nvlink-bridge")


def dense_tp1(row: Row) -> bool:
    """Whether a row is of a dense model of 7B or more in 8 or 16 bits on one data-centre GPU, with
    fewer than 64 prompts at once.
    """
    d, load = row[1].point.deployment, row[0]["load"]
    sizes = (
        not d.model.is_moe
        and d.model.parameters >= DENSE_MODEL
        and d.parallelism.gpus == 1
        and d.precision.weight_bytes >= 1
    )
    return (
        sizes
        and load != "burst"
        and d.gpu.vendor == "NVIDIA"
        and not d.gpu.name.startswith(("rtx-4", "rtx-5", "rtx-3"))
    )


KINDS: dict[str, Callable[[Row], bool]] = {
    "TP over PCIe": over_pcie,
    "bursts": lambda row: row[0]["load"] == "burst",
    "1 to 8 clients": lambda row: row[0]["load"] == "1-8",
    "four bits": lambda row: row[1].point.deployment.precision.weight_bytes < 1,
    "small models": lambda row: row[1].point.deployment.model.parameters <= SMALL_MODEL,
    "open loop": lambda row: row[0]["load"] == "open",
    "experts": lambda row: row[1].point.deployment.model.is_moe,
    "dense, TP 1": dense_tp1,
}
"""Kinds of deployment and load; a row may be of several."""


def read_rows(path: Path) -> tuple[list[Row], int]:
    """The rows of a file that can be predicted, with their predictions, and how many cannot."""
    with path.open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    report, scored = report_of(measured_table(path))
    rows = [(written[row.line - 2], row, surely(row.regime)) for row in scored]
    return rows, len(report.skipped)


def left_out(path: Path, rows: Sequence[Row]) -> list[Row]:
    """The rows with the predictions and the intervals that they have without their source."""
    measured, without = deviations(rows), list[Row]()
    with path.open(encoding="utf-8", newline="") as file, TemporaryDirectory() as folder:
        header, *lines = file
        sources = [written["source"] for written in csv.DictReader([header, *lines])]
        for source in dict.fromkeys(written["source"] for written, _, _ in rows):
            own = Path(folder) / "rows.csv"
            own.write_text(
                "".join(
                    [
                        header,
                        *(line for line, of in zip(lines, sources, strict=True) if of == source),
                    ]
                ),
                encoding="utf-8",
            )
            with ExitStack() as undone:
                others = factors([row for row in measured if row[0] != source])
                undone.enter_context(
                    patch.dict(cast("dict[str, Mapping[str, float]]", ELSEWHERE), others)
                )
                if source in TAUGHT:
                    undone.enter_context(TAUGHT[source]())
                without += read_rows(own)[0]
    return without


def errors(rows: Sequence[Row], metric: str) -> str:
    """Mean, median, bias, share inside the interval, and number of rows of one metric, as cells of
    a table.
    """
    of_metric = [row for _, row, _ in rows if metric in row.errors]
    if not of_metric:
        return "– | – | – | – | 0"
    values = [row.errors[metric] for row in of_metric]
    sizes = list(map(abs, values))
    bounds = [
        (row.intervals[metric], row.measured[metric])
        for row in of_metric
        if metric in row.intervals
    ]
    inside = (
        f"{100 * statistics.fmean(low <= value <= high for (low, high), value in bounds):.0f}"
        if bounds
        else "–"
    )
    return (
        f"{statistics.fmean(sizes):.1f} | {statistics.median(sizes):.1f} |"
        f" {statistics.fmean(values):+.1f} | {inside} | {len(values)}"
    )


Deviation = tuple[str, str, frozenset[str], float, float, float]
"""Of a row and a metric: the source, the column of ``ELSEWHERE``, what sets the deployment apart,
the error over half the width of the interval that it has as it was measured, the squared widening
for what the fit had no rows of, and the weight of the row."""


def deviations(rows: Sequence[Row]) -> list[Deviation]:
    """How far the measured values are from their predictions in units of the intervals; rows of a
    source share its root in weight.
    """
    residuals, found = shipped_residuals(), []
    counts = Counter(written["source"] for written, _, _ in rows)
    for written, row, _ in rows:
        plain = replace(row.regime, apart=frozenset())
        for metric in set(METRICS) & row.intervals.keys():
            name = str(like(metric, residuals.quantiles))
            column, rate = metric_elsewhere(name), name == "requests_s"
            if plain.kind not in residuals.quantiles[name]:
                name = STANDS_IN[name]
            middle = residuals.log_error(metric, plain, 0.5)
            error = math.log(row.predicted[metric] / row.measured[metric]) - middle
            half = residuals.log_error(metric, plain, 0.9 if error > 0 else 0.1) - middle
            slower = (error > 0) == rate
            unseen = residuals.unseen(name, plain, plain.kind, column, slower=slower)
            weight = 1 / math.sqrt(counts[written["source"]])
            away = error / half * unseen
            source, causes = written["source"], row.regime.causes
            found.append((source, column, causes, away, unseen**2, weight))
    return found


def factors(measured: Sequence[Deviation]) -> dict[str, dict[str, float]]:
    """The least factors of ``ELSEWHERE`` with which ``TARGET`` of the rows of each kind are inside.

    A cause is read off the rows that have no other one but the host, where there are some.
    """
    found = {cause: dict.fromkeys(columns, 1.0) for cause, columns in ELSEWHERE.items()}
    for cause in ROUNDS * tuple(found):
        for column in found[cause]:
            rows = [row for row in measured if row[1] == column and cause in row[2]]
            needed = sorted(
                (max(row[3] ** 2 - row[4] - _others(found, row, cause), 0.0), row[5])
                for row in [row for row in rows if row[2] <= {cause, "host"}] or rows
            )
            least = LEAST.get(cause, 1.0)
            wanted = math.sqrt(1.0 + _weighted(needed, TARGET[column]))
            found[cause][column] = max(round(wanted, 1), least)
    return found


def _others(found: Mapping[str, Mapping[str, float]], row: Deviation, but: str = "") -> float:
    return sum(found[cause][row[1]] ** 2 - 1.0 for cause in row[2] if cause != but)


def _weighted(values: Sequence[tuple[float, float]], share: float) -> float:
    """The quantile of values with weights, in ascending order; 0 of none."""
    reached, whole = 0.0, sum(weight for _, weight in values)
    for value, weight in values:
        reached += weight
        if reached >= share * whole:
            return value
    return 0.0


def print_factors(rows: Sequence[Row]) -> None:
    """Print the factors of all rows, and how many are inside by those of the other sources, by kind
    of deployment.
    """
    measured = deviations(rows)
    for cause, columns in factors(measured).items():
        print(f'    "{cause}": {columns},')
    inside: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for source in {row[0] for row in measured}:
        others = factors([row for row in measured if row[0] != source])
        for row in measured:
            if row[0] == source:
                held = row[3] ** 2 <= row[4] + _others(others, row)
                for cause in ("all", *row[2]):
                    inside[cause, row[1]].append(held)
    print("\n| apart by, source left out | column | inside | n |\n|---|---|---|---|")
    for (cause, column), held in sorted(inside.items()):
        print(f"| {cause} | {column} | {100 * statistics.fmean(held):.0f} | {len(held)} |")


def decision_cells(rows: Sequence[Row]) -> str:
    """How many decisions there are, the shares that are right and that promise too much, as
    predicted and at a plan's confidence.
    """
    loads, longer = [], []
    for written, row, slower in rows:
        load = row.point.concurrency or row.point.request_rate
        if load and "itl_ms" in row.errors:
            curve = (
                written["source"],
                written["group"],
                written["isl"].partition(":")[0],
                row.point.isl // 100,
                row.point.load,
            )
            loads.append((curve, float(load), row.measured["itl_ms"], row.predicted["itl_ms"]))
            longer.append(slower)
    found = decided(loads, longer)
    return " | ".join(
        f"{found[key]:.0f}" if key in found else "–" for key in ("decisions", *DECIDED)
    )


def tables(named: Mapping[str, Sequence[Row]], title: str) -> Iterator[str]:
    """Lines with one for each group of rows: the three metrics, then the decisions."""
    for metric, name in METRICS.items():
        yield from (
            "",
            f"| {title} | {name}: mean | median | bias | inside | n |",
            "|---|---|---|---|---|---|",
        )
        for group, rows in named.items():
            if any(metric in row.errors for _, row, _ in rows):
                yield f"| {group} | {errors(rows, metric)} |"
    yield from (
        "",
        f"| {title} | decisions | {' | '.join(DECIDED.values())} |",
        "|---|---|---|---|---|---|---|---|",
    )
    for group, rows in named.items():
        cells = decision_cells(rows)
        if not cells.startswith("0 "):
            yield f"| {group} | {cells} |"


def centres(rows: Sequence[Row]) -> Iterator[str]:
    """Lines with where the predictions of whole sources are centred: of each source the median of
    predicted over measured, without bursts, and of these the median, the mean and the spread.
    """
    yield from (
        "",
        "| medians of sources, without bursts | sources | median | mean | standard deviation |",
        "|---|---|---|---|---|",
    )
    for metric, name in METRICS.items():
        of_source: dict[str, list[float]] = defaultdict(list)
        for written, row, _ in rows:
            if metric in row.errors and written["load"] != "burst":
                ratio = row.predicted[metric] / row.measured[metric]
                of_source[written["source"]].append(math.log(ratio))
        medians = [statistics.median(logarithms) for logarithms in of_source.values()]
        if len(medians) > 1:
            figures = (statistics.median(medians), statistics.fmean(medians))
            cells = " | ".join(f"{100 * math.expm1(figure):+.0f} %" for figure in figures)
            yield f"| {name} | {len(medians)} | {cells} | {statistics.stdev(medians):.2f} |"


def by_kind(rows: Sequence[Row]) -> dict[str, Sequence[Row]]:
    """All rows, and those of each kind that has some."""
    kinds = {name: [row for row in rows if belongs(row)] for name, belongs in KINDS.items()}
    return {"all": rows, **{name: members for name, members in kinds.items() if members}}


def in_short() -> Iterator[str]:
    """The section of docs/accuracy.md."""
    rows, _ = read_rows(FILE)
    yield "## What users measured"
    yield ""
    sources = len({written["source"] for written, _, _ in rows})
    yield (
        f"`./benchmark field`: {len(rows)} points of {sources} public posts, each source left out:"
        " without the terms that were read"
    )
    yield (
        "off it alone (all-reduces of GeForce, experts in four bits of vLLM 0.10, A10G's"
        " bandwidth), and with [intervals](intervals.md)"
    )
    yield (
        "by the others. Decisions are those of the first table of this page, along a deployment's"
        " rows. A measured curve answers between"
    )
    yield (
        "two of its loads, up to four times apart: the next columns count as right what is between"
        " the same two, and as too much only a"
    )
    yield "load that was measured to break the limit."
    without = left_out(FILE, rows)
    yield from tables(by_kind(without), "kind, source left out")
    yield from centres(without)
    yield ""
    yield from UNEXPLAINED.splitlines()
    yield ""


UNEXPLAINED = """\
What is left of the errors (`./benchmark field --rows`):

- Bursts of 1,000 prompts (gpustack's performance lab, 17 of its 25 rows): a token takes 1.3 to 6 times as long as predicted and
  a first token up to 4.7 times, at up to 60 % fewer tokens/s. Its dense models at one to eight clients are within 6 % in TPOT.
  The API servers of these releases were not measured under such a load; [front-end.md](step-models.md#the-front-end-of-an-engine) has what was.
- One slow host (AccelMark's RTX 5090): a token of Qwen2.5 0.5B takes 2.7 to 4.4 times as long as predicted.
  `--host-speed 0.25` tells all of its runs; the post does not name the CPU.
- TP over PCIe on GeForce, when the one source that shows sums through the host's memory is left out; with it the error is 12 %.
- An open loop near saturation (kubernetes-sigs/inference-perf, 7 of the 30 rows of dense models at TP 1, 13 %): at one request
  a second a token is right within 2 %, at 92 it is predicted 43 % too slow. Each prompt of 204 tokens makes a step longer, and
  a longer step has more prompts, so that a small error of a mixed step grows. With constant arrivals, as the post has them, in
  place of random ones the seven are off by 5 %, and by 10 at most.
- First tokens of Qwen3 8B on vLLM 0.12 for one to eight clients (5 rows), and of Mistral 7B v0.3 at 16 clients and more
  (3 rows), take two to three times as long. The posts do not say why.
- gpt-oss 20B in vLLM 0.10, which one source has: MI300X takes 38 to 61 % longer from 4 clients on, B200 a third at 8. The
  experts of that release have their own term; one source is too little for a preset.
- Decisions that promise too much as predicted, 18 of 29: the middle of the sources is right (the table above), so that a factor for
  the hosts of users, read off the other sources, is 1.01 to 1.04 and leaves 59 %. It would take 1.2 on every time per token to come
  to 17 %, at a mean error of 24 % in place of 19; that is what a plan's confidence is for. Nine are of one source, whose card no
  other one has (A10G), five of RTX 4090 in vLLM 0.8, whose tokens take 6 to 10 % longer, three of TP over PCIe. Their curves are
  flat: where sixteen clients take a token 15 % longer than one, a time that is off by a tenth is a load that is off by a multiple.
- Of the two decisions that promise too much at a plan's confidence one is of TP over PCIe."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--file",
        type=Path,
        default=FILE,
        help="rows in the columns of score, with source, group and load",
    )
    parser.add_argument(
        "--widths",
        action="store_true",
        help="print the factors of ELSEWHERE instead, and what they hold of other sources",
    )
    parser.add_argument("--rows", action="store_true", help="print every row as well")
    arguments = parser.parse_args()
    rows, skipped = read_rows(arguments.file)
    print(f"{len(rows)} rows predicted, {skipped} not")
    if arguments.widths:
        print_factors(rows)
        return
    without = left_out(arguments.file, rows)
    print("\n".join([*tables(by_kind(without), "kind, source left out"), *centres(without)]))
    print("\n".join(tables(by_kind(rows), "kind, as shipped")))
    sources: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        sources[row[0]["source"]].append(row)
        if dense_tp1(row):
            sources[f"dense, TP 1, of {row[0]['source']}"].append(row)
    print("\n".join(tables(sources, "source, as shipped")))
    for written, scored, _ in rows if arguments.rows else ():
        values = (
            f"{METRICS[m]} {scored.measured[m]:g} → {scored.predicted[m]:.4g}"
            f" {scored.intervals.get(m)}"
            for m in METRICS
            if m in scored.errors
        )
        print(
            f"{scored.line} {scored.group['deployment']} {scored.group['engine']}"
            f" {written['load']}: {'; '.join(values)}"
        )


if __name__ == "__main__":
    main()
