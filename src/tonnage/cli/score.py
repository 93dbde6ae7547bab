"""``tonnage score``: predictions against a measured file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.show_score import show_models, show_score


def score(
    file: Path,
    /,
    *,
    coefficients: Path | None = None,
    step_model: str | None = None,
    model: str | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    tp: int | None = None,
    engine: str | None = None,
    isl: int | None = None,
    osl: int | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    worst: int = 10,
) -> None:
    """Predict every row of a measured file and print the errors.

    Parameters
    ----------
    file
        CSV with model, gpu, precision, tp, isl, osl, one of batch, concurrency or request_rate, and measured columns; or any
        other file or folder that tonnage calibrate reads.
    coefficients
        File that tonnage calibrate wrote: the predictions use its factors on the shipped terms.
    step_model
        Whose step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md); several with commas, or
        all, stand side by side.
    model
        Model that was measured, where the file does not say it.
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
        Print one JSON object: overall, groups, worst; of several step models models, errors, disagreement.
    worst
        How many of the worst rows to show.
    """
    from tonnage import api

    compile_if_needed()
    said: Any = {"model": model, "gpu": gpu, "precision": precision, "tp": tp, "engine": engine, "isl": isl, "osl": osl}
    with progress_bar("predicting") as progress:
        if step_model is not None and api.several_models(step_model):
            scores = api.score_models(file, step_model, coefficients=coefficients, worst=worst, progress=progress, **said)
            document, text = scores.to_json(), show_models(scores)
        else:
            report = api.score(file, worst=worst, coefficients=coefficients, step_model=step_model, progress=progress, **said)
            document, text = report.to_json(), show_score(report)
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(document))
    else:
        print(text)
