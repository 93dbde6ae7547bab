"""``tonnage.calibrate``: a user's own measurements turned into factors on the shipped terms."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import stated
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.evidence.calibrate import CalibrationReport
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
    plan: str | Path | None = None,
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
        plan: file of the plan whose choice was measured, in place of model, gpu, precision, tp and engine; its engine's limits (slots,
            token budget) are those that the measured engine is taken to have run with, where they are the preset's otherwise.
        own_terms: whether to fit terms of one's own, from eight loads or more, instead of factors on the shipped ones; where the GPU is
            described by a YAML file if not given.
        include_invalid: whether run folders that their own client called INVALID count; they are left out if not, by name.
        progress: called with (done, total, name).

    Raises:
        InputError: a file cannot be read, points are too few, all of them are INVALID, or they are of several engines or GPUs.
    """
    from tonnage.evidence.calibrate import calibrate as run_calibrate
    from tonnage.formats.measured_files import InvalidRuns, read_measured
    from tonnage.results.store import write_json

    paths = [Path(measured)] if isinstance(measured, str | Path) else [Path(path) for path in measured]
    given = stated(model=model, gpu=gpu, precision=precision, tp=tp, engine=engine, isl=isl, osl=osl)
    further: dict[str, Any] = {}
    if plan is not None:
        deployed, further = _of_plan(plan, given)
        given |= deployed
    invalid = InvalidRuns(include=include_invalid)
    rows = [{**row, **further} for path in paths for row in read_measured(path, given, invalid)]
    invalid.check(rows)
    report = run_calibrate(rows, data=", ".join(path.name for path in paths), own=own_terms, remarks=invalid.sentences, progress=progress)
    if output is not None:
        write_json(Path(output), report.to_json(date))
    return report


def _of_plan(plan: str | Path, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a plan says of the measured deployment: the columns of a row, and the knobs of its engine.

    Raises:
        InputError: no plan, or something that a plan says was given as well.
    """
    from tonnage.api.running.deploy import planned

    for name in ("model", "gpu", "precision", "tp", "engine"):
        if name in given:
            raise InputError(f"{option(name)}: a plan says it; leave one of the two out")
    choice = planned(plan)
    pool, split = choice.pool, choice.deployment.parallelism
    if split.pp > 1 or choice.deployment.speculation is not None:
        raise InputError(f"{option('plan')}: {plan} chose pipeline stages or speculative decoding, which calibrate does not fit")
    columns = {"model": pool.model, "gpu": pool.gpu, "precision": pool.precision, "engine": choice.deployment.engine}
    return {**columns, "tp": split.tp, "dp": split.dp, "ep": split.ep}, {"knobs": choice.deployment.knobs}
