"""Deployments whose step times come from elsewhere than the fitted terms: from kernels, from
AIConfigurator, or from a user's table.

Such a deployment runs under the same scheduler, with the same memory plan and the same front end
and client as any other; only the seconds of a step come from elsewhere, reduced to the array that
the simulator reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.csv_file import named_rows
from tonnage.errors import InputError, InputErrors, option
from tonnage.perf import aiconfigurator, kernels
from tonnage.perf import step_terms as at
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.lengths import number
from tonnage.spec.precision import find_precision
from tonnage.spec.step_times import (
    AICONFIGURATOR,
    FITTED,
    KERNELS,
    OWNERS,
    Owner,
    StepSource,
    TimedStep,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.calibration import Calibration
    from tonnage.spec.deployment import Deployment


# A CSV of step times has one engine step per line, with the columns of ``NEEDED``:
# ``prefill_tokens`` (new prompt tokens in the step, 0 for decodes alone), ``decode_sequences``
# (which decode one token each), ``context_tokens`` (the sum of their contexts) and ``seconds``.
# Optional are ``prefill_sequences`` (prompts that the new tokens belong to), ``past_tokens``
# (tokens of each of these prompts that earlier steps computed), and ``OWNERS``, which say whose
# step it is, of one attention rank where there are several. Without them the whole file belongs to
# the one deployment of the question.

COUNTS = {
    "prefill_tokens": 0,
    "decode_sequences": 0,
    "context_tokens": 0,
    "prefill_sequences": 1,
    "past_tokens": 0,
}
"""Columns of whole numbers, and the value of an absent optional one."""

NEEDED = ("prefill_tokens", "decode_sequences", "context_tokens", "seconds")
COMPUTED = {KERNELS: kernels, AICONFIGURATOR: aiconfigurator}
"""The modules that give the grid of steps of a deployment, by the name of their step model."""

MOST = 1e12
"""Largest number of tokens in a cell."""


def step_source(name: str | Path) -> StepSource | None:
    """The source that ``step_model`` names; None for the fitted terms.

    Raises InputError: it is neither a step model nor a file of step times.
    """
    name = str(name).strip()
    if name.lower() == FITTED:
        return None
    if name.lower() in COMPUTED:
        return StepSource(name=name.lower())
    if not name.lower().endswith(".csv"):
        names = ", ".join((FITTED, *COMPUTED))
        raise InputError(
            f"{option('step_model')}: '{name}' is not a step model; choose {names} or a .csv of"
            " step times"
        )
    return read_step_times(name)


def read_step_times(path: str) -> StepSource:
    """The step times of a CSV.

    Raises InputErrors: the file cannot be read as that; every bad line is named.
    """
    errors: list[str] = []
    steps_by_owner: dict[Owner, list[TimedStep]] = {}
    for line, row in named_rows(path, option("step_model"), NEEDED):
        where = f"{option('step_model')}: {path}:{line}"
        step, owner = _step(row, where, errors), _owner(row, where, errors)
        if step is not None:
            steps_by_owner.setdefault(owner, []).append(step)
    if not errors and not steps_by_owner:
        errors.append(
            f"{option('step_model')}: {path} holds no step; write one line per step under"
            f" {', '.join(NEEDED)}"
        )
    InputErrors.raise_if(errors)
    return StepSource(
        name=path, table=tuple((owner, tuple(steps)) for owner, steps in steps_by_owner.items())
    )


def _step(row: Mapping[str, str], where: str, errors: list[str]) -> TimedStep | None:
    earlier_errors = len(errors)
    counts = {
        name: _count(row.get(name, ""), name, default, where, errors)
        for name, default in COUNTS.items()
    }
    seconds = number(row["seconds"])
    if seconds is None or seconds <= 0:
        errors.append(
            f"{where}: seconds '{row['seconds']}' is not a duration; write a number above 0"
        )
    if len(errors) == earlier_errors:
        errors += [f"{where}: {fault}" for fault in _faults(counts)]
    if len(errors) > earlier_errors:
        return None
    return TimedStep(**counts, seconds=seconds or math.nan)


def _count(text: str, name: str, default: int, where: str, errors: list[str]) -> int:
    if text == "" and name not in NEEDED:
        return default
    value = number(text)
    if value is None or not 0 <= value <= MOST or value != round(value):
        errors.append(f"{where}: {name} '{text}' is not a whole number of 0 or more")
        return default
    return round(value)


def _faults(counts: Mapping[str, int]) -> list[str]:
    """What is impossible about a step."""
    prompts, new, decodes = (
        counts["prefill_sequences"],
        counts["prefill_tokens"],
        counts["decode_sequences"],
    )
    context = counts["context_tokens"]
    return [
        fault
        for fault, holds in (
            (
                "a step computes something; prefill_tokens and decode_sequences are both 0",
                new + decodes == 0,
            ),
            (
                f"prefill_sequences {prompts} and prefill_tokens {new} do not go together",
                new > 0 and not 1 <= prompts <= new,
            ),
            (
                (
                    f"context_tokens {context} is the sum over {decodes} decode sequences, at least"
                    " 1 each"
                ),
                decodes > 0 and context < decodes,
            ),
            (f"context_tokens {context} without decode_sequences", decodes == 0 and context > 0),
        )
        if holds
    ]


def _owner(row: Mapping[str, str], where: str, errors: list[str]) -> Owner:
    """The deployment of a line, by the catalog's names."""
    names = []
    for name in OWNERS:
        text = row.get(name, "")
        try:
            names.append(_name_of(name, text) if text else "")
        except InputError as error:
            errors.append(f"{where}: {error}")
            names.append("")
    return tuple(names)


def _name_of(kind: str, text: str) -> str:
    if kind in ("tp", "dp", "ep"):
        value = number(text)
        if value is None or value < 1 or value != round(value):
            raise InputError(
                f"{kind} '{text}' is not a degree of parallelism; write a whole number from 1"
            )
        return str(round(value))
    if kind == "model":
        return find_model(text).name
    if kind == "gpu":
        return find_gpu(text).name
    return find_precision(text).name if kind == "precision" else find_engine(text).name


# Step times of any origin, reduced to the coefficient array that the simulator estimates steps
# from. The time of a step is taken to be table(P + B) + host·(n + B) + prefill·[P > 0] +
# attention·A + (context + walk/B)·C with the symbols of ``step.step_seconds``: a table over the
# tokens of the step, linear between its entries, and five terms. Where the shortest steps with
# prompts all take about as long, whatever their tokens, that duration is a floor below which no
# step with a prompt goes. The rest is found by least squares of the relative errors of the other
# steps, with no term below zero. What this form cannot express is the reduction's error; it is
# measured on the same steps and goes into every output.


APART = 2 ** (1 / 8)
"""Least factor between the tokens of two entries of the table."""

SMOOTH = 1e-2
"""Weight that asks each entry to be on a line with its neighbours, relative to one step of the
table."""

ALIKE, SEVERAL = 1.005, 4
"""Steps with prompts are a floor where at least ``SEVERAL`` of them are within the factor ``ALIKE``
of the shortest, and their tokens differ by a factor of two or more."""

TERMS = (at.HOST_SEQUENCE, at.HOST_PREFILL, at.ATTENTION, at.CONTEXT, at.WALK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A reduced step model, and how far it is from the steps that it was made of."""

    coefficients: NDArray[np.float64]  # array for ``StepModel``
    # decode_mape, prefill_mape: mean size of the relative error, in percent, of steps of decodes
    # alone and of the others
    decode_mape: float
    prefill_mape: float
    worst: float  # largest size of any step's error, in percent
    steps: int  # their number

    def __str__(self) -> str:
        """The error in words."""
        return (
            f"{self.steps} steps reduced with an error of {self.decode_mape:.1f} % in decode steps,"
            f" {self.prefill_mape:.1f} % in steps with prefill, {self.worst:.0f} % at most"
        )


def reduced(steps: Sequence[TimedStep], source: str) -> Reduction:
    """The coefficient array that reproduces the steps of one deployment best; ``source`` names them
    in messages.

    Raises InputError: they do not say what a step of decodes, of longer contexts and of prompts
    takes.
    """
    import numpy as np

    _check(steps, source)
    tokens, seconds = (
        np.array([s.tokens for s in steps], float),
        np.array([s.seconds for s in steps]),
    )
    knots = _knots(tokens)
    # of each entry in each step: (steps, knots)
    shares = np.array([np.interp(tokens, knots, entry) for entry in np.eye(len(knots))]).T
    design = np.hstack([shares, _terms(steps)]) / seconds[:, None]
    places = np.unique(tokens)
    # the scale on which a bend of the table counts
    medians = np.interp(knots, places, [np.median(seconds[tokens == t]) for t in places])
    smooth = _curvature(knots, medians, design.shape[1])
    decode = np.array([s.prefill_tokens == 0 for s in steps])
    floor, graphed = _floor(tokens[~decode], seconds[~decode])
    least = np.where(decode | (tokens <= graphed), 0.0, floor)
    above = (least == 0.0) | (seconds > ALIKE * floor)
    target = np.concatenate([np.ones(above.sum()), np.zeros(len(smooth))])
    solution = _not_negative(np.vstack([design[above], smooth]), target)
    ratios = np.maximum(design @ solution, least / seconds)
    error = 100 * np.abs(ratios - 1)
    coefficients = _array(knots, solution)
    coefficients[at.LAUNCHES], coefficients[at.GRAPHED_TO] = floor, graphed
    return Reduction(
        coefficients=coefficients,
        decode_mape=float(error[decode].mean()),
        prefill_mape=float(error[~decode].mean()),
        worst=float(error.max()),
        steps=len(steps),
    )


def _floor(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Least duration of steps with prompts, and most tokens that CUDA graphs spare it; 0 where
    steps are not alike, or too few are left.
    """
    for graphed in (0.0, *sorted(set(tokens.tolist()))[:-1]):
        beyond = tokens > graphed
        least = float(seconds[beyond].min())
        shortest = beyond & (seconds <= ALIKE * least)
        alike, longer = tokens[shortest], tokens[~shortest]
        if (
            len(alike) >= SEVERAL
            and alike.max() >= 2 * alike.min()
            and len(set(longer.tolist())) >= 2
        ):
            return least, graphed
    return 0.0, 0.0


def _check(steps: Sequence[TimedStep], source: str) -> None:
    contexts: dict[int, set[int]] = {}
    for s in steps:
        if s.prefill_tokens == 0:
            contexts.setdefault(s.decode_sequences, set()).add(s.context_tokens)
    missing = {
        "steps of decodes alone (prefill_tokens 0) with two context_tokens at one number of decode_sequences": not any(  # noqa: E501
            len(context) > 1 for context in contexts.values()
        ),
        "steps with two numbers of prefill_tokens": (
            len({s.prefill_tokens for s in steps if s.prefill_tokens}) < 2
        ),
    }
    for what, absent in missing.items():
        if absent:
            raise InputError(
                f"{option('step_model')}: {source} needs {what}; otherwise their cost is unknown"
            )


def _knots(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens of the table's entries: those of the steps that are not too near each other, with the
    first and the last.
    """
    import numpy as np

    ordered = np.unique(tokens)
    knots = [ordered[0]]
    for value in ordered[1:-1]:
        if value >= knots[-1] * APART and value * APART <= ordered[-1]:
            knots.append(value)
    return np.array([*knots, ordered[-1]])


def _terms(steps: Sequence[TimedStep]) -> NDArray[np.float64]:
    """What multiplies each of ``TERMS`` in each step."""
    import numpy as np

    columns = [
        (
            s.decode_sequences + (s.prefill_sequences if s.prefill_tokens else 0),
            float(s.prefill_tokens > 0),
            0.5 * s.attention_pairs_2,
            s.context_tokens,
            s.context_tokens / max(s.decode_sequences, 1),
        )
        for s in steps
    ]
    return np.array(columns, float)


def _curvature(
    knots: NDArray[np.float64], scale: NDArray[np.float64], width: int
) -> NDArray[np.float64]:
    """Rows that ask each inner entry to be between its neighbours, weakly: they decide what the
    steps leave open.
    """
    import numpy as np

    rows = np.zeros((max(len(knots) - 2, 0), width))
    for i in range(len(rows)):
        low, middle, high = knots[i : i + 3]
        share = (middle - low) / (high - low)
        rows[i, i : i + 3] = np.array([1 - share, -1.0, share]) * SMOOTH / scale[i + 1]
    return rows


def _not_negative(design: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares without negative solutions: the most negative unknown is set to zero until none
    is left.
    """
    import numpy as np

    scale = np.maximum(np.abs(design).max(axis=0), np.finfo(float).tiny)
    free = np.arange(design.shape[1])
    while True:
        part = np.linalg.lstsq(design[:, free] / scale[free], target, rcond=1e-10)[0]
        if part.min() >= 0:
            solution = np.zeros(design.shape[1])
            solution[free] = part / scale[free]
            return solution
        free = np.delete(free, part.argmin())


def _array(knots: NDArray[np.float64], solution: NDArray[np.float64]) -> NDArray[np.float64]:
    """The terms in their places, and the table behind them; its last entry, at twice the last
    tokens, keeps its line from ever falling.
    """
    import numpy as np

    c = np.zeros(at.COEFFICIENTS)
    c[at.NORM] = 1.0
    values = solution[: len(knots)]
    c[list(TERMS)] = solution[len(knots) :]
    slope = max((values[-1] - values[-2]) / (knots[-1] - knots[-2]), 0.0)
    table = np.column_stack([[*knots, 2 * knots[-1]], [*values, values[-1] + slope * knots[-1]]])
    return np.concatenate([c, table.ravel()])


def reduction(deployment: Deployment) -> Reduction:
    """The step times of a deployment's ``step_source``, reduced.

    Raises InputError: there are none for this deployment, or they do not say enough.
    """
    source = deployment.step_source
    if source is None:
        raise InputError(f"{option('step_model')}: no step model is named")
    check_stages(deployment)
    if (module := COMPUTED.get(source.name)) is not None:
        return _reduced(module.timed_steps(deployment), module.described(deployment))
    return _reduced(source.steps_of(deployment), source.name)


def check_stages(deployment: Deployment) -> None:
    """Refuse pipeline stages where the step times are those of whole models. Raises InputError: the
    deployment has both.
    """
    if deployment.step_source is not None and deployment.parallelism.pp > 1:
        raise InputError(
            f"{option('step_model')}: pipeline stages are estimated by the fitted terms only;"
            f" choose PP 1 or {option('step_model')} fitted"
        )


@lru_cache(maxsize=256)
def _reduced(steps: tuple[TimedStep, ...], source: str) -> Reduction:
    return reduced(steps, source)


def source_mark(deployment: Deployment) -> str:
    """Where the step times come from and how well they were reduced, in words; empty for the fitted
    terms.
    """
    source = deployment.step_source
    if source is None:
        return ""
    module = COMPUTED.get(source.name)
    name = source.name if module is None else module.described(deployment)
    return f"step times of {name}: {reduction(deployment)}; the front end is the preset's"


def checked_source(name: str | Path) -> StepSource | None:
    """What ``step_model`` names, ready to be asked; None for the fitted terms.

    Raises InputError: it is no step model, its file cannot be read, or its wheel is not installed.
    """
    source = step_source(name)
    if source is not None and source.name == AICONFIGURATOR:
        aiconfigurator.require()
    return source


def check_source(
    source: StepSource | None, calibration: Calibration | None, deployments: int
) -> None:
    """Refuse a step model with a calibration, or one table for several deployments. Raises
    InputError.
    """
    if source is None:
        return
    if calibration is not None:
        raise InputError(
            f"{option('step_model')}, {option('coefficients')}: a calibration multiplies the fitted"
            " terms; leave one of them out"
        )
    if deployments > 1 and not source.names_owners:
        raise InputError(
            f"{option('step_model')}: {source.name} does not say which of {deployments} deployments"
            f" its steps are of; add columns such as {', '.join(OWNERS[:5])}, or ask for one"
            " deployment"
        )
