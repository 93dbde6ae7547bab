"""What the load client costs and how true it is, against the exact server on this machine.

    ./benchmark bench_client --aiperf AIPERF    everything, with AIPerf beside it: the path of its program
    ./benchmark bench_client                    streams, poisson, frozen, fuzz, memory, interrupted, starved
    ./benchmark bench_client streams            one of them

Wants an otherwise idle machine: other programs make lateness larger, and every wake-up dearer.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from tests.bench.corpus import STREAM
from tests.bench.live import Run, question, run
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.http_response import BrokenReply
from tonnage.bench.reply import Reply
from tonnage.bench.selftest import server_log
from tonnage.bench.steady import find_steady
from tonnage.bench.validity import Validity, judge
from tonnage.results.metrics import summarize
from tonnage.results.requests import COMPLETED, UNFINISHED
from tonnage.results.store import read_run
from tonnage.spec.workload import ClosedLoop, OpenLoop

Client = Callable[[str, list[str], Path], float]
"""Measures a load of a server with files in a folder, and gives the mean TTFT that it says, in
milliseconds."""

TONNAGE = (
    sys.executable,
    "-m",
    "tonnage",
    "bench",
    "--model",
    "m",
    "--endpoint-type",
    "chat",
    "--streaming",
    "--no-selftest",
)
BESIDE, REQUESTS, ROUNDS = (64, 256), (5, 20), 2
"""Streams at which AIPerf stands beside; requests per stream of the short and of the long load; how
often, in turn."""


def verdict(found: Run) -> Validity:
    """The verdict on a run."""
    return judge(
        found.observed, found.requests, summarize(found.requests), find_steady(found.requests)
    )


def streams(counts: tuple[int, ...] = (64, 256, 1024), starved: int = 0) -> None:
    """CPU per token and bias at several numbers of streams: 50 ms to the first token, 10 ms each,
    64 tokens.
    """
    print(
        f"{'streams':>8} {'µs/token':>9} {'user':>6} {'system':>6} {'TTFT ms':>8} {'server':>8}"
        f" {'bias':>7} {'p99':>7}  verdict"
    )
    for count in counts:
        with exact_server(Schedule()) as url, tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_SELF)
            found = run(
                url,
                Path(folder) / "run",
                question(ClosedLoop(concurrency=count), isl="200", osl="64", requests=15 * count),
            )
            after = resource.getrusage(resource.RUSAGE_SELF)
            number, received, first, _, _ = server_log(url).T
        tokens, s = int(found.requests.osl.sum()), summarize(found.requests)
        user, system = (
            1e6 * (getattr(after, n) - getattr(before, n)) / tokens
            for n in ("ru_utime", "ru_stime")
        )
        lag = (found.requests.first_token_ns[number] + found.observed.start_ns - first) / 1e6
        server = float((first - received).mean()) / 1e6
        said = verdict(found)
        print(
            f"{count:8} {1e6 * found.observed.cpu_s / tokens:9.2f} {user:6.2f} {system:6.2f}"
            f" {s.ttft_from_send_ms.mean:8.2f} {server:8.2f} {lag.mean():7.3f}"
            f" {np.percentile(lag, 99):7.3f} "
            f" {said.verdict}{': ' if said.reasons else ''}{'; '.join(said.reasons)}"
        )


def poisson() -> None:
    """An open loop at 100/s, 5,000 requests: how the gaps between sendings are spread."""
    schedule = Schedule(ttft_s=0.01, itl_s=0.005)
    with exact_server(schedule) as url, tempfile.TemporaryDirectory() as folder:
        found = run(
            url,
            Path(folder) / "run",
            question(OpenLoop(rate=100), isl="100", osl="8", requests=5_000),
        )
    gaps = np.diff(np.sort(found.requests.sent_ns)) / 1e6
    planned = np.diff(found.requests.due_ns) / 1e6
    late = np.array(found.observed.begun_lateness_ns) / 1e6
    for name, values in (("sent", gaps), ("scheduled", planned)):
        print(
            f"{name:>10}: CV {values.std() / values.mean():.3f}, {np.mean(values < 0.2):.2%} of the"
            " gaps under 0.2 ms"
        )
    print(
        f"{'late':>10}: mean {late.mean():.3f} ms, p99 {np.percentile(late, 99):.3f} ms;"
        f" {verdict(found).verdict}"
    )


def fuzz(chunks: int = 1_000_000) -> None:
    """Streams with wrong bytes in wrong pieces: nothing but ``BrokenReply`` may be raised, no token
    made up.
    """
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
    print(
        f"{fed:,} chunks, {broken:,} replies found broken, no other error,"
        f" {time.process_time() - began:.0f} s CPU"
    )


def frozen() -> None:
    """An open loop at 100/s whose server does nothing for 2 s: what every request that was due
    meanwhile waited is in its latency.
    """
    schedule = Schedule(ttft_s=0.01, itl_s=0.005, freeze_at_s=5.0, freeze_s=2.0)
    with exact_server(schedule) as url, tempfile.TemporaryDirectory() as folder:
        found = run(
            url,
            Path(folder) / "run",
            question(OpenLoop(rate=100), isl="100", osl="8", requests=1_500),
        )
    requests = found.requests
    ttft, from_send = (
        (requests.first_token_ns - since) / 1e9 for since in (requests.due_ns, requests.sent_ns)
    )
    held = (requests.due_ns >= requests.due_ns[0] + 5e9) & (
        requests.due_ns < requests.due_ns[0] + 7e9
    )
    print(
        f"due while it was frozen: {held.sum()}; their TTFT {ttft[held].mean():.3f} s on average"
        f" (1.0 expected), {ttft.max():.3f} at most; from sending {from_send.max():.3f} at most;"
        f" {found.outcomes}"
    )


def interrupted(seconds: float = 12.0) -> None:
    """``tonnage bench`` of 100,000 requests, ended by Ctrl-C: what the server had answered by then
    is in the record.
    """
    with (
        exact_server(Schedule(ttft_s=0.0, itl_s=0.0)) as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        load = ["--isl", "50", "--osl", "8", "--concurrency", "64", "--request-count", "100000"]
        command = [*TONNAGE, "--url", url, *load, "--artifact-dir", f"{folder}/run"]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            _, _, usage = os.wait4(process.pid, 0)
        kept = read_run(Path(folder) / "run").requests
        served = len(server_log(url))
    done, unfinished = (int((kept.status == status).sum()) for status in (COMPLETED, UNFINISHED))
    print(
        f"answered by the server: {served:,}; in the record: {done:,} completed, {unfinished}"
        f" unfinished, {len(kept) - done - unfinished} others; {usage.ru_maxrss / 1024:.0f} MB at"
        " most"
    )


def memory() -> None:
    """Peak memory of a run of 100,000 requests beside one of 10,000, each in a process of its
    own.
    """
    for count in (10_000, 100_000):
        done = subprocess.run(
            [sys.executable, __file__, "one", str(count)],
            check=True,
            capture_output=True,
            text=True,
        )
        print(f"{count:8,} requests: {done.stdout.strip()}")


def one(count: int) -> None:
    """One run of many short requests; prints its peak memory."""
    with (
        exact_server(Schedule(ttft_s=0.0, itl_s=0.0)) as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        found = run(
            url,
            Path(folder) / "run",
            question(ClosedLoop(concurrency=64), isl="50", osl="8", requests=count),
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{peak:.0f} MB at most, {len(found.requests) / found.observed.seconds:,.0f} requests/s,"
        f" {found.outcomes}"
    )


def _burn() -> None:
    while True:
        sum(range(100_000))


def starved() -> None:
    """The client on one core with three busy neighbours: the verdict must turn."""
    core = {min(os.sched_getaffinity(0))}
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    burning = [
        multiprocessing.get_context("fork").Process(target=_burn, daemon=True) for _ in range(3)
    ]
    for process in burning:
        process.start()
    try:
        streams((64,))
    finally:
        for process in burning:
            process.terminate()
        os.sched_setaffinity(0, everywhere)


def tonnage(url: str, load: list[str], folder: Path) -> float:
    """``tonnage bench`` on a load; the mean TTFT that it says, in milliseconds."""
    command = [
        *TONNAGE,
        "--url",
        url,
        "--isl",
        "200",
        "--osl",
        "64",
        *load,
        "--artifact-dir",
        str(folder / "run"),
    ]
    subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=900
    )
    return float(json.loads((folder / "run" / "summary.json").read_text())["ttft_ms"]["mean"])


def words(folder: Path) -> Path:
    """A folder with a tokenizer of letters, as transformers reads one, so that nothing is
    downloaded.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = {
        letter: place for place, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    made = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    made.pre_tokenizer, made.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )
    return folder


def aiperf(program: str, further: list[str], url: str, load: list[str], folder: Path) -> float:
    """The same of AIPerf, with further flags."""
    command = [
        program,
        "profile",
        "--model",
        "m",
        "--url",
        url,
        "--endpoint-type",
        "chat",
        "--streaming",
    ]
    command += [
        "--tokenizer",
        str(words(folder / "words")),
        "--extra-inputs",
        "max_tokens:64",
        *further,
    ]
    command += [*load, "--isl", "200", "--osl", "64", "--artifact-dir", str(folder), "--ui", "none"]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=900
    )
    report = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    return float(report["time_to_first_token"]["avg"])


def once(client: Client, streams: int, requests: int) -> tuple[float, float]:
    """One command against a server of its own: CPU seconds of all its processes, and the bias of
    its mean TTFT in milliseconds.
    """
    with exact_server(Schedule()) as url, tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ttft = client(
            url, ["--concurrency", str(streams), "--request-count", str(requests)], Path(folder)
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        _, received, first, _, _ = server_log(url).T
    return (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        ttft - float((first - received).mean()) / 1e6,
    )


def beside(program: str) -> None:
    """AIPerf and this client on the same loads in turn: CPU per token of all client processes, and
    the bias of the mean TTFT of each.

    Each runs a short and a long load: the difference of their CPU is that of the tokens, without
    start and report.
    """
    clients: dict[str, Client] = {
        "tonnage": tonnage,
        "AIPerf": partial(aiperf, program, []),
        "AIPerf, tokens counted by the server": partial(
            aiperf, program, ["--use-server-token-count"]
        ),
    }
    for streams_ in BESIDE:
        short, long = (each * streams_ for each in REQUESTS)
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in clients}
        for _ in range(ROUNDS):
            for name, client in clients.items():
                (small, _), (large, bias) = (
                    once(client, streams_, short),
                    once(client, streams_, long),
                )
                found[name].append(
                    (1e6 * (large - small) / (64 * (long - short)), 1e6 * large / (64 * long), bias)
                )
        ours, *_ = medians = [np.median(np.array(found[name]), axis=0) for name in clients]
        for name, (tokens, whole, bias) in zip(clients, medians, strict=True):
            print(
                f"{streams_:5} streams, {name}: {tokens:.2f} µs/token ({tokens / ours[0]:.1f} times"
                f" ours), {whole:.2f} in all ({whole / ours[1]:.1f} times); TTFT {bias:+.3f}"
                " ms off",
                flush=True,
            )


def main(arguments: list[str]) -> None:
    """Run what was asked for, or everything."""
    if arguments[:1] == ["one"]:
        one(int(arguments[1]))
        return
    parts = {
        "streams": streams,
        "poisson": poisson,
        "frozen": frozen,
        "fuzz": fuzz,
        "memory": memory,
        "interrupted": interrupted,
    }
    parts["starved"] = starved
    if "--aiperf" in arguments:
        place = arguments.index("--aiperf")
        _, program = arguments[place : place + 2]
        del arguments[place : place + 2]
        parts["beside"] = partial(beside, program)
    for name in arguments or list(parts):
        began = time.monotonic()
        print(f"\n{name}", flush=True)
        parts[name]()
        print(f"({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
