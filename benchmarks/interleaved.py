"""CPU seconds of questions in one checkout, or in two that take turns, so that a noisy machine
slows both alike.

Each run is a child process that is given the checkout's ``src`` as its path and a cache of byte
code and machine code, and prints a JSON object of {name: CPU seconds}. The first run of each
checkout compiles and is thrown away.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]


def child(script: Path, checkout: Path, caches: Path, arguments: list[str]) -> dict[str, float]:
    """What ``script --child`` prints when it runs on the sources of that checkout."""
    cache = caches / str(abs(hash(checkout)))
    path = os.pathsep.join((str(checkout / "src"), str(HERE)))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONPYCACHEPREFIX": str(cache),
    }
    # some containers set it, and then every run would compile the sources again
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(script), "--child", *arguments]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, cwd=checkout
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def measure(
    script: Path, baseline: Path | None, rounds: int, arguments: list[str]
) -> list[dict[str, list[float]]]:
    """Rounds of this checkout, and of the other in turn: for each checkout, the seconds of every
    question.
    """
    checkouts = [HERE] if baseline is None else [baseline.resolve(), HERE]
    found: list[dict[str, list[float]]] = [{} for _ in checkouts]
    with tempfile.TemporaryDirectory() as caches:
        for checkout in checkouts:
            child(script, checkout, Path(caches), arguments)
        for number in range(rounds):
            order = list(zip(checkouts, found, strict=True))
            for checkout, into in order if number % 2 == 0 else order[::-1]:
                for name, seconds in child(script, checkout, Path(caches), arguments).items():
                    into.setdefault(name, []).append(seconds)
    return found


def print_table(
    found: list[dict[str, list[float]]], requests: dict[str, int] | None = None
) -> None:
    """One line per question: medians, requests per CPU second where they are known, and new over
    old where there are both.
    """
    *_, new = found
    print(f"{'CPU seconds':34} {'old':>9} {'new':>9} {'new/old':>8} {'requests/s':>12}")
    for name, seconds in new.items():
        median = statistics.median(seconds)
        old = statistics.median(found[0][name]) if len(found) > 1 else None
        rate = f"{requests[name] / median:12,.0f}" if requests else ""
        before, ratio = ("", "") if old is None else (f"{old:9.3f}", f"{median / old:8.3f}")
        print(f"{name:34} {before:>9} {median:9.3f} {ratio:>8} {rate}")
