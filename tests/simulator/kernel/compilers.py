"""Numba as it is, and with other internals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.deployments import knobs_of

KNOBS = knobs_of(1, 8, block=1)
RENAMED = "import numba.core.untyped_passes as passes; del passes.WithLifting\n"


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process with a numba cache in a folder."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": f"src{os.pathsep}."}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
