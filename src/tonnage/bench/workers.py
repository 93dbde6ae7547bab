"""A load sent by several client processes with one clock, one start and one record.

The monotonic clock is that of the machine, the same for all its processes. Request k goes to worker
k mod n; a closed loop's clients are shared out. The record is put in the order in which requests
were due.

This module is the program of each of these processes, too: ``work`` takes its share, waits for the
common start and leaves its run in a folder. The job comes pickled over standard input, since it
holds the key of the server; ``Observed`` goes back in a file of the folder, or with the requests
over standard output where the folder cannot be written.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from tonnage.bench.connection import Setup
from tonnage.bench.intervals import Integers
from tonnage.bench.load import Load
from tonnage.bench.measure import ENDS, Observed, measure
from tonnage.bench.recorder import EXAMPLES, Tally
from tonnage.bench.scrape import Scraper
from tonnage.errors import InputError, TonnageError, option
from tonnage.results.requests import Requests
from tonnage.results.store import BATCH_ROWS, Batch, RunWriter, read_run, read_tokens

READY = "ready"
SEEN = "seen.pickle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of one worker process."""

    setup: Setup  # the server and the prompts, with the worker's own place among all
    load: Load
    folder: Path  # where its run and what was seen of it go


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The record of one worker process."""

    observed: Observed
    requests: Requests | None = None  # its record, where its folder does not have it
    fault: str = ""  # why not, such as a full disk


def work(job: Job) -> None:
    """Do the job; the common start comes as a line of standard input once "ready" was printed."""

    def gate() -> int:
        print(READY, flush=True)
        return int(sys.stdin.buffer.readline())

    setup = replace(
        job.setup,
        tls=ssl.create_default_context(cafile=job.setup.ca_file) if job.setup.target.tls else None,
    )
    writer = RunWriter(job.folder / "run")
    try:
        observed = measure(setup, job.load, writer, gate=gate)
        requests = writer.finish()
        with writer.noting_faults():
            (job.folder / SEEN).write_bytes(pickle.dumps({"observed": observed}))
        if not writer.fault:
            try:
                writer.close(scenario={}, summary={}, provenance={}, run={})
            except InputError as unwritten:
                writer.fault = unwritten.reason
    finally:
        writer.discard()
    if writer.fault:
        # in whole, also where PYTHONUNBUFFERED is set
        with open(sys.stdout.fileno(), "wb", closefd=False) as output:
            output.write(
                pickle.dumps({"observed": observed, "requests": requests, "fault": writer.fault})
            )


AHEAD_NS = 50_000_000  # From the last worker's being ready to the common start


def measure_by_workers(
    setup: Setup, load: Load, writer: RunWriter, *, metrics: Scraper | None = None
) -> Observed:
    """Run one load over ``setup.workers`` processes, or up to Ctrl-C. Raises TonnageError: a worker
    ended before its time.
    """
    workers = setup.workers
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as scratch, _interrupts_pass(processes) as interrupted:
        folders = [Path(scratch) / str(place) for place in range(workers)]
        processes += [_start(setup, load, folder, place) for place, folder in enumerate(folders)]
        try:
            for process in processes:
                line = process.stdout.readline() if process.stdout else b""
                if line.strip().decode() != READY:
                    raise TonnageError(
                        f"a client process did not start; try with one, {option('workers')} 1"
                    )
            start_ns = time.monotonic_ns() + AHEAD_NS
            if metrics is not None:
                metrics.start(start_ns)
            for process in processes:
                _say(process, b"%d\n" % start_ns)
            unwritten = [process.stdout.read() if process.stdout else b"" for process in processes]
            for process in processes:
                process.wait()
        finally:
            for process in processes:
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        with contextlib.suppress(BrokenPipeError):
                            pipe.close()
            if metrics is not None:
                metrics.end()
        parts = [_result(folder, data) for folder, data in zip(folders, unwritten, strict=True)]
        writer.fault = next((part.fault for part in parts if part.fault), writer.fault)
        order = _merge(folders, parts, writer)
        return _together(
            load, [part.observed for part in parts], order, interrupted=bool(interrupted)
        )


@contextmanager
def _interrupts_pass(processes: Sequence[subprocess.Popen[bytes]]) -> Iterator[list[int]]:
    """While it lasts, Ctrl-C and SIGTERM end the workers and not this process; the list tells
    whether one came.

    A terminal sends Ctrl-C to the workers too; SIGTERM comes to this process alone and is passed
    on.
    """
    came: list[int] = []

    def noted(number: int, frame: object) -> None:
        came.append(number)
        for process in processes if number == signal.SIGTERM else ():
            process.send_signal(number)

    try:
        before = [(number, signal.signal(number, noted)) for number in ENDS]
    except ValueError:  # not the main thread
        yield came
        return
    try:
        yield came
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _start(setup: Setup, load: Load, folder: Path, place: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    here = str(Path(__file__).parents[2])
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "tonnage.bench.workers"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    warmup = -(-setup.warmup // setup.workers)
    mine = replace(setup, tls=None, first=place, step=setup.workers, warmup=warmup)
    _say(
        process,
        pickle.dumps(Job(setup=mine, load=load.of_worker(place, setup.workers), folder=folder)),
    )
    return process


def _say(process: subprocess.Popen[bytes], data: bytes) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(data)
            process.stdin.flush()


def _result(folder: Path, unwritten: bytes) -> Part:
    path = folder / SEEN
    if not unwritten and not path.is_file():
        raise TonnageError(
            "a client process ended before its time; its part of the run is lost, measure again"
        )
    part = Part(**pickle.loads(unwritten or path.read_bytes()))
    if not isinstance(part.observed, Observed):
        raise TonnageError("a client process left something else than its run; measure again")
    return part


def _record(folder: Path, part: Part) -> tuple[Requests, tuple[Integers, Integers]]:
    """The requests of a worker, and the moments of their tokens with the number of each; there are
    none where it could not write them.
    """
    if part.requests is None:
        return read_run(folder).requests, read_tokens(folder)
    return part.requests, (np.zeros(0, np.int64), np.zeros(len(part.requests), np.int64))


def _merge(
    folders: Sequence[Path], parts: Sequence[Part], writer: RunWriter
) -> np.typing.NDArray[np.int64]:
    """Write the rows of all workers in the order in which they were due, and give that order."""
    rows, offsets, lengths = [], [], []
    for folder, part in zip(folders, parts, strict=True):
        record, (times, counts) = _record(folder / "run", part)
        columns = (
            record.due_ns,
            record.sent_ns,
            record.first_token_ns,
            record.last_token_ns,
            record.isl,
            record.osl,
            record.cached_tokens,
        )
        rows.append(
            np.stack([*columns, record.instance, record.status, record.preemptions], axis=1).astype(
                np.int64
            )
        )
        offsets.append(times)
        lengths.append(counts)
        writer.add_gaps(record.gaps)
    all_rows, moments, tokens = (
        np.concatenate(rows),
        np.concatenate(offsets),
        np.concatenate(lengths),
    )
    order, starts = (
        np.argsort(all_rows[:, 0], kind="stable"),
        np.concatenate([[0], np.cumsum(tokens)]),
    )
    for begin in range(0, len(order), BATCH_ROWS):
        chosen = order[begin : begin + BATCH_ROWS]
        times = np.concatenate(
            [np.zeros(0, np.int64), *(moments[starts[k] : starts[k + 1]] for k in chosen)]
        )
        writer.add(Batch(rows=all_rows[chosen], offsets_ns=times, lengths=tokens[chosen]))
    return order


def _together(
    load: Load,
    observations: Sequence[Observed],
    order: np.typing.NDArray[np.int64],
    *,
    interrupted: bool,
) -> Observed:
    """What was seen of all workers: lateness pooled, of the CPU the busiest worker, the rest
    summed; ``order`` is that of the rows.
    """
    tally = Tally()
    for worker in observations:
        _add(tally, worker.tally)
    seconds = max(len(observed.cpu) for observed in observations)
    busiest = [
        max(observed.cpu[k] for observed in observations if k < len(observed.cpu))
        for k in range(seconds)
    ]
    return Observed(
        load=load,
        sent=sum(observed.sent for observed in observations),
        tally=tally,
        lateness_ns=array(
            "q", [late for observed in observations for late in observed.lateness_ns]
        ),
        begun_lateness_ns=array(
            "q", [late for observed in observations for late in observed.begun_lateness_ns]
        ),
        ends_ns=array(
            "q",
            np.concatenate(
                [np.asarray(observed.ends_ns, dtype=np.int64) for observed in observations]
            )[order].tolist(),
        ),
        endpoint=observations[0].endpoint,
        cpu=array("d", busiest),
        cpu_share=max(observed.cpu_share for observed in observations),
        cpu_s=sum(observed.cpu_s for observed in observations),
        seconds=max(observed.seconds for observed in observations),
        start_ns=observations[0].start_ns,
        started_unix_ns=observations[0].started_unix_ns,
        connections=sum(observed.connections for observed in observations),
        retries=sum(observed.retries for observed in observations),
        held=sum(observed.held for observed in observations),
        waits=sum(observed.waits for observed in observations),
        interrupted=interrupted or any(observed.interrupted for observed in observations),
    )


def _add(total: Tally, part: Tally) -> None:
    for name in (item.name for item in fields(Tally)):
        before, more = getattr(total, name), getattr(part, name)
        setattr(total, name, [*before, *more][:EXAMPLES] if name == "examples" else before + more)


if __name__ == "__main__":
    work(pickle.load(sys.stdin.buffer))
