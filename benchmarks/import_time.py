"""CPU seconds of what everybody waits for: `import tonnage`, `tonnage --help`, the launcher's own
share, and two runs of `simulate`.

    ./benchmark import_time

Prints the median and the least of some runs beside the budget of docs/design.md.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 15
SIMULATE = [
    "simulate",
    "--model",
    "llama-3.1-8b",
    "--gpu",
    "h100",
    "--isl",
    "512",
    "--osl",
    "128",
    "--request-rate",
    "4",
    "--requests",
]
PYTHON = [str(ROOT / ".venv" / "bin" / "python"), "-P"]


def cpu_seconds(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def measure(name: str, command: list[str], budget: str, count: int = RUNS) -> float:
    """Print one line; the median wall seconds."""
    cpu_seconds(command)  # byte code and file cache, the compiled simulator
    runs = [cpu_seconds(command) for _ in range(count)]
    cpu, wall = zip(*runs, strict=True)
    print(
        f"{name:28} {statistics.median(cpu):8.3f} {min(cpu):8.3f} {statistics.median(wall):8.3f}  "
        f" {budget}"
    )
    return statistics.median(wall)


def main() -> None:
    """All of them, one after the other."""
    subprocess.run([ROOT / "tonnage", "--version"], check=True, stdout=subprocess.DEVNULL)
    print(f"{'seconds of ' + str(RUNS) + ' runs':28} {'cpu':>8} {'least':>8} {'wall':>8}   budget")
    measure("python alone", [*PYTHON, "-c", "pass"], "")
    measure("import tonnage", [*PYTHON, "-c", "import tonnage"], "0.10 cpu")
    direct = measure("python -m tonnage --help", [*PYTHON, "-m", "tonnage", "--help"], "0.40 cpu")
    launched = measure("./tonnage --help", [str(ROOT / "tonnage"), "--help"], "0.40 cpu")
    for requests, budget in ((2_000, ""), (2_000_000, "1.00 cpu")):
        measure(
            f"simulate, {requests:,} requests",
            [*PYTHON, "-m", "tonnage", *SIMULATE, str(requests)],
            budget,
            5,
        )
    print(f"{'the launcher itself':28} {'':8} {'':8} {launched - direct:8.3f}   0.05 wall")


if __name__ == "__main__":
    main()
