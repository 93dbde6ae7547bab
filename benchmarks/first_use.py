"""What the first question on a machine waits for: the same question without compiled code and with
it.

    ./benchmark first_use [--rounds 3] [--baseline PATH_TO_ANOTHER_CHECKOUT] [-- words of a question]

Each cold run is a process with an empty folder for numba's cache, and the warm run after it finds
what that left there. The wait for the compiler is the difference; the target is 8 s on a machine of
two cores that is otherwise idle. On a busy one only the CPU seconds mean something, and those of
two checkouts only where they take turns (``--baseline``).
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
LENGTHS = ["--model", "llama-3.1-8b", "--isl", "512", "--osl", "128"]
QUESTIONS = {
    "simulate, 2,000 requests": [
        "simulate",
        *LENGTHS,
        "--gpu",
        "h100-sxm-80gb",
        "--concurrency",
        "8",
        "--requests",
        "2000",
    ],
    "simulate, 20,000 requests": [
        "simulate",
        *LENGTHS,
        "--gpu",
        "h100-sxm-80gb",
        "--concurrency",
        "8",
        "--requests",
        "20000",
    ],
    "size": ["size", *LENGTHS, "--gpu", "h100-sxm-80gb", "--peak-rps", "20", "--ttft", "500ms"],
}
TARGET_S = 8.0


def seconds(checkout: Path, words: list[str], cache: str) -> tuple[float, float]:
    """CPU seconds of a command and of its children, and wall seconds."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "NUMBA_CACHE_DIR": cache}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "tonnage", *words]
    done = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in {0, 1}:  # 1: nothing met the limits
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main() -> None:
    """One line for each question and checkout."""
    parser = argparse.ArgumentParser(description="what a first question waits for")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="another checkout, run in turn")
    parser.add_argument(
        "question", nargs="*", help="words of one question instead of the built-in ones"
    )
    asked = parser.parse_args()
    questions = {" ".join(asked.question): asked.question} if asked.question else QUESTIONS
    checkouts = [HERE] if asked.baseline is None else [asked.baseline.resolve(), HERE]
    print(
        f"{f'median of {asked.rounds}':28} {'':10} {'cold cpu':>9} {'warm cpu':>9}"
        f" {'cold wall':>10} {'warm wall':>10} {'wait s':>7}"
    )
    for name, words in questions.items():
        found: list[list[tuple[float, ...]]] = [[] for _ in checkouts]
        for _ in range(asked.rounds):
            for checkout, into in zip(checkouts, found, strict=True):
                with tempfile.TemporaryDirectory() as cache:
                    into.append(
                        (*seconds(checkout, words, cache), *seconds(checkout, words, cache))
                    )
        for checkout, runs in zip(checkouts, found, strict=True):
            cold_cpu, cold, warm_cpu, warm = (
                statistics.median(column) for column in zip(*runs, strict=True)
            )
            verdict = (
                ""
                if checkout != HERE
                else "holds"
                if cold - warm <= TARGET_S
                else f"above {TARGET_S:g} s"
            )
            numbers = (
                f"{cold_cpu:9.2f} {warm_cpu:9.2f} {cold:10.2f} {warm:10.2f} {cold - warm:7.2f}"
                f" {verdict}"
            )
            print(f"{name[:28]:28} {checkout.name[:10]:10} {numbers}", flush=True)


if __name__ == "__main__":
    main()
