"""The Python environment of a tool: made from pinned packages the first time that it is needed, apart from Tonnage's own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tonnage.compress.recipes import TOOLS
from tonnage.errors import TonnageError

PINS = "pins.txt"


def pins(tool: str) -> str:
    """The packages of a tool, each with its version; torch brings what its own build needs."""
    return Path(__file__).with_name(f"{tool}.txt").read_text(encoding="utf-8")


def version(tool: str) -> str:
    """The pinned version of a tool."""
    return next(line.partition("==")[2] for line in pins(tool).splitlines() if line.startswith(f"{TOOLS[tool]}=="))


def folder(tool: str) -> Path:
    """Where a tool's environment is: in ``TONNAGE_TOOLS``, or in ``tonnage`` of the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TONNAGE_TOOLS") or Path(cache) / "tonnage") / tool


def python_of(tool: str, told: Callable[[str], None]) -> Path:
    """The Python of a tool's environment, which is made first where it is absent or of other pins.

    A copy of the pins is written last, so that an environment whose making was interrupted is made again.

    Raises:
        TonnageError: pip cannot install the packages; its last lines are in the message.
    """
    place, wanted = folder(tool), pins(tool)
    python = place / "bin" / "python"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f"{tool}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / PINS).is_file() and (place / PINS).read_text(encoding="utf-8") == wanted and python.exists():
            return python
        told(f"making the environment of {tool} in {place}, once; torch and {len(wanted.splitlines())} packages …")
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)], tool)
        _run([str(python), "-m", "pip", "install", "--quiet", "--no-input", "-r", str(Path(__file__).with_name(f"{tool}.txt"))], tool)
        (place / PINS).write_text(wanted, encoding="utf-8")
    return python


def _run(command: list[str], tool: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " | ".join(done.stderr.strip().splitlines()[-4:])
        raise TonnageError(f"the environment of {tool} cannot be made: {last}")
