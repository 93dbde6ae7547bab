"""Write docs/accuracy.md: predictions against every measured file, the held-out errors of the fit,
and the course's cases.

    ./benchmark accuracy ../shared/data > docs/accuracy.md

Nothing in it is tuned for the course's cases; the measured files are those that the fit saw
(`docs/fit.md`), so the errors over all rows are in sample, and the held-out ones are printed from
the fit's own report.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import field
from benchmarks.beside_aiconfigurator import comparison
from benchmarks.held_out import decisions_in_short, held_out_in_short
from benchmarks.points_of_2026 import of_2026, of_2026_in_short
from tonnage import api
from tonnage.evidence.predict import measured_table
from tonnage.evidence.score import Errors, ScoreReport
from tonnage.perf.residuals import shipped_residuals
from tonnage.perf.terms_file import shipped
from tonnage.report.measured import METRIC_TITLES as NAMES
from tools.fit.silicon.sample import installed_sample
from tools.fit.silicon.table import silicon_table

FILES = {
    "trtllm_static_batch.csv": (
        "TensorRT-LLM 0.9, one static batch (TTFT, token latency, peak memory)"
    ),
    "nim_inflight.csv": "NIM, in-flight batching, closed loop of 1 to 250 clients",
    "trtllm_throughput.csv": "TensorRT-LLM 0.15, all requests queued at once",
}
LOADED = ("nim_inflight.csv",)
"""Files with curves under load."""
CURVE = Path(__file__).resolve().parent.parent / "examples" / "nim-llama-3-8b-h100-fp8.csv"
DAY_S = 8 * 3600
HELD_OUT_NAMES = NAMES | {"ttft_all_ms": "TTFT, all rows", "itl_median_ms": "TPOT, median error"}
"""The median error has a sign; in the row of means it is a mean of magnitudes."""
APART = {
    "decode pools": "decode pools of disaggregated deployments: in no fit, so held out",
    "unexplained": (
        "unexplained rows: left out of the fit because they contradict it, and for no better reason"
    ),
}
KINDS = ("model", "gpu", "precision", "engine", "regime", "cache")


def main() -> None:
    """Print the page."""
    data = Path(sys.argv[1])
    print("\n".join(_page(data)))


PLANNERS = """\
## For planners

How many requests may be in flight before a token takes too long? Every measured curve (one deployment, one pair of lengths, three loads or
more) answers for the limits of 10, 15, 20, 30, 40, 60 and 80 ms that it crosses. The table has the predicted number over the measured one:
its median, the share that is within 20 %, and the share that promises over 10 % too much. "At the right level" is the share within 20 %
after one factor for each model, GPU, engine and format, which makes the median of its times right: what a measurement of your own gives.
A plan does not count on the predicted times: at its usual confidence of 80 % it takes them to be longer, by what the errors of such
predictions ask for ([intervals.md](intervals.md#confidence-of-a-plan)). The last two columns have what it then promises. Models and GPUs
of 2026 were left out of the fit for it, one by one. Lines of a model or a GPU are of released images. The next ones have all of them by
class: images of the first weeks in which an engine ran a model, format or GPU are *first support*. "One run for another" is what a measured
run decides for a later one of the same configuration: the floor below which no model comes.

<!-- decisions -->
{decisions}
<!-- end of decisions -->

How far off will the answer be for a model, a GPU or an engine that nobody measured for this fit? The table has the mean errors, in
percent, on measurements that were left out: the fit was repeated without them, and its predictions were then compared with them.

<!-- held out in short -->
{table}
<!-- end of held out in short -->

- **The number of systems** follows from the requests/s that one instance carries. On deployments of a kind that was measured it is off
  by about 5 %, on average and in either direction. The demand that you enter is usually less certain than that.
- **The time per token** is off by 5 to 7 % for dense models, and by 10 % for mixtures of experts on the engines of 2025.
{of_2026}
- **Compared with AISimulate** 0.13 on the same points of 2026, each model left out of this fit: the median error of the time per token is
  6.3 % here and 14.5 % there, that of tokens/s 5.9 and 14.8 % ([fit.md](fit.md#compared-with-aisimulate), `./benchmark rivals`).
- **The TTFT** is the least certain figure: it is off by 5 to 9 % where the engine and the load are of a measured kind, by 14 to 21 % on the
  engines of 2025, and by more for models of 2026 (see above). Where a limit on the TTFT binds, leave it some room, or measure.
- **Every answer carries these errors with it.** "P(meets the limits)" and "systems at confidence" are computed from them, and from the
  scatter of the simulation. Where too few systems would be expensive, take the number at 95 %. [intervals.md](intervals.md) explains
  where the intervals come from, and how often they held.
- **A mark (`*`)** says that a prediction rests on a datasheet, or on values of a relative. Its interval is wider;
  [limits.md](scope.md#limits) lists what was never measured at all.
- **Your own measurements help more than anything else.** Ten points of one curve, given to [calibrate](calibrate.md), bring the time per
  token of the same model and GPU from 5 % to 3 %. Before you buy, [measure](bench.md) the chosen deployment and size again.

The rest of this page has every group of measurements, to show where the errors are."""


def _page(data: Path) -> Iterator[str]:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    yield "# Accuracy"
    yield ""
    measured = {f"{name}, in sample": measured_table(data / name) for name in LOADED}
    sample = installed_sample()
    measured |= (
        {}
        if sample is None
        else {"engines of 2025 (silicon_sample.csv), in sample": silicon_table(sample)}
    )
    yield PLANNERS.format(
        decisions="\n".join(decisions_in_short(measured)),
        table="\n".join(held_out_in_short()),
        of_2026="\n".join(of_2026_in_short()),
    )
    yield ""
    yield "## About the figures"
    yield ""
    yield (
        f"Generated on {today} by `./benchmark accuracy` on {os.cpu_count()} cores of"
        f" {platform.machine()},"
    )
    yield (
        f"Python {platform.python_version()}; run it again to check. All figures are in percent."
        " MAPE is the mean of"
    )
    yield "|predicted − measured| / measured, bias the mean of (predicted − measured) / measured."
    yield ""
    yield (
        "The coefficients were fitted to these files ([fit.md](fit.md)), so that the errors in the"
        " first part are in sample."
    )
    yield (
        "What to expect on hardware, models and precisions that were not in the fit is in the"
        " second part. Rows of silicon_sample.csv"
    )
    yield (
        "that the fit leaves out only because they contradict the predictions count only in the"
        " figure of their stratum,"
    )
    yield (
        '"unexplained rows", in the first part. A measurement made as they were will show errors as'
        " large."
    )
    yield ""
    yield "## In sample"
    for name, title in FILES.items():
        yield from _file(data / name, title)
    yield from _silicon()
    yield from _held_out()
    yield from of_2026()
    yield from _coverage()
    yield from comparison(data, list(FILES))
    yield from _cases()


def _silicon() -> Iterator[str]:
    """The section on the rows of the installed wheel, if it is installed."""
    sample = installed_sample()
    title = "Current engines, closed loops (silicon_sample.csv of the wheel aiconfigurator-core)"
    if sample is None:
        yield from (
            "",
            f"### {title}",
            "",
            "Not scored: the wheel is not installed where this page was made.",
        )
        return
    report, command = api.score(silicon_table(sample)), f"./fit score {sample.name}"
    yield from _report(report, title, command)
    yield from ("", *report.remarks)
    for kind, apart in report.apart.items():
        yield from _report(apart, f"The same file, {APART.get(kind, kind)}", command)
        yield from ("", *apart.remarks)


def _file(path: Path, title: str) -> Iterator[str]:
    yield from _report(api.score(path), title, f"./tonnage score ../shared/data/{path.name}")


def _report(report: ScoreReport, title: str, command: str) -> Iterator[str]:
    yield ""
    yield f"### {title}"
    yield ""
    yield f"`{command}`: {report.predicted} of {report.rows} rows predicted."
    yield ""
    yield "| rows | metric | MAPE | median | bias | n |"
    yield "|---|---|---|---|---|---|"
    for kind, errors in _parts(report):
        for metric, e in errors.items():
            yield (
                f"| {kind} | {NAMES[metric]} | {e.mape:.1f} | {e.median_ape:.1f} | {e.bias:+.1f} |"
                f" {e.n} |"
            )
    for kind in KINDS:
        if kind in ("model", "gpu") or len(report.groups.get(kind, {})) > 1:
            yield ""
            yield from _groups(kind, report)
    yield from _worst(report)


def _parts(report: ScoreReport) -> list[tuple[str, Errors]]:
    if report.not_steady:
        return [
            ("steady", report.steady),
            ("not steady", report.not_steady),
            ("all", report.overall),
        ]
    families = report.groups["family"]
    return [("all", report.overall), *([] if len(families) == 1 else families.items())]


def _groups(kind: str, report: ScoreReport) -> Iterator[str]:
    groups = report.groups[kind]
    metrics = [m for m in NAMES if any(m in errors for errors in groups.values())]
    yield f"| {kind} | {' | '.join(NAMES[m] for m in metrics)} | n |"
    yield "|---" * (len(metrics) + 2) + "|"
    for name, errors in groups.items():
        cells = " | ".join(f"{errors[m].mape:.1f}" if m in errors else "–" for m in metrics)
        yield f"| {name} | {cells} | {max(e.n for e in errors.values())} |"


def _worst(report: ScoreReport) -> Iterator[str]:
    """The rows that are furthest off, and what decides them."""
    yield ""
    yield "| row | metric | measured | predicted | error % | decided by |"
    yield "|---|---|---|---|---|---|"
    for row in report.worst:
        metric, group, p = row.worst_metric, row.group, row.point
        load = f"{group['load']} {p.batch or p.concurrency or p.request_rate:g}"
        what = f"{group['deployment']}, {group['engine']}, {group['lengths']}, {load}"
        values = (
            f"{row.measured[metric]:,.4g} | {row.predicted[metric]:,.4g} |"
            f" {row.errors[metric]:+.0f}"
        )
        yield f"| {what} | {NAMES[metric]} | {values} | {row.reason} |"


def _held_out() -> Iterator[str]:
    report = shipped().get("report", {}).get("held_out", {})
    if not report:
        return
    yield ""
    yield "## Held out"
    yield ""
    yield (
        "Fitted without the rows that are scored. `./fit ../shared/data --silicon"
        " silicon_sample.csv` prints these figures, and"
    )
    yield "stores them in `terms.json`, from which they are printed here."
    for title, folds in report.items():
        metrics = list(next(iter(folds.values())))
        yield ""
        yield f"### {title}"
        yield ""
        yield f"| left out | {' | '.join(HELD_OUT_NAMES.get(m, m) for m in metrics)} |"
        yield "|---" * (len(metrics) + 1) + "|"
        for name, errors in folds.items():
            yield f"| {name} | {' | '.join(f'{errors[m]:.1f}' for m in metrics)} |"


def _coverage() -> Iterator[str]:
    report = shipped_residuals().report.get("coverage_by_regime", {})
    if not report:
        return
    yield ""
    if field.FILE.exists():
        yield from field.in_short()
    yield "## Error bars"
    yield ""
    yield (
        "Share of held-out measurements inside their 80 % interval, table and stretch made without"
        " their group (docs/intervals.md)."
    )
    yield "After a colon: the rows of one group."
    yield ""
    yield f"| regime | {' | '.join(NAMES.get(metric, metric) for metric in report)} | rows |"
    yield "|---" * (len(report) + 2) + "|"
    for name in sorted({name for table in report.values() for name in table}):
        cells = [table.get(name) for table in report.values()]
        shares = " | ".join("–" if cell is None else f"{cell['percent']:.0f}" for cell in cells)
        yield f"| {name} | {shares} | {max(cell['rows'] for cell in cells if cell is not None)} |"


def _cases() -> Iterator[str]:
    yield ""
    yield "## Cases of the course"
    yield ""
    yield (
        'Expected: as NVIDIA\'s course "Sizing LLM Inference Systems" gives it (software of 2024).'
        " No term was tuned for one of them."
    )
    yield ""
    yield "| case | figure | expected | got | difference |"
    yield "|---|---|---|---|---|"
    yield from _gpt_43b()
    yield from _llama_70b_batch_8()
    yield from _llama_8b_day()
    yield ""
    yield (
        "GPT-43B: the course's 13 systems follow from 32 requests in flight per DGX (32 / 13.3 s ="
        " 2.4/s), a limit of its"
    )
    yield (
        "configuration. The first rows hold the deployment and the 32 clients; the last one lets"
        " Tonnage choose."
    )
    yield (
        "Llama 70B at batch 8: an older stack; the static file of the same course implies about 2 s"
        " and 20 ms."
    )
    yield (
        "Tokens a day: the slide says 4.2 B and 261 M, which do not follow from its own 70.7"
        " prompts/s × 28,800 s × 2,000 and 200"
    )
    yield (
        "tokens; these are 4.07 B and 407 M. The ten points of that curve are among the rows of the"
        " fit."
    )


def _row(case: str, figure: str, expected: float, got: float, unit: str) -> str:
    return (
        f"| {case} | {figure} | {expected:,.4g} {unit} | {got:,.4g} {unit} |"
        f" {100 * (got / expected - 1):+.0f} % |"
    )


def _gpt_43b() -> Iterator[str]:
    case = "GPT-43B, DGX H100, FP16 TP 8, 3500/500, 32 clients"
    run = api.simulate(
        model="gpt-43b",
        gpu="h100-sxm-80gb",
        precision="fp16",
        tp=8,
        engine="nim-2024",
        isl=3500,
        osl=500,
        concurrency=32,
        requests=640,
    )
    rate = run.summary.requests_per_second
    yield _row(case, "requests/s per system", 2.4, rate, "")
    yield _row(case, "systems for 31/s", 13, -(-31 // rate), "")
    yield _row(case, "TTFT mean", 2606, run.summary.ttft_ms.mean, "ms")
    yield _row(case, "time per token", 21.4, run.summary.tpot_ms.mean, "ms")
    plan = api.size(
        model="gpt-43b",
        gpu="h100-sxm-80gb",
        isl=3500,
        osl=500,
        peak_rps=31,
        ttft="mean<=3s",
        engine="tensorrt-llm",
    )
    best = plan.choice
    if best is not None:
        yield _row(
            f"GPT-43B, free choice: {best.precision} TP {best.tp}, {best.engine}",
            "systems for 31/s",
            13,
            best.systems,
            "",
        )


def _llama_70b_batch_8() -> Iterator[str]:
    case = "Llama-2-70B, H100 TP 4 FP16, batch 8, 3500/500"
    run = api.simulate(
        model="llama-2-70b",
        gpu="h100-sxm-80gb",
        precision="fp16",
        tp=4,
        engine="tensorrt-llm-0.9",
        isl=3500,
        osl=500,
        concurrency=8,
        requests=8,
    )
    yield _row(case, "TTFT", 2600, run.summary.ttft_ms.mean, "ms")
    yield _row(case, "time per token", 26.8, run.summary.tpot_ms.mean, "ms")


def _llama_8b_day() -> Iterator[str]:
    case = "Llama-3-8B, H100 FP8 TP 1, 2000/200, TTFT mean ≤ 500 ms"
    measured = api.size_measured(benchmarks=CURVE, peak_rps=199.77, ttft="mean<=500ms").choice
    predicted = api.size(
        model="llama-3-8b",
        gpu="h100-sxm-80gb",
        isl=2000,
        osl=200,
        peak_rps=199.77,
        ttft="mean<=500ms",
        precision="fp8",
        tp=1,
        engine="nim-2024",
        load="closed",
    ).choice
    for way, choice in (("measured curve", measured), ("predicted", predicted)):
        if choice is None:
            continue
        rate = choice.requests_per_second_per_8_gpus
        name = f"{case}, {way}"
        yield _row(name, "prompts/s per DGX", 70.7, rate, "")
        yield _row(name, "requests per 8-hour day", 2.04, rate * DAY_S / 1e6, "M")
        yield _row(name, "users at 3 requests a day", 679, rate * DAY_S / 3e3, "k")
        yield _row(name, "tokens in a day", 4.07, rate * DAY_S * 2000 / 1e9, "B")
        yield _row(name, "tokens out a day", 407, rate * DAY_S * 200 / 1e6, "M")


if __name__ == "__main__":
    main()
