"""``tonnage calibrate``: one's own measurements to a file that predictions take with ``--coefficients``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.calibration.calibrate import CalibrationReport


def calibrate(
    *measured: Path,
    output: Path | None = None,
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    isl: int | None = None,
    osl: int | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Fit the step model to a few measurements of your own.

    The factors are kept only where they predict points better that they have not seen.

    Parameters
    ----------
    measured
        Files or folders: CSV of points, GenAI-Perf or AIPerf reports, vllm bench results, GuideLLM's benchmarks.json, run folders.
    output
        File for the factors; simulate, size and score take it with --coefficients.
    model
        Model that was measured, where the files do not say it.
    gpu
        GPU, likewise.
    precision
        Number format, such as fp16, fp8 or awq, likewise.
    tp
        Tensor-parallel degree, likewise.
    engine
        Engine preset, likewise.
    isl
        Prompt tokens, likewise.
    osl
        Output tokens, likewise.
    json
        Print what the file would hold as one JSON object.
    """
    from tonnage import api
    from tonnage.cli.provenance import today

    if not measured:
        raise InputError("calibrate: nothing measured is given; name a file, for example ./tonnage calibrate points.csv --output my.json")
    compile_if_needed()
    said = {"model": model, "gpu": gpu, "precision": precision, "tp": tp, "engine": engine, "isl": isl, "osl": osl}
    date = today().isoformat()
    with progress_bar("calibrating") as progress:
        report = api.calibrate(measured, output=output, date=date, progress=progress, **said)  # type: ignore[arg-type]
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(report.to_json(date)))
    else:
        print(show_calibration(report, output))


def show_calibration(report: CalibrationReport, output: Path | None) -> str:
    """What was found, as lines of text."""
    from tonnage.cli.show_score import NAMES
    from tonnage.cli.table import number, table, wrapped

    aside = f"; {report.not_steady} set aside (not steady)" if report.not_steady else ""
    errors = [
        (
            NAMES.get(name, name),
            number(value),
            number(report.after[name]),
            number(report.left_out_before[name]),
            number(report.left_out[name]),
        )
        for name, value in report.before.items()
    ]
    header = ("MAPE %", "shipped", "calibrated", "left out, shipped", "left out, fitted")
    terms = [(name, f"×{factor:.3f}", f"{report.shrinkage[name]:.0%}") for name, factor in report.factors.items()]
    return "\n\n".join(
        [
            f"{report.calibration.data}: {report.calibration.preset} on {report.calibration.gpu}{aside}",
            table(header, errors),
            table(("term", "fitted", "width left"), terms),
            "\n".join(wrapped(f"· {line}") for line in report.verdict()),
            *([f"written: {output}"] if output is not None else []),
        ]
    )
