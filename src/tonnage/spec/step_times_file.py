"""``step_model`` names a source of step times: the fitted terms, AIConfigurator, or a file.

The file is a CSV with one engine step per line. Needed columns:

    prefill_tokens      new prompt tokens in the step (0 for decodes alone)
    decode_sequences    sequences that decode one token each
    context_tokens      sum of their context lengths
    seconds             duration of the step

Optional: ``prefill_sequences`` (prompts that the new tokens belong to, 1 if absent), ``past_tokens`` (tokens of each of
these prompts that earlier steps computed, 0 if absent), and ``model``, ``gpu``, ``precision``, ``tp``, ``engine``, ``dp``,
``ep``, which say whose step it is, of one attention rank where there are several. Without them the whole file is of the one
deployment that is asked about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from tonnage.csv_file import named_rows
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.lengths import number
from tonnage.spec.precision import find_precision
from tonnage.spec.step_times import AICONFIGURATOR, FITTED, OWNERS, Owner, StepSource, TimedStep

COUNTS = {"prefill_tokens": 0, "decode_sequences": 0, "context_tokens": 0, "prefill_sequences": 1, "past_tokens": 0}
"""Columns of whole numbers, and what stands where an optional one is absent."""

NEEDED = ("prefill_tokens", "decode_sequences", "context_tokens", "seconds")
MOST = 1e12
"""Largest number of tokens in a cell."""


def step_source(name: str | Path) -> StepSource | None:
    """The source that ``step_model`` names; None for the fitted terms.

    Raises InputError: it is neither a step model nor a file of step times.
    """
    name = str(name).strip()
    if name.lower() == FITTED:
        return None
    if name.lower() == AICONFIGURATOR:
        return StepSource(name=AICONFIGURATOR)
    if not name.lower().endswith(".csv"):
        raise InputError(f"{option('step_model')}: '{name}' is not a step model; choose {FITTED}, {AICONFIGURATOR} or a .csv of step times")
    return read_step_times(name)


def read_step_times(path: str) -> StepSource:
    """The step times of a CSV; see the module for its columns.

    Raises InputErrors: the file cannot be read as that; every bad line is named.
    """
    errors: list[str] = []
    found: dict[Owner, list[TimedStep]] = {}
    for line, row in named_rows(path, option("step_model"), NEEDED):
        where = f"{option('step_model')}: {path}:{line}"
        step, owner = _step(row, where, errors), _owner(row, where, errors)
        if step is not None:
            found.setdefault(owner, []).append(step)
    if not errors and not found:
        errors.append(f"{option('step_model')}: {path} holds no step; write one line per step under {', '.join(NEEDED)}")
    InputErrors.raise_if(errors)
    return StepSource(name=path, table=tuple((owner, tuple(steps)) for owner, steps in found.items()))


def _step(row: Mapping[str, str], where: str, errors: list[str]) -> TimedStep | None:
    known = len(errors)
    counts = {name: _count(row.get(name, ""), name, default, where, errors) for name, default in COUNTS.items()}
    seconds = number(row["seconds"])
    if seconds is None or seconds <= 0:
        errors.append(f"{where}: seconds '{row['seconds']}' is not a duration; write a number above 0")
    if len(errors) == known:
        errors += [f"{where}: {fault}" for fault in _faults(counts)]
    if len(errors) > known:
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
    """Everything about a step that is impossible."""
    prompts, new, decodes = counts["prefill_sequences"], counts["prefill_tokens"], counts["decode_sequences"]
    context = counts["context_tokens"]
    return [
        fault
        for fault, holds in (
            ("a step computes something; prefill_tokens and decode_sequences are both 0", new + decodes == 0),
            (f"prefill_sequences {prompts} and prefill_tokens {new} do not go together", new > 0 and not 1 <= prompts <= new),
            (f"context_tokens {context} is the sum over {decodes} decode sequences, at least 1 each", decodes > 0 and context < decodes),
            (f"context_tokens {context} without decode_sequences", decodes == 0 and context > 0),
        )
        if holds
    ]


def _owner(row: Mapping[str, str], where: str, errors: list[str]) -> Owner:
    """The deployment of a line, by the catalog's names."""
    found = []
    for name in OWNERS:
        text = row.get(name, "")
        try:
            found.append(_name_of(name, text) if text else "")
        except InputError as error:
            errors.append(f"{where}: {error}")
            found.append("")
    return tuple(found)


def _name_of(kind: str, text: str) -> str:
    if kind in ("tp", "dp", "ep"):
        value = number(text)
        if value is None or value < 1 or value != round(value):
            raise InputError(f"{kind} '{text}' is not a degree of parallelism; write a whole number from 1")
        return str(round(value))
    if kind == "model":
        return find_model(text).name
    if kind == "gpu":
        return find_gpu(text).name
    return find_precision(text).name if kind == "precision" else find_engine(text).name
