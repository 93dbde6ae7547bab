"""How much prompt and output lengths differ in the recorded traces, next to the catalog's table of
them.

    ./benchmark spreads [FOLDER]

A line for each trace of ``recorded_lengths.yaml`` that the folder (../shared/data/traces) holds:
requests, mean tokens, and standard deviation over mean.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from tonnage.spec.catalog.entries import recorded_lengths
from tonnage.spec.lengths import RecordedLengths
from tonnage.spec.recording import read_recording

TRACES = Path(__file__).parents[2] / "shared" / "data" / "traces"


def computed(row: RecordedLengths, folder: Path = TRACES) -> dict[str, float]:
    """The numbers of a row from its trace. Raises InputError: the trace cannot be read."""
    recording = read_recording(str(folder / row.trace), row.name)
    numbers: dict[str, float] = {"requests": len(recording)}
    for name, values in (("isl", recording.isl), ("osl", recording.osl)):
        mean = statistics.fmean(values)
        numbers |= {
            f"{name}_mean": round(mean),
            f"{name}_cv": round(statistics.pstdev(values, mean) / mean, 2),
        }
    return numbers


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=TRACES)
    folder = parser.parse_args().folder
    for row in recorded_lengths().values():
        numbers = computed(row, folder)
        same = all(getattr(row, name) == value for name, value in numbers.items())
        print(row.name, numbers, "as in the catalog" if same else "NOT as in the catalog")


if __name__ == "__main__":
    main()
