"""``tonnage.score`` and ``calibrate``: predictions against measurements, and measurements turned
into factors on the shipped terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from tonnage.api.question.arguments import attainments, listed, plain, with_signature
from tonnage.errors import InputError, option
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.perf.aiconfigurator import PACKAGE, installed_version
from tonnage.perf.measured_steps import checked_source
from tonnage.spec.calibration import read_calibration
from tonnage.spec.step_times import AICONFIGURATOR, FITTED

if TYPE_CHECKING:
    from tonnage.evidence.calibrate import CalibrationReport
    from tonnage.evidence.compare import ModelScores
    from tonnage.evidence.predict import Measured
    from tonnage.evidence.score import ScoreReport
    from tonnage.sizing.planner import Progress


ALL = "all"


class MeasuredArguments(TypedDict, total=False):
    """The deployment and the lengths that were measured, where the files do not say them."""

    model: str | None
    layout: str | None
    gpu: str | None
    precision: str | None
    tp: int | None
    engine: str | None
    isl: int | None
    osl: int | None
    concurrency: int | None
    request_rate: float | None


@with_signature(MeasuredArguments)
def score(
    measured: Measured,
    *,
    worst: int = 10,
    coefficients: str | Path | None = None,
    step_model: str | Path | None = None,
    include_invalid: bool = False,
    allow_errors: bool = False,
    attain: str | Sequence[str] = (),
    progress: Progress | None = None,
    **said: Unpack[MeasuredArguments],
) -> ScoreReport:
    """Predict every row of a measured file and compare.

    Args:
        measured: a CSV with ``model, gpu, precision, tp, isl, osl``, one of ``batch, concurrency,
            request_rate``, and measured columns; any other file or folder that ``calibrate`` takes;
            or rows that were read before.
        worst: how many of the worst rows to keep.
        coefficients: a file that ``calibrate`` wrote; the shipped terms if not given.
        step_model: whose step times: "fitted", "kernels", "aiconfigurator", or a CSV
            (``perf.measured_steps``).
        include_invalid: whether run folders that their own client called INVALID count; they are
            left out if not, by name.
        allow_errors: whether runs count of which more than 1 % of the requests failed; they are
            left out if not, by name.
        attain: shares of requests that must meet several limits at once, which run folders are
            compared by too.
        progress: called with (done, total, name).
        said: what the file does not say.

    Raises InputError: the file cannot be read as measurements.
    """
    from tonnage.evidence.score import score as run_score

    calibration = None if coefficients is None else read_calibration(coefficients)
    source = None if step_model is None else checked_source(step_model)
    return run_score(
        measured,
        known_values=plain(said),
        worst=worst,
        progress=progress,
        calibration=calibration,
        step_source=source,
        invalid=InvalidRuns(include=include_invalid, allow_errors=allow_errors),
        slo=attainments(attain),
    )


def several_models(step_model: str) -> bool:
    """Whether a list names more than one step model: ``all``, or names with commas."""
    names = listed(step_model, option("step_model"))
    return len(names) > 1 or ALL in names


@with_signature(MeasuredArguments)
def score_models(
    measured: Measured,
    step_model: str = ALL,
    *,
    worst: int = 10,
    coefficients: str | Path | None = None,
    include_invalid: bool = False,
    allow_errors: bool = False,
    progress: Progress | None = None,
    **said: Unpack[MeasuredArguments],
) -> ModelScores:
    """Predict every row with several step models and compare them with the measurements and with
    each other.

    Args:
        measured: as in ``score``.
        step_model: names with commas between; ``all`` stands for fitted and, where its wheel is
            installed, aiconfigurator.
        worst: how many of the worst rows of each to keep.
        coefficients: refused, because a calibration belongs to the fitted terms alone.
        include_invalid: whether run folders that their own client called INVALID count; they are
            left out if not, by name.
        allow_errors: whether runs count of which more than 1 % of the requests failed; they are
            left out if not, by name.
        progress: called with (done, total, name), from the beginning for each step model.
        said: what the file does not say.

    Raises InputError: a file cannot be read, or a step model is not available.
    """
    from tonnage.evidence.compare import compare

    if coefficients is not None:
        raise InputError(
            f"{option('coefficients')}: applies only to the fitted step model; leave it out, or"
            " score a single step model"
        )
    names, remarks = [], []
    for name in listed(step_model, option("step_model")):
        if name != ALL:
            names.append(name)
            continue
        names.append(FITTED)
        if installed_version() is None:
            remarks.append(
                f"{PACKAGE} was skipped: it is not installed; pip install"
                " 'tonnage[aiconfigurator]'."
            )
        else:
            names.append(AICONFIGURATOR)
    sources = [checked_source(name) for name in dict.fromkeys(names)]
    invalid = InvalidRuns(include=include_invalid, allow_errors=allow_errors)
    return compare(
        measured,
        sources,
        known_values=plain(said),
        worst=worst,
        progress=progress,
        remarks=tuple(remarks),
        invalid=invalid,
    )


@with_signature(MeasuredArguments)
def calibrate(
    measured: str | Path | Iterable[str | Path],
    *,
    output: str | Path | None = None,
    date: str = "",
    plan: str | Path | None = None,
    own_terms: bool | None = None,
    include_invalid: bool = False,
    allow_errors: bool = False,
    progress: Progress | None = None,
    **said: Unpack[MeasuredArguments],
) -> CalibrationReport:
    """Fit the step model to measured points of one engine on one GPU; the shipped terms stay where
    the fit predicts no better.

    Args:
        measured: files or folders: CSV of points, reports of GenAI-Perf or AIPerf, ``vllm bench``
            results, GuideLLM's ``benchmarks.json``, run folders.
        output: file for the factors, which ``coefficients`` of ``simulate``, ``size`` and ``score``
            take.
        date: of the measurements or of today, for the file.
        plan: file of the plan whose choice was measured, in place of model, gpu, precision, tp and
            engine; its engine's limits (slots, token budget) are the measured engine's settings,
            where they are the preset's otherwise.
        own_terms: whether to fit new terms, from eight loads or more, instead of factors on the
            shipped ones; where the GPU is described by a YAML file if not given.
        include_invalid: whether run folders that their own client called INVALID count; they are
            left out if not, by name.
        allow_errors: whether runs count of which more than 1 % of the requests failed; they are
            left out if not, by name.
        progress: called with (done, total, name).
        said: what the files do not say.

    Raises InputError: a file cannot be read, points are too few, all of them are INVALID, or they
    are of several engines or GPUs.
    """
    from tonnage.evidence.calibrate import calibrate as run_calibrate
    from tonnage.formats.measured_files import read_measured
    from tonnage.results.store import write_json

    paths = (
        [Path(measured)] if isinstance(measured, str | Path) else [Path(path) for path in measured]
    )
    arguments = plain(said)
    further: dict[str, Any] = {}
    if plan is not None:
        deployed, further = _of_plan(plan, arguments)
        arguments |= deployed
    invalid = InvalidRuns(include=include_invalid, allow_errors=allow_errors)
    rows = [{**row, **further} for path in paths for row in read_measured(path, arguments, invalid)]
    invalid.check(rows)
    report = run_calibrate(
        rows,
        data=", ".join(path.name for path in paths),
        own=own_terms,
        remarks=invalid.sentences,
        progress=progress,
    )
    if output is not None:
        write_json(Path(output), report.to_json(date))
    return report


def _of_plan(plan: str | Path, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a plan says of the measured deployment: the columns of a row, and the knobs of its
    engine.
    """
    from tonnage.api.running.plans import planned

    for name in ("model", "gpu", "precision", "tp", "engine"):
        if name in settings:
            raise InputError(f"{option(name)}: a plan says it; leave one of the two out")
    choice = planned(plan)
    pool, split = choice.pool, choice.deployment.parallelism
    if split.pp > 1 or choice.deployment.speculation is not None:
        raise InputError(
            f"{option('plan')}: {plan} chose pipeline stages or speculative decoding, which"
            " calibrate does not fit"
        )
    columns = {
        "model": pool.model,
        "gpu": pool.gpu,
        "precision": pool.precision,
        "engine": choice.deployment.engine,
    }
    return {**columns, "tp": split.tp, "dp": split.dp, "ep": split.ep}, {
        "knobs": choice.deployment.knobs
    }
