"""``tonnage score``: predictions against a measured file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.show_score import show_models, show_score


def score(
    file: Path,
    /,
    *,
    coefficients: Path | None = None,
    step_model: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    worst: int = 10,
) -> None:
    """Predict every row of a measured file and print the errors.

    Parameters
    ----------
    file
        CSV with model, gpu, precision, tp, isl, osl, one of batch, concurrency or request_rate, and measured columns; or
        silicon_sample.csv of the wheel aiconfigurator-core.
    coefficients
        File that tonnage calibrate wrote: the predictions use its factors on the shipped terms.
    step_model
        Whose step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md); several with commas, or
        all, stand side by side.
    json
        Print one JSON object: overall, groups, worst; of several step models models, errors, disagreement.
    worst
        How many of the worst rows to show.
    """
    from tonnage import api

    compile_if_needed()
    with progress_bar("predicting") as progress:
        if step_model is not None and api.several_models(step_model):
            scores = api.score_models(file, step_model, coefficients=coefficients, worst=worst, progress=progress)
            document, text = scores.to_json(), show_models(scores)
        else:
            report = api.score(file, worst=worst, coefficients=coefficients, step_model=step_model, progress=progress)
            document, text = report.to_json(), show_score(report)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(document))
    else:
        print(text)
