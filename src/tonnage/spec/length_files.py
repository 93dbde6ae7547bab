"""Lengths are read from CSV files: a histogram has the columns value and weight, pairs have the columns isl and osl."""

from __future__ import annotations

import math

from tonnage.csv_file import named_rows
from tonnage.errors import InputErrors
from tonnage.spec.lengths import MAX_TOKENS, Lengths, Pairs, histogram


def read_histogram(path: str, where: str) -> Lengths:
    """Lengths with their weights, from a CSV with the columns ``value`` (tokens) and ``weight``.

    Raises:
        InputError: the file cannot be read as that; every bad line is named.
    """
    errors: list[str] = []
    bins = []
    for line, row in named_rows(path, where, ("value", "weight")):
        value, weight = number(row["value"]), number(row["weight"])
        if value is None or not 1 <= value <= MAX_TOKENS:
            errors.append(f"{where}: {path}:{line}: value '{row['value']}' is not a length; write 1 to {MAX_TOKENS:,} tokens")
        if weight is None or weight < 0:
            errors.append(f"{where}: {path}:{line}: weight '{row['weight']}' is not a weight; write 0 or more")
        if value is not None and weight is not None:
            bins.append((value, weight))
    if not errors and not 0 < sum(weight for _, weight in bins) < math.inf:
        errors.append(f"{where}: {path} holds no length with a weight above 0")
    InputErrors.raise_if(errors)
    return histogram(bins, path)


def read_pairs(path: str, where: str) -> Pairs:
    """Pairs of lengths, from a CSV with the columns ``isl`` and ``osl`` in tokens.

    Raises:
        InputError: the file cannot be read as that; every bad line is named.
    """
    errors: list[str] = []
    columns: dict[str, list[int]] = {"isl": [], "osl": []}
    for line, row in named_rows(path, where, tuple(columns)):
        for name, values in columns.items():
            values.append(tokens(row[name], name, f"{where}: {path}:{line}", errors))
    if not errors and not columns["isl"]:
        errors.append(f"{where}: {path} holds no pair; write one line isl,osl per request")
    InputErrors.raise_if(errors)
    return Pairs(isl=tuple(columns["isl"]), osl=tuple(columns["osl"]), source=path)


def number(text: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def tokens(text: object, name: str, where: str, errors: list[str]) -> int:
    """A length in whole tokens, 1 or more; anything else is added to ``errors`` and read as 1."""
    value = number(str(text))
    if value is None or not 1 <= value <= MAX_TOKENS or value != round(value):
        why = "negative" if value is not None and value < 0 else f"not a whole number of tokens from 1 to {MAX_TOKENS:,}"
        errors.append(f"{where}: {name} '{text}' is {why}; a length is 1 token or more")
        return 1
    return round(value)
