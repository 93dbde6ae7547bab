"""The chain of docs/chain.md from an empty folder: every command of the page as it stands there,
and what the calibration found.

    ./benchmark chain             runs it, and prints predicted, measured and calibrated for every load
    ./benchmark chain --write     and writes today's output into the page
    ./benchmark chain --gpu h100-sxm-80gb     with another GPU in place of the page's

The page serves a simulated GPU that is slower by a factor of which the plan knows nothing. What the
calibration finds of it is the mean over the loads of calibrated over shipped prediction, beside
measured over shipped. The last row is a load that was not calibrated on. It takes a minute, most of
which it waits; the port is a free one in place of the page's 8000.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.test_docs import Example, examples_of
from tests.tolerance import distance, words_and_numbers
from tonnage.api.compare import compare_plan
from tonnage.report.numbers import counted
from tonnage.serve.faults import parse_fault
from tonnage.serve.supervisor import free_ports

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "docs" / "chain.md"
PORT = "8000"
"""The port that the page's commands name, or take where they name none."""

GPU = "h100-pcie-80gb"
"""The GPU of the page."""

INVALID = 3
"""Exit code of ``bench`` where the client could not keep time, because the machine had other
work."""

TRIES = 3

METRICS = {"itl_ms": "TPOT", "e2e_ms": "E2E"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One load: means in milliseconds.

    Attributes:
        load: in words.
        metric: TPOT or E2E.
        predicted, calibrated: by the shipped terms, and by those that were calibrated.
        measured: by the client.
    """

    load: str
    metric: str
    predicted: float
    measured: float
    calibrated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What the commands printed, and what the calibration found.

    Attributes:
        printed: what each command printed, in the order of the page; of ``serve`` what it had
            printed when it was ended.
        hidden: the factor by which the served instance was slower.
        loads: that were calibrated on.
        unseen: the load that was not.
        valid: whether the client kept time in every load, which it does on a machine that does
            nothing else.
    """

    printed: tuple[str, ...]
    hidden: float
    loads: tuple[Beside, ...]
    unseen: tuple[Beside, ...]
    valid: bool

    def found(self, metric: str) -> float:
        """The slow-down as the calibration sees it: calibrated over shipped predictions, geometric
        mean over the loads.
        """
        return statistics.geometric_mean(
            one.calibrated / one.predicted for one in self.loads if one.metric == metric
        )

    def measured(self, metric: str) -> float:
        """The slow-down as the client measured it."""
        return statistics.geometric_mean(
            one.measured / one.predicted for one in self.loads if one.metric == metric
        )


def run_chain(folder: Path, replaced: Mapping[str, str] | None = None) -> Chain:
    """Run the commands of the page in an empty folder.

    Args:
        folder: empty.
        replaced: words of commands, and what stands in their place.

    Raises:
        RuntimeError: a command failed; the message has what it printed.
    """
    port = str(free_ports(1)[0])
    commands = [example.command for example in examples_of(PAGE)]
    for old, new in {**(replaced or {}), f":{PORT}": f":{port}"}.items():
        commands = [command.replace(old, new) for command in commands]
    served = next(i for i, command in enumerate(commands) if command.startswith("./tonnage serve"))
    printed = [_run(command, folder) for command in commands[:served]]
    with _serving(f"{commands[served]} --port {port}", folder) as log:
        after = [_run(command, folder) for command in commands[served + 1 :]]
        printed += [log.read_text(encoding="utf-8").replace(port, PORT), *after]
    fault = shlex.split(commands[served])
    return Chain(
        printed=tuple(printed),
        hidden=parse_fault(fault[fault.index("--fault") + 1]).factor,
        loads=tuple(_of_loads(folder / "my.json", folder / "runs")),
        unseen=tuple(_of_run(folder / "peak", folder)),
        valid=not any("INVALID" in text for text in printed),
    )


def _words(command: str) -> list[str]:
    program, *words = shlex.split(command)
    if program != "./tonnage":
        raise RuntimeError(f"{command}: only ./tonnage is run here")
    return [sys.executable, "-m", "tonnage", *words]


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "110"}


def _run(command: str, folder: Path) -> str:
    """What a command prints; a measurement that the client does not believe is made again, at most
    twice.
    """
    words = _words(command)
    for left in reversed(range(TRIES)):
        done = subprocess.run(
            words, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode != INVALID:
            break
        if left and "--artifact-dir" in words:
            shutil.rmtree(folder / words[words.index("--artifact-dir") + 1])
    if done.returncode not in (0, INVALID):
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def _serving(command: str, folder: Path) -> Iterator[Path]:
    """A server until the block ends; the file with what it prints."""
    log = folder / "serve.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            _words(command), cwd=folder, env=_environment(), stderr=subprocess.PIPE, text=True
        )
        try:
            for line in process.stderr or ():
                file.write(line)
                file.flush()
                if "http://" in line:
                    break
            else:
                raise RuntimeError(f"{command}: {log.read_text(encoding='utf-8')}")
            yield log
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _of_loads(calibration: Path, runs: Path) -> Iterator[Beside]:
    """The loads of the calibration, which the file has as percentages of what was measured."""
    points = json.loads(calibration.read_text(encoding="utf-8"))["residuals"]["rows"]
    for point in sorted(points, key=lambda one: one["concurrency"]):
        clients = point["concurrency"]
        summary = json.loads(
            (runs / f"concurrency-{clients}" / "summary.json").read_text(encoding="utf-8")
        )
        for column, metric in METRICS.items():
            measured = summary["tpot_ms" if metric == "TPOT" else column]["mean"]
            before, after = (
                measured * (1 + point[kind][column] / 100) for kind in ("before", "after")
            )
            yield Beside(
                load=counted(clients, "client"),
                metric=metric,
                predicted=before,
                measured=measured,
                calibrated=after,
            )


def _of_run(run: Path, folder: Path) -> Iterator[Beside]:
    """A run beside its replay by the plan, as it was made and calibrated."""
    sides = [
        compare_plan(run, folder / "plan.json", instances=1, coefficients=file)
        for file in (None, folder / "my.json")
    ]
    for metric in METRICS.values():
        one, other = (
            next(
                m
                for m in side.metrics
                if (m.metric, m.statistic) == (f"{metric.lower()}_ms", "mean")
            )
            for side in sides
        )
        yield Beside(
            load="unseen",
            metric=metric,
            predicted=one.predicted,
            measured=one.measured,
            calibrated=other.predicted,
        )


def table(chain: Chain) -> list[str]:
    """The lines that are printed."""
    rows = [
        f"{'load':>12} {'metric':>6} {'predicted':>10} {'measured':>10} {'calibrated':>10}  "
        " calibrated / measured"
    ]
    for one in (*chain.loads, *chain.unseen):
        shares = (
            f"{one.predicted:>10.4g} {one.measured:>10.4g} {one.calibrated:>10.4g}"
            f" {one.calibrated / one.measured:>12.3f}"
        )
        rows.append(f"{one.load:>12} {one.metric:>6} {shares}")
    rows += [
        f"{metric}: the calibration finds ×{chain.found(metric):.3f}, the client measured"
        f" ×{chain.measured(metric):.3f}, hidden was ×{chain.hidden:g}"
        for metric in METRICS.values()
    ]
    return (
        rows
        if chain.valid
        else [
            *rows,
            (
                "The client did not keep time in every load: run it again on a machine that does"
                " nothing else."
            ),
        ]
    )


def with_output(page: str, examples: Sequence[Example], printed: Sequence[str]) -> str:
    """The page with the lines of today's output in place of those that it shows."""
    lines = page.splitlines()
    for example, text in zip(examples, printed, strict=True):
        for number, line in example.shown.items():
            words, numbers = words_and_numbers(line)
            alike = [real for real in text.splitlines() if words_and_numbers(real)[0] == words]
            if not alike:
                print(
                    f"{PAGE.name}:{number + 1}: not in the output of {example.command}: {line}",
                    file=sys.stderr,
                )
                continue
            lines[number] = min(
                alike, key=lambda real: distance(numbers, words_and_numbers(real)[1])
            ).rstrip()
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the chain and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write today's output into the page")
    parser.add_argument("--gpu", default=GPU, help="catalog id, in place of the page's")
    asked = parser.parse_args()
    if asked.write and asked.gpu != GPU:
        parser.error(f"--write: the page shows {GPU}")
    with tempfile.TemporaryDirectory() as folder:
        chain = run_chain(Path(folder), {GPU: asked.gpu})
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    print("\n".join(table(chain)))
    if asked.write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_output(text, list(examples_of(PAGE)), chain.printed), encoding="utf-8")


if __name__ == "__main__":
    main()
