"""``tonnage.score`` and the fit: predictions against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.arguments import listed
from tonnage.errors import InputError, option
from tonnage.perf.external.aiconfigurator import PACKAGE, installed_version
from tonnage.perf.external.measured_steps import checked_source
from tonnage.spec.calibration import read_calibration
from tonnage.spec.step_times import AICONFIGURATOR, FITTED

if TYPE_CHECKING:
    from tonnage.sizing.planner import Progress
    from tonnage.validation.score import ScoreReport
    from tonnage.validation.score_models import ModelScores
    from tools.fit.fit import FitReport


ALL = "all"


def score(
    file: str | Path,
    *,
    worst: int = 10,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    progress: Progress | None = None,
) -> ScoreReport:
    """Predict every row of a measured file and compare.

    Args:
        file: CSV with ``model, gpu, precision, tp, isl, osl``, one of ``batch, concurrency, request_rate``, and measured columns;
            or ``silicon_sample.csv`` of the wheel aiconfigurator-core.
        worst: how many of the worst rows to keep.
        coefficients: file that ``calibrate`` wrote; the shipped terms if not given.
        step_model: whose step times: "fitted", "aiconfigurator", or a CSV (``spec.step_times_file``).
        progress: called with (done, total, name).

    Raises:
        InputError: the file cannot be read as such a table.
    """
    from tonnage.validation.score import score as run_score

    calibration = None if coefficients is None else read_calibration(coefficients)
    source = None if step_model is None else checked_source(step_model)
    return run_score(Path(file), worst=worst, progress=progress, calibration=calibration, step_source=source)


def several_models(step_model: str) -> bool:
    """Whether a list names more than one step model: ``all``, or names with commas."""
    names = listed(step_model, option("step_model"))
    return len(names) > 1 or ALL in names


def score_models(
    file: str | Path,
    step_model: str = ALL,
    *,
    worst: int = 10,
    coefficients: str | Path | None = None,
    progress: Progress | None = None,
) -> ModelScores:
    """Predict every row with several step models and compare them with the measurements and with each other.

    Args:
        file: as in ``score``.
        step_model: names with commas between; ``all`` stands for fitted and, where its wheel is installed, aiconfigurator.
        worst: how many of the worst rows of each to keep.
        coefficients: refused: a calibration is of the fitted terms alone.
        progress: called with (done, total, name), from the beginning for each step model.

    Raises:
        InputError: a file cannot be read, or a step model cannot be had.
    """
    from tonnage.validation.score_models import score_models as run

    if coefficients is not None:
        raise InputError(f"{option('coefficients')}: is of the fitted terms alone; leave it out, or score with one step model")
    names, remarks = [], []
    for name in listed(step_model, option("step_model")):
        if name != ALL:
            names.append(name)
            continue
        names.append(FITTED)
        if installed_version() is None:
            remarks.append(f"{PACKAGE} is not installed and stands aside; pip install 'tonnage[aiconfigurator]'.")
        else:
            names.append(AICONFIGURATOR)
    sources = [checked_source(name) for name in dict.fromkeys(names)]
    return run(Path(file), sources, worst=worst, progress=progress, remarks=tuple(remarks))


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
    from tools.fit.fit import fit as run_fit

    return run_fit(data, output=output, progress=progress, cross_validate=cross_validate, silicon=silicon)
