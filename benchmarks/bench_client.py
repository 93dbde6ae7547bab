"""What the load client costs and how true it is, against the exact server on this machine.

    .venv-check/bin/python benchmarks/bench_client.py                    streams, Poisson arrivals, fuzz, memory, starved
    .venv-check/bin/python benchmarks/bench_client.py streams            one of them
    .venv-check/bin/python benchmarks/bench_client.py peers AIPERF TOK   AIPerf beside it: its command, a tokenizer

Wants an otherwise idle machine; CPU per token hardly depends on that, lateness does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ["PYTHONPATH"] = str(ROOT / "src")

from tests.bench.corpus import STREAM  # noqa: E402 — the two paths above are needed first
from tests.bench.live import Run, question, run  # noqa: E402
from tonnage.bench.endpoints import find_endpoint  # noqa: E402
from tonnage.bench.exact.schedule import Schedule  # noqa: E402
from tonnage.bench.exact.serve import exact_server  # noqa: E402
from tonnage.bench.reply import Reply  # noqa: E402
from tonnage.bench.selftest import server_log  # noqa: E402
from tonnage.bench.steady import find_steady  # noqa: E402
from tonnage.bench.validity import Validity, judge  # noqa: E402
from tonnage.bench.wire.broken import BrokenReply  # noqa: E402
from tonnage.results.metrics import summarize  # noqa: E402
from tonnage.spec.workload import ClosedLoop, OpenLoop  # noqa: E402


def verdict(found: Run) -> Validity:
    """The verdict on a run."""
    return judge(found.observed, found.requests, summarize(found.requests), find_steady(found.requests))


def streams(counts: tuple[int, ...] = (64, 256, 1024), starved: int = 0) -> None:
    """CPU per token and bias at several numbers of streams: 50 ms to the first token, 10 ms each, 64 tokens."""
    print(f"{'streams':>8} {'µs/token':>9} {'user':>6} {'system':>6} {'TTFT ms':>8} {'server':>8} {'bias':>7} {'p99':>7}  verdict")
    for count in counts:
        with exact_server(Schedule()) as url, tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_SELF)
            found = run(url, Path(folder) / "run", question(ClosedLoop(concurrency=count), isl="200", osl="64", requests=15 * count))
            after = resource.getrusage(resource.RUSAGE_SELF)
            number, received, first, _, _ = server_log(url).T
        tokens, s = int(found.requests.osl.sum()), summarize(found.requests)
        user, system = (1e6 * (getattr(after, n) - getattr(before, n)) / tokens for n in ("ru_utime", "ru_stime"))
        lag = (found.requests.first_token_ns[number] + found.observed.start_ns - first) / 1e6
        server = float((first - received).mean()) / 1e6
        said = verdict(found)
        print(
            f"{count:8} {1e6 * found.observed.cpu_s / tokens:9.2f} {user:6.2f} {system:6.2f} {s.ttft_from_send_ms.mean:8.2f} "
            f"{server:8.2f} {lag.mean():7.3f} {np.percentile(lag, 99):7.3f}  {said.verdict}{': ' if said.reasons else ''}"
            f"{'; '.join(said.reasons)}"
        )


def poisson() -> None:
    """An open loop at 100/s, 5,000 requests: how the gaps between sendings are spread."""
    schedule = Schedule(ttft_s=0.01, itl_s=0.005)
    with exact_server(schedule) as url, tempfile.TemporaryDirectory() as folder:
        found = run(url, Path(folder) / "run", question(OpenLoop(rate=100), isl="100", osl="8", requests=5_000))
    gaps = np.diff(np.sort(found.requests.sent_ns)) / 1e6
    planned = np.diff(found.requests.due_ns) / 1e6
    late = np.array(found.observed.begun_lateness_ns) / 1e6
    for name, values in (("sent", gaps), ("scheduled", planned)):
        print(f"{name:>10}: CV {values.std() / values.mean():.3f}, {np.mean(values < 0.2):.2%} of the gaps under 0.2 ms")
    print(f"{'late':>10}: mean {late.mean():.3f} ms, p99 {np.percentile(late, 99):.3f} ms; {verdict(found).verdict}")


def fuzz(chunks: int = 1_000_000) -> None:
    """Streams with wrong bytes in wrong pieces: nothing but ``BrokenReply`` may be raised, no token made up."""
    rng, began, fed, broken = random.Random(1), time.process_time(), 0, 0
    endpoint = find_endpoint("chat", model="m")
    while fed < chunks:
        raw = bytearray(STREAM)
        for _ in range(rng.randrange(6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        cuts = sorted(rng.randrange(len(raw)) for _ in range(rng.randrange(40)))
        reply = Reply(endpoint)
        try:
            for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True):
                reply.read([(fed, bytes(raw[start:stop]))])
                fed += 1
            reply.end()
        except BrokenReply:
            broken += 1
        if len(reply.times) > 4:
            raise SystemExit(f"{len(reply.times)} events with output out of 3: {bytes(raw)!r}")
    print(f"{fed:,} chunks, {broken:,} replies found broken, no other error, {time.process_time() - began:.0f} s CPU")


def memory() -> None:
    """Peak memory of a run of 100,000 requests beside one of 10,000, each in a process of its own."""
    for count in (10_000, 100_000):
        done = subprocess.run([sys.executable, __file__, "one", str(count)], check=True, capture_output=True, text=True)
        print(f"{count:8,} requests: {done.stdout.strip()}")


def one(count: int) -> None:
    """One run of many short requests; prints its peak memory."""
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.0)) as url, tempfile.TemporaryDirectory() as folder:
        found = run(url, Path(folder) / "run", question(ClosedLoop(concurrency=64), isl="50", osl="8", requests=count))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{peak:.0f} MB at most, {len(found.requests) / found.observed.seconds:,.0f} requests/s, {found.outcomes}")


def _burn() -> None:
    while True:
        sum(range(100_000))


def starved() -> None:
    """The client on one core with three busy neighbours: the verdict must turn."""
    core = {min(os.sched_getaffinity(0))}
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    burning = [multiprocessing.get_context("fork").Process(target=_burn, daemon=True) for _ in range(3)]
    for process in burning:
        process.start()
    try:
        streams((64,))
    finally:
        for process in burning:
            process.terminate()
        os.sched_setaffinity(0, everywhere)


def peers(aiperf: str, tokenizer: str, count: int = 256) -> None:
    """AIPerf and this client on the same load, one after the other: CPU of all client processes, TTFT that each reports.

    Its CPU holds its start and its report, too, as a user pays for them; ``tokenizer`` is a name in a local Hugging Face cache.
    """
    streams((count,))
    with exact_server(Schedule()) as url, tempfile.TemporaryDirectory() as folder:
        command = [
            *(aiperf, "profile", "--model", "m", "--url", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", tokenizer),
            *("--concurrency", str(count), "--request-count", str(15 * count), "--isl", "200", "--osl", "64", "--artifact-dir", folder),
            *("--extra-inputs", "max_tokens:64", "--ui", "none"),
        ]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=900)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = json.loads(next(Path(folder).rglob("profile_export_aiperf.json")).read_text())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"AIPerf: {1e6 * cpu / (15 * count * 64):.1f} µs/token, TTFT mean {report['time_to_first_token']['avg']:.1f} ms")


def main() -> None:
    """Run what was asked for, or all but the peers."""
    parts = {"streams": streams, "poisson": poisson, "fuzz": fuzz, "memory": memory, "starved": starved}
    if sys.argv[1:2] == ["one"]:
        one(int(sys.argv[2]))
    elif sys.argv[1:2] == ["peers"]:
        peers(sys.argv[2], sys.argv[3])
    else:
        for name in sys.argv[1:] or list(parts):
            print(f"\n{name}")
            parts[name]()


if __name__ == "__main__":
    main()
