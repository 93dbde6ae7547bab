"""``tonnage.calibrate``: a user's own measurements turned into factors on the shipped terms."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.arguments import stated

if TYPE_CHECKING:
    from tonnage.calibration.calibration_report import CalibrationReport
    from tonnage.sizing.planner import Progress


def calibrate(
    measured: str | Path | Iterable[str | Path],
    *,
    output: str | Path | None = None,
    date: str = "",
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    isl: int | None = None,
    osl: int | None = None,
    own_terms: bool | None = None,
    include_invalid: bool = False,
    progress: Progress | None = None,
) -> CalibrationReport:
    """Fit the step model to measured points of one engine on one GPU; the shipped terms stay where the fit predicts no better.

    Args:
        measured: files or folders: CSV of points, reports of GenAI-Perf or AIPerf, ``vllm bench`` results, GuideLLM's
            ``benchmarks.json``, run folders.
        output: file for the factors, which ``coefficients`` of ``simulate``, ``size`` and ``score`` take.
        date: of the measurements or of today, for the file.
        model, gpu, precision, tp, engine, isl, osl: what the files do not say.
        own_terms: whether to fit terms of one's own, from eight loads or more, instead of factors on the shipped ones; where the GPU is
            described by a YAML file if not given.
        include_invalid: whether run folders that their own client called INVALID count; they are left out if not, by name.
        progress: called with (done, total, name).

    Raises:
        InputError: a file cannot be read, points are too few, all of them are INVALID, or they are of several engines or GPUs.
    """
    from tonnage.calibration.calibrate import calibrate as run_calibrate
    from tonnage.results.invalid_runs import InvalidRuns
    from tonnage.results.measured_rows import read_measured
    from tonnage.results.store import write_json

    paths = [Path(measured)] if isinstance(measured, str | Path) else [Path(path) for path in measured]
    given = stated(model=model, gpu=gpu, precision=precision, tp=tp, engine=engine, isl=isl, osl=osl)
    invalid = InvalidRuns(include=include_invalid)
    rows = [row for path in paths for row in read_measured(path, given, invalid)]
    invalid.check(rows)
    report = run_calibrate(rows, data=", ".join(path.name for path in paths), own=own_terms, remarks=invalid.sentences, progress=progress)
    if output is not None:
        write_json(Path(output), report.to_json(date))
    return report
