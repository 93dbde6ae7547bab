"""A measured run in the files that other tools write, so that what reads theirs reads ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tonnage.bench.exports import aiperf, genai_perf, vllm
from tonnage.bench.exports.finished_run import FinishedRun, read_finished
from tonnage.errors import UnknownName

EXPORTS: dict[str, Callable[[FinishedRun, Path], list[Path]]] = {
    "genai-perf": genai_perf.write,
    "aiperf": aiperf.write,
    "vllm": vllm.write,
}


def check_export(name: str) -> str:
    """The name of a format.

    Raises:
        UnknownName: no format of that name.
    """
    if name not in EXPORTS:
        raise UnknownName("export", name, EXPORTS)
    return name


def export(directory: Path, name: str) -> list[Path]:
    """Write a run folder's export into ``export-NAME`` inside it; the files that were written.

    Raises:
        UnknownName: no format of that name.
        InputError: a folder without the moments of single tokens.
    """
    write = EXPORTS[check_export(name)]
    target = directory / f"export-{name}"
    finished = read_finished(directory)
    target.mkdir(exist_ok=True)
    return write(finished, target)
