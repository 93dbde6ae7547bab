"""``tonnage.score``: predictions against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.question.arguments import listed, stated
from tonnage.errors import InputError, option
from tonnage.perf.external.aiconfigurator import PACKAGE, installed_version
from tonnage.perf.external.measured_steps import checked_source
from tonnage.spec.calibration import read_calibration
from tonnage.spec.step_times import AICONFIGURATOR, FITTED

if TYPE_CHECKING:
    from tonnage.evidence.compare import ModelScores
    from tonnage.evidence.predict import Measured
    from tonnage.evidence.score import ScoreReport
    from tonnage.sizing.planner import Progress


ALL = "all"


def score(
    measured: Measured,
    *,
    worst: int = 10,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    isl: int | None = None,
    osl: int | None = None,
    include_invalid: bool = False,
    progress: Progress | None = None,
) -> ScoreReport:
    """Predict every row of a measured file and compare.

    Args:
        measured: a CSV with ``model, gpu, precision, tp, isl, osl``, one of ``batch, concurrency, request_rate``, and measured
            columns; any other file or folder that ``calibrate`` takes; or rows that were read before.
        worst: how many of the worst rows to keep.
        coefficients: a file that ``calibrate`` wrote; the shipped terms if not given.
        step_model: whose step times: "fitted", "aiconfigurator", or a CSV (``spec.step_times_file``).
        model, gpu, precision, tp, engine, isl, osl: what the file does not say.
        include_invalid: whether run folders that their own client called INVALID count; they are left out if not, by name.
        progress: called with (done, total, name).

    Raises:
        InputError: the file cannot be read as measurements.
    """
    from tonnage.evidence.score import score as run_score

    calibration = None if coefficients is None else read_calibration(coefficients)
    source = None if step_model is None else checked_source(step_model)
    given = stated(model=model, gpu=gpu, precision=precision, tp=tp, engine=engine, isl=isl, osl=osl)
    return run_score(
        measured,
        given=given,
        worst=worst,
        progress=progress,
        calibration=calibration,
        step_source=source,
        include_invalid=include_invalid,
    )


def several_models(step_model: str) -> bool:
    """Whether a list names more than one step model: ``all``, or names with commas."""
    names = listed(step_model, option("step_model"))
    return len(names) > 1 or ALL in names


def score_models(
    measured: Measured,
    step_model: str = ALL,
    *,
    worst: int = 10,
    coefficients: str | Path | None = None,
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    isl: int | None = None,
    osl: int | None = None,
    include_invalid: bool = False,
    progress: Progress | None = None,
) -> ModelScores:
    """Predict every row with several step models and compare them with the measurements and with each other.

    Args:
        measured: as in ``score``.
        step_model: names with commas between; ``all`` stands for fitted and, where its wheel is installed, aiconfigurator.
        worst: how many of the worst rows of each to keep.
        coefficients: refused, because a calibration belongs to the fitted terms alone.
        model, gpu, precision, tp, engine, isl, osl: what the file does not say.
        include_invalid: whether run folders that their own client called INVALID count; they are left out if not, by name.
        progress: called with (done, total, name), from the beginning for each step model.

    Raises:
        InputError: a file cannot be read, or a step model is not available.
    """
    from tonnage.evidence.compare import compare

    if coefficients is not None:
        raise InputError(f"{option('coefficients')}: applies only to the fitted step model; leave it out, or score a single step model")
    names, remarks = [], []
    for name in listed(step_model, option("step_model")):
        if name != ALL:
            names.append(name)
            continue
        names.append(FITTED)
        if installed_version() is None:
            remarks.append(f"{PACKAGE} was skipped: it is not installed; pip install 'tonnage[aiconfigurator]'.")
        else:
            names.append(AICONFIGURATOR)
    sources = [checked_source(name) for name in dict.fromkeys(names)]
    given = stated(model=model, gpu=gpu, precision=precision, tp=tp, engine=engine, isl=isl, osl=osl)
    return compare(measured, sources, given=given, worst=worst, progress=progress, remarks=tuple(remarks), include_invalid=include_invalid)
