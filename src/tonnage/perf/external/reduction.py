"""Step times of any origin, reduced to the coefficient array that the simulator estimates steps from.

The time of a step is taken to be

    table(P + B) + host·(n + B) + prefill·[P > 0] + attention·A + (context + walk/B)·C

with the symbols of ``step.step_seconds``: a table over the tokens of the step, linear between its entries, and five terms.
Where the shortest steps with prompts all take about as long, whatever their tokens, that duration is a floor below which no step with
a prompt goes. The rest is found by least squares of the relative errors of the other steps, with no term below zero. What this form
cannot express is the reduction's error; it is measured on the same steps and goes into every output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.perf import step_terms as at
from tonnage.spec.step_times import TimedStep

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

APART = 2 ** (1 / 8)
"""Least factor between the tokens of two entries of the table."""

SMOOTH = 1e-2
"""Weight that asks each entry to be on a line with its neighbours, relative to one step of the table."""

ALIKE, SEVERAL = 1.005, 4
"""Steps with prompts are a floor where at least ``SEVERAL`` of them are within the factor ``ALIKE`` of the shortest, and their tokens
differ by a factor of two or more."""

TERMS = (at.HOST_SEQUENCE, at.HOST_PREFILL, at.ATTENTION, at.CONTEXT, at.WALK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A reduced step model, and how far it is from the steps that it was made of.

    Attributes:
        coefficients: array for ``StepModel``.
        decode_mape, prefill_mape: mean size of the relative error, in percent, of steps of decodes alone and of the others.
        worst: largest size of any step's error, in percent.
        steps: their number.
    """

    coefficients: NDArray[np.float64]
    decode_mape: float
    prefill_mape: float
    worst: float
    steps: int

    def __str__(self) -> str:
        """The error in words."""
        return (
            f"{self.steps} steps reduced with an error of {self.decode_mape:.1f} % in decode steps, {self.prefill_mape:.1f} % in steps "
            f"with prefill, {self.worst:.0f} % at most"
        )


def reduced(steps: Sequence[TimedStep], source: str) -> Reduction:
    """The coefficient array that reproduces the steps of one deployment best; ``source`` names them in messages.

    Raises InputError: they do not say what a step of decodes, of longer contexts and of prompts takes.
    """
    import numpy as np

    _check(steps, source)
    tokens, seconds = np.array([s.tokens for s in steps], float), np.array([s.seconds for s in steps])
    knots = _knots(tokens)
    design = np.hstack([_hats(tokens, knots), _terms(steps)]) / seconds[:, None]
    smooth = _curvature(knots, np.interp(knots, *_means(tokens, seconds)), design.shape[1])
    decode = np.array([s.prefill_tokens == 0 for s in steps])
    floor, graphed = _floor(tokens[~decode], seconds[~decode])
    least = np.where(decode | (tokens <= graphed), 0.0, floor)
    above = (least == 0.0) | (seconds > ALIKE * floor)
    target = np.concatenate([np.ones(above.sum()), np.zeros(len(smooth))])
    solution = _not_negative(np.vstack([design[above], smooth]), target)
    found = np.maximum(design @ solution, least / seconds)
    error = 100 * np.abs(found - 1)
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
    """Least duration of steps with prompts, and most tokens that CUDA graphs spare it; 0 where steps are not alike, or too few are left."""
    for graphed in (0.0, *sorted(set(tokens.tolist()))[:-1]):
        beyond = tokens > graphed
        least = float(seconds[beyond].min())
        shortest = beyond & (seconds <= ALIKE * least)
        alike, others = tokens[shortest], tokens[~shortest]
        if len(alike) >= SEVERAL and alike.max() >= 2 * alike.min() and len(set(others.tolist())) >= 2:
            return least, graphed
    return 0.0, 0.0


def _check(steps: Sequence[TimedStep], source: str) -> None:
    contexts: dict[int, set[int]] = {}
    for s in steps:
        if s.prefill_tokens == 0:
            contexts.setdefault(s.decode_sequences, set()).add(s.context_tokens)
    missing = {
        "steps of decodes alone (prefill_tokens 0) with two context_tokens at one number of decode_sequences": not any(
            len(found) > 1 for found in contexts.values()
        ),
        "steps with two numbers of prefill_tokens": len({s.prefill_tokens for s in steps if s.prefill_tokens}) < 2,
    }
    for what, absent in missing.items():
        if absent:
            raise InputError(f"{option('step_model')}: {source} needs {what}; otherwise their cost is unknown")


def _knots(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens of the table's entries: those of the steps that are not too near each other, with the first and the last."""
    import numpy as np

    ordered = np.unique(tokens)
    kept = [ordered[0]]
    for value in ordered[1:-1]:
        if value >= kept[-1] * APART and value * APART <= ordered[-1]:
            kept.append(value)
    return np.array([*kept, ordered[-1]])


def _hats(tokens: NDArray[np.float64], knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each entry in the table's value at some tokens; shape (tokens, knots)."""
    import numpy as np

    return np.array([np.interp(tokens, knots, unit) for unit in np.eye(len(knots))]).T


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


def _means(tokens: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Median seconds by tokens, which are the scale on which a bend of the table counts."""
    import numpy as np

    places = np.unique(tokens)
    return places, np.array([np.median(seconds[tokens == t]) for t in places])


def _curvature(knots: NDArray[np.float64], scale: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Rows that ask each inner entry to be between its neighbours, weakly: they decide what the steps leave open."""
    import numpy as np

    rows = np.zeros((max(len(knots) - 2, 0), width))
    for i in range(len(rows)):
        low, middle, high = knots[i : i + 3]
        share = (middle - low) / (high - low)
        rows[i, i : i + 3] = np.array([1 - share, -1.0, share]) * SMOOTH / scale[i + 1]
    return rows


def _not_negative(design: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares without negative solutions: the most negative unknown is set to zero until none is left."""
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
    """The terms in their places, and the table behind them; its last entry, at twice the last tokens, keeps its line from ever falling."""
    import numpy as np

    c = np.zeros(at.COEFFICIENTS)
    c[at.NORM] = 1.0
    values = solution[: len(knots)]
    c[list(TERMS)] = solution[len(knots) :]
    slope = max((values[-1] - values[-2]) / (knots[-1] - knots[-2]), 0.0)
    table = np.column_stack([[*knots, 2 * knots[-1]], [*values, values[-1] + slope * knots[-1]]])
    return np.concatenate([c, table.ravel()])
