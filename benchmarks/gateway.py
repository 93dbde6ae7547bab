"""What the gateway adds before the exact server on this machine: CPU per streamed token, CPU per
request, latency.

    ./benchmark gateway                  everything
    ./benchmark gateway 64 256           the streams at these numbers of clients
    ./benchmark gateway --backends 4     before four exact servers

The CPU is the gateway's own process, user and system, between the first request and the last; the
server and the client run beside it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from tests.bench.live import Run, question, run
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import judge
from tonnage.results.metrics import summarize
from tonnage.spec.workload import ClosedLoop

TOKENS = 64


@contextmanager
def before(urls: list[str]) -> Iterator[tuple[str, int]]:
    """The URL of a gateway in a process of its own, and that process's number."""
    flags = [word for url in urls for word in ("--backend", url)]
    command = [
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        "--proxy",
        "embedded",
        *flags,
        "--port",
        "0",
        "--max-in-flight",
        "10000",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        found = re.search(
            r"http://127\.0\.0\.1:\d+", process.stderr.readline() if process.stderr else ""
        )
        if found is None:
            raise SystemExit("the gateway did not start")
        yield found[0], process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)
        if process.stderr:
            process.stderr.close()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(url: str, clients: int, requests: int, *, osl: int, streaming: bool = True) -> Run:
    """One closed loop."""
    with tempfile.TemporaryDirectory() as folder:
        asked = question(
            ClosedLoop(concurrency=clients), isl="200", osl=str(osl), requests=requests
        )
        return run(url, Path(folder) / "run", asked, streaming=streaming)


def first_ms(found: Run) -> np.ndarray:
    """Milliseconds from sending to the first token."""
    requests = found.requests
    return (requests.first_token_ns - requests.sent_ns) / 1e6


def streams(urls: list[str], counts: list[int]) -> None:
    """Streams of 64 tokens, 50 ms to the first and 10 ms each."""
    print(
        f"{'streams':>8} {'tokens':>8} {'µs/token':>9} {'p50 added':>10} {'p99 added':>10}"
        f" {'TPOT added':>11}  milliseconds; verdict"
    )
    for count in counts:
        requests = max(20, 15 * count)
        straight = measured(urls[0], count, requests, osl=TOKENS)
        with before(urls) as (url, pid):
            began = cpu_s(pid)
            through = measured(url, count, requests, osl=TOKENS)
            used = cpu_s(pid) - began
        tokens = int(through.requests.osl.sum())
        added = [
            np.percentile(first_ms(through), q) - np.percentile(first_ms(straight), q)
            for q in (50, 99)
        ]
        summary = summarize(through.requests)
        slower = (summary.tpot_ms.mean or 0.0) - (summarize(straight.requests).tpot_ms.mean or 0.0)
        said = judge(through.observed, through.requests, summary, find_steady(through.requests))
        print(
            f"{count:8} {tokens:8,} {1e6 * used / tokens:9.1f} {added[0]:10.3f} {added[1]:10.3f}"
            f" {slower:11.3f} "
            f" {said.verdict}{': ' if said.reasons else ''}{'; '.join(said.reasons)}"
        )


def whole(urls: list[str], clients: int = 32, requests: int = 10_000) -> None:
    """Short answers that are no streams: CPU of the gateway for each request."""
    with before(urls) as (url, pid):
        began = cpu_s(pid)
        found = measured(url, clients, requests, osl=1, streaming=False)
        used = cpu_s(pid) - began
    print(
        f"whole answers: {1e6 * used / requests:.0f} µs of CPU a request, {requests / used:,.0f}"
        f" requests/s per core, {found.outcomes}"
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("streams", nargs="*", type=int, default=[1, 16, 64, 256])
    parser.add_argument("--backends", type=int, default=1)
    asked = parser.parse_args()
    with ExitStack() as stack:
        streams(
            [stack.enter_context(exact_server(Schedule())) for _ in range(asked.backends)],
            asked.streams,
        )
    with ExitStack() as stack:
        whole(
            [
                stack.enter_context(exact_server(Schedule(ttft_s=0.0, itl_s=0.0)))
                for _ in range(asked.backends)
            ]
        )


if __name__ == "__main__":
    main()
