"""``tonnage calibrate``: one's own measurements to a file that predictions take with ``--coefficients``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tonnage.cli.flags import Said, flags_of, given, with_flags
from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.cli.services import calibrate_service, is_inference
from tonnage.errors import InputError


@with_flags(*flags_of(Said))
def calibrate(
    *measured: Annotated[
        Path,
        Parameter(
            help="Files or folders: CSV of points, reports of GenAI-Perf or AIPerf, results of vllm bench, GuideLLM's benchmarks.json, "
            "run folders; or runs of bench with infer, and the service file whose models they measured (docs/services.md)."
        ),
    ],
    output: Annotated[
        Path | None,
        Parameter(
            help="File to write the factors to; simulate, size and score take it with --coefficients. Of inferences, the service file."
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        Parameter(
            help="The plan whose choice was measured, as size --output wrote it: it says model, GPU, format, TP, engine and the engine's "
            "limits."
        ),
    ] = None,
    own_terms: Annotated[
        bool | None,
        Parameter(
            help="Fit step terms of your own, from eight loads or more, instead of factors on the shipped ones "
            "(default: where --gpu is a YAML file)."
        ),
    ] = None,
    json: Annotated[bool, Parameter(help="Print what the file would hold as one JSON object.", negative=())] = False,
    **asked: Any,
) -> None:
    """Fit the step model to a few measurements of your own.

    The factors are kept only where they predict points better that they have not seen.
    """
    from tonnage import api
    from tonnage.cli.printing import today
    from tonnage.report.scored import calibrated

    if not measured:
        raise InputError("calibrate: nothing measured is given; name a file, for example ./tonnage calibrate points.csv --output my.json")
    if is_inference(measured):
        calibrate_service(measured, output, given(asked), json=json)
        return
    compile_if_needed()
    date = today().isoformat()
    with progress_bar("calibrating") as progress:
        report = api.calibrate(measured, output=output, plan=plan, date=date, own_terms=own_terms, progress=progress, **given(asked))
    print_answer(lambda: calibrated(report, output), lambda: report.to_json(date), json=json)
