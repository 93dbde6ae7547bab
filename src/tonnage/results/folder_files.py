"""Finds the files of runs below a folder, and gives up on a folder that holds far more than runs."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

from tonnage.errors import InputError

MOST_FILES = 50_000
"""Most files that are looked at: some thousands of runs, or a second."""


def files_below(folder: Path, *patterns: str) -> list[Path]:
    """The files at any depth below a folder whose names fit one of the patterns: those of the first pattern, then of the next.

    Links to folders are not followed, and folders that may not be read are left out.

    Raises:
        InputError: more than ``MOST_FILES`` files lie below the folder, such as those of a whole disk.
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
