"""``tonnage.score`` and the fit: predictions against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.spec.calibration import read_calibration

if TYPE_CHECKING:
    from tonnage.sizing.fitting.fit import FitReport
    from tonnage.sizing.score import ScoreReport
    from tonnage.sizing.search import Progress


def score(file: str | Path, *, worst: int = 10, coefficients: str | Path | None = None, progress: Progress | None = None) -> ScoreReport:
    """Predict every row of a measured file and compare.

    Args:
        file: CSV with ``model, gpu, precision, tp, isl, osl``, one of ``batch, concurrency, request_rate``, and measured columns.
        worst: how many of the worst rows to keep.
        coefficients: file that ``calibrate`` wrote; the shipped terms if not given.
        progress: called with (done, total, name).

    Raises:
        InputError: the file cannot be read as such a table.
    """
    from tonnage.sizing.score import score as run_score

    calibration = None if coefficients is None else read_calibration(coefficients)
    return run_score(Path(file), worst=worst, progress=progress, calibration=calibration)


def fit(
    data: str | Path,
    *,
    output: str | Path | None = None,
    cross_validate: bool = True,
    silicon: str | Path | None = None,
    progress: Progress | None = None,
) -> FitReport:
    """Fit the step model's terms to the measured files of a folder.

    Args:
        data: folder with ``trtllm_static_batch.csv``, ``nim_inflight.csv`` and ``trtllm_throughput.csv``.
        output: folder for ``terms.json``; the package's own if not given, so that later predictions use it.
        cross_validate: also fit without each of the parts that are held out; takes most of the time.
        silicon: ``silicon_sample.csv``, for the terms of current engines; that of the installed wheel aiconfigurator-core
            if not given, and the terms that the package ships where there is none.
        progress: called with (done, total, name).

    Raises:
        InputError: a file is missing or damaged, or scipy is not installed.
    """
    from tonnage.sizing.fitting.fit import fit as run_fit

    return run_fit(data, output=output, progress=progress, cross_validate=cross_validate, silicon=silicon)
