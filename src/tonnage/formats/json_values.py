"""Reads JSON that another program wrote: the files below a folder, and values by their path; every error names the file and the key."""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tonnage.errors import InputError
from tonnage.formats.table import checked_count, checked_measure, filled_text, shown

MOST_FILES = 50_000
"""Most files that are looked at: some thousands of runs, or a second."""


def files_below(folder: Path, *patterns: str) -> list[Path]:
    """The files at any depth below a folder whose names fit one of the patterns: those of the first pattern, then of the next.

    Links to folders are not followed, and folders that may not be read are left out.

    Raises:
        InputError: more than ``MOST_FILES`` files are below the folder, such as those of a whole disk.
    """
    found: dict[str, list[Path]] = {pattern: [] for pattern in patterns}
    looked = 0
    for place, folders, names in os.walk(folder):
        folders.sort()
        looked += len(names)
        if looked > MOST_FILES:
            raise InputError(f"{folder}: more than {MOST_FILES:,} files lie below it; give the folder that holds the runs")
        for pattern in patterns:
            found[pattern] += [Path(place, name) for name in names if fnmatch(name, pattern)]
    return [path for pattern in patterns for path in sorted(found[pattern])]


def load_json(path: Path) -> Any:
    """The document of a JSON file; NaN and infinities, which such programs write for what they did not measure, are None.

    Raises InputError: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(filled_text(path), parse_constant=lambda word: None)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}); give the file as the tool wrote it") from None
    except (RecursionError, ValueError):
        raise InputError(f"{path}: not a report (nested too deep, or a number too long); give the file as the tool wrote it") from None


def load_json_lines(path: Path) -> list[Any]:
    """The documents of a file that holds one in each line; empty lines do not count.

    Raises InputError: the file cannot be read, or a line is not JSON.
    """
    found = []
    for number, line in enumerate(filled_text(path).splitlines(), start=1):
        try:
            found += [json.loads(line, parse_constant=lambda word: None)] if line.strip() else []
        except (RecursionError, ValueError):
            raise InputError(f"{path}, line {number}: not JSON; give the file as the tool wrote it") from None
    return found


def inside(document: Any, *keys: str) -> Any:
    """The value at the end of the keys, or None where one of them is missing."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def number_at(document: Any, where: str, *keys: str) -> float | None:
    """A finite number, or None where there is none. Raises InputError: something else is there."""
    value = inside(document, *keys)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise InputError(f"{where}, {'.'.join(keys)}: {shown(json.dumps(value))} is not a number; give the file as the tool wrote it")
    return float(value)


def measure_at(document: Any, where: str, *keys: str, scale: float = 1.0) -> float | None:
    """A number above 0 in its unit times ``scale``, or None where it is absent or 0: nothing was measured.

    Raises InputError: it is no number, or negative.
    """
    value = number_at(document, where, *keys)
    return None if not value else checked_measure(value * scale, f"{where}, {'.'.join(keys)}")


def count_at(document: Any, where: str, *keys: str, rounded: bool = False) -> int | None:
    """A whole number of at least 1, or None where there is none; a measured mean is ``rounded``.

    Raises InputError: it is something else.
    """
    value = number_at(document, where, *keys)
    return None if value is None else checked_count(value, f"{where}, {'.'.join(keys)}", rounded=rounded)
