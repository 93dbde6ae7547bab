"""The command line of the fit: ``python -m tools.fit DATA`` or ``./fit DATA``, and ``… score
FILE``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from tonnage.cli.main import flag
from tonnage.cli.printing import print_answer
from tonnage.cli.progress import compile_if_needed, progress_bar
from tonnage.errors import TonnageError, spelled

app = App(
    name="fit",
    help="Fit the coefficients that Tonnage ships to measurements (docs/fit.md).",
    help_format="plaintext",
    version_flags=(),
)


@app.default
def fit(
    data: Path,
    /,
    *,
    silicon: Path | None = None,
    modern: Path | None = None,
    output: Path | None = None,
    cross_validate: bool = True,
    processes: int | None = None,
) -> None:
    """Fit the coefficients of the step model to measurements.

    Parameters
    ----------
    data
        Folder with trtllm_static_batch.csv, nim_inflight.csv and trtllm_throughput.csv.
    silicon
        silicon_sample.csv, for the coefficients of current engines (default: the file of the
        installed wheel aiconfigurator-core; without it these coefficients stay as they are).
    modern
        agg.csv.gz, for AMD and the kinds of layers of 2026 (default: that of DATA/modern; without
        it these coefficients stay as they are).
    output
        Folder for terms.json, residuals.json and ranges.json (default: the package's own, so that
        later predictions use them).
    cross_validate
        Also fit without each part that is held out, to learn the held-out errors; this takes most
        of the time.
    processes
        How many parts that are held out are fitted at once; the numbers do not depend on it
        (default: as many as there are cores).
    """
    from tools.fit.fit import fit as run_fit

    compile_if_needed()
    with progress_bar("fitting") as progress:
        count = (os.cpu_count() or 1) if processes is None else processes
        files = {"silicon": silicon, "modern": modern, "output": output}
        report = run_fit(
            data, **files, cross_validate=cross_validate, progress=progress, processes=count
        )
    print(report.text())


@app.command
def ranges(
    data: Path,
    /,
    *,
    silicon: Path = Path("silicon_sample.csv"),
    modern: Path | None = None,
    output: Path | None = None,
) -> None:
    """Write ranges.json alone, in seconds: which lengths, loads and hardware the rows of the fit
    are of.

    Parameters
    ----------
    data
        Folder with trtllm_static_batch.csv, nim_inflight.csv and trtllm_throughput.csv.
    silicon
        silicon_sample.csv of the wheel aiconfigurator-core, whose name alone stands for the file of
        the installed wheel.
    modern
        agg.csv.gz (default: that of DATA/modern).
    output
        Folder for ranges.json (default: the package's own).
    """
    from tonnage.perf.terms_file import shipped
    from tools.fit.fit import AGG, write_ranges
    from tools.fit.silicon.table import sample_file

    of_2026 = data / "modern" / AGG if modern is None else modern
    print(
        "written:"
        f" {write_ranges(data, sample_file(silicon), of_2026, output, origins=shipped()['origins'])}"
    )


@app.command
def energy(file: Path, /, *, output: Path | None = None) -> None:
    """Fit the watts of GPUs to measured serving, and print how far models that were left out are
    off.

    Parameters
    ----------
    file
        ml_energy.csv.
    output
        File in place of the package's own power.json.
    """
    from tools.fit.energy import fit as fit_energy

    print(fit_energy(file, output))


@app.command
def score(
    file: Path,
    /,
    *,
    step_model: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    worst: int = 10,
) -> None:
    """Predict every usable row of silicon_sample.csv, or of agg.csv.gz, and print the errors.

    Parameters
    ----------
    file
        agg.csv.gz, or silicon_sample.csv of the wheel aiconfigurator-core, whose name alone stands
        for the file of the installed wheel.
    step_model
        Whose step times: fitted (default), kernels, aiconfigurator, or a .csv of your own; several
        with commas, or all, stand side by side.
    json
        Print one JSON object, as tonnage score does.
    worst
        How many of the worst rows to show.
    """
    from tonnage import api
    from tonnage.report.scored import scored, scored_models
    from tools.fit.modern.rows import FILE as AGG
    from tools.fit.modern.table import modern_table
    from tools.fit.silicon.table import sample_file, silicon_table

    compile_if_needed()
    table = modern_table(file) if AGG in file.name else silicon_table(sample_file(file))
    with progress_bar("predicting") as progress:
        if step_model is not None and api.several_models(step_model):
            scores = api.score_models(table, step_model, worst=worst, progress=progress)
            print_answer(lambda: scored_models(scores), scores.to_json, json=json)
        else:
            report = api.score(table, worst=worst, step_model=step_model, progress=progress)
            print_answer(lambda: scored(report), report.to_json, json=json)


def run(tokens: Sequence[str]) -> int:
    """Run one command line; whatever goes wrong becomes one line on standard error and an exit
    code, as with ``tonnage``.
    """
    try:
        app(list(tokens), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(" ".join(str(error).split()), 2)
    except TonnageError as error:
        return _fail(spelled(error.marked, flag), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was left half written", 130)
    return 0


def _fail(message: str, code: int) -> int:
    print(f"fit: {message}", file=sys.stderr)
    return code
