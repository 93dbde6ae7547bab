"""What a measurement ran on, for its record: the client's machine and its programs, never a key or a path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any


def environment() -> dict[str, Any]:
    """Cores, load, Python, and the versions of what the client is made of."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg() if hasattr(os, "getloadavg") else (None, None, None)
    return {
        "cores": cores,
        "load_average_1min": load[0],
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "clock": "CLOCK_MONOTONIC, one client process",
    }
