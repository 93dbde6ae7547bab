"""``tonnage score``: predictions against a measured file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.flags import Said, flags_of, given, with_flags
from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.errors import InputError, option

FILE = (
    "CSV with model, gpu, precision, tp, isl, osl, one of batch, concurrency or request_rate, and measured columns; or any other file "
    "or folder that tonnage calibrate reads."
)
STEP_MODEL = (
    "Source of the step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md); several with commas, or "
    "all, are compared side by side."
)
ATTAIN = (
    'Share of requests that must meet several limits at once, such as "95%: ttft<=500ms & tpot<=50ms", compared where rows are run '
    "folders; may be repeated."
)
JSON = "Print one JSON object with overall, groups and worst; of several step models with models, errors and disagreement."


@with_flags(*flags_of(Said))
def score(
    file: Annotated[Path, Parameter(help=FILE)],
    /,
    *,
    coefficients: Annotated[
        Path | None, Parameter(help="File that tonnage calibrate wrote; its factors are applied to the shipped terms.")
    ] = None,
    step_model: Annotated[str | None, Parameter(help=STEP_MODEL)] = None,
    json: Annotated[bool, Parameter(help=JSON, negative=())] = False,
    attain: Annotated[list[str] | None, Parameter(help=ATTAIN, negative=())] = None,
    worst: Annotated[int, Parameter(help="How many of the worst rows to show.")] = 10,
    **said: Any,
) -> None:
    """Predict every row of a measured file and print the errors."""
    from tonnage import api
    from tonnage.report.scored import scored, scored_models

    asked: dict[str, Any] = {"coefficients": coefficients, "worst": worst, **given(said)}
    compile_if_needed()
    with progress_bar("predicting") as progress:
        if step_model is not None and api.several_models(step_model):
            if attain:
                raise InputError(f"{option('attain')}: is compared with one step model at a time; name one, or leave it out")
            scores = api.score_models(file, step_model, progress=progress, **asked)
            print_answer(lambda: scored_models(scores), scores.to_json, json=json)
        else:
            report = api.score(file, step_model=step_model, attain=attain or (), progress=progress, **asked)
            print_answer(lambda: scored(report), report.to_json, json=json)
