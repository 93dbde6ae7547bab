"""A load sent by several processes with one clock and one record."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from array import array
from collections import Counter
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.live import question
from tests.bench.records import GOOD, SEEN, record
from tonnage.api.bench import prepare_bench, run_bench
from tonnage.bench.connection import Setup, Target
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.load import Load
from tonnage.bench.prompts import prompts
from tonnage.bench.recorder import Tally
from tonnage.bench.selftest import server_log
from tonnage.bench.workers import (
    Job,
    Part,
    _add,
    _interrupts_pass,
    _merge,
    _result,
    _start,
    _together,
    measure_by_workers,
    work,
)
from tonnage.errors import InputError, TonnageError
from tonnage.results.store import read_run, read_tokens
from tonnage.spec.workload import ClosedLoop, OpenLoop


def test_a_load_is_shared_out_without_loss() -> None:
    closed = question(ClosedLoop(concurrency=7), requests=20).draw()
    shares = [closed.of_worker(place, 3) for place in range(3)]
    assert [share.concurrency for share in shares] == [3, 2, 2]
    assert sum(map(len, shares)) == 20
    opened = question(OpenLoop(rate=90), requests=20).draw()
    shares = [opened.of_worker(place, 3) for place in range(3)]
    assert opened.due_ns is not None
    assert sorted(
        np.concatenate([share.due_ns for share in shares if share.due_ns is not None])
    ) == list(opened.due_ns)
    assert {share.rate for share in shares} == {30.0}


@pytest.mark.parametrize(
    "load",
    [
        pytest.param({"concurrency": 6}, id="closed"),
        pytest.param({"request_rate": 60}, id="open", marks=pytest.mark.live),
    ],
)
def test_two_processes_send_every_request_once_into_one_record(
    load: dict[str, int], tmp_path: Path
) -> None:
    with exact_server(
        Schedule(ttft_s=0.02, itl_s=0.004, fault="500", fault_every=10), seconds=60
    ) as url:
        asked = prepare_bench(
            url=url,
            model="m",
            isl=20,
            osl=6,
            request_count=60,
            workers=2,
            warmup_request_count=0,
            **load,
        )
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={})[0]
        numbers = server_log(url)[:, 0]
    found = read_run(tmp_path / "run").requests
    assert len(found) == 60
    assert sorted(numbers) == sorted(set(numbers))
    assert run.summary_json["errors"] == 6
    assert len(numbers) == 54
    assert (np.diff(found.due_ns) >= 0).all()
    assert int(found.gaps.sum()) == 54 * 5
    offsets, lengths = read_tokens(tmp_path / "run")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    good = np.flatnonzero(found.status == 0)
    assert (offsets[starts[good]] == found.first_token_ns[good] - found.sent_ns[good]).all()
    assert run.run_json["client"]["workers"] == 2
    assert run.run_json["server_metrics"]


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
"""


def test_figures_are_kept_where_the_disk_of_the_processes_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FULL_DISK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.004), seconds=60) as url:
        asked = prepare_bench(
            url=url, model="m", isl=20, osl=6, request_count=60, workers=2, concurrency=6
        )
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={})[0]
    assert (len(run.requests), run.summary.counted, int(run.requests.gaps.sum())) == (60, 60, 300)
    assert (np.diff(run.requests.due_ns) >= 0).all()
    assert "File too large); its figures are those above" in run.unwritten
    assert [path.name for path in tmp_path.iterdir()] == ["sitecustomize.py"]


def test_what_two_workers_saw_is_one_whole() -> None:
    """Lateness is pooled, the CPU is that of the busiest, counts are sums; ends are in the order of
    the rows."""
    one = replace(
        SEEN,
        sent=3,
        tally=Tally(outcomes=Counter({"": 2, "a": 1}), tokens=7, examples=[{"id": 1}] * 15),
        lateness_ns=array("q", [1, 2]),
        begun_lateness_ns=array("q", [3]),
        ends_ns=array("q", [10, 30]),
        cpu=array("d", [0.2, 0.9, 0.4]),
        cpu_share=0.5,
        cpu_s=1.5,
        seconds=4.0,
        start_ns=11,
        started_unix_ns=12,
        connections=2,
        retries=1,
        held=3,
        waits=4,
        interrupted=False,
    )
    two = replace(
        one,
        sent=5,
        tally=Tally(outcomes=Counter({"": 4, "b": 1}), tokens=9, examples=[{"id": 2}] * 9),
        lateness_ns=array("q", [5]),
        begun_lateness_ns=array("q", [6, 7]),
        ends_ns=array("q", [20]),
        cpu=array("d", [0.3, 0.1]),
        cpu_share=0.4,
        cpu_s=2.0,
        seconds=5.0,
        start_ns=99,
        started_unix_ns=98,
        connections=7,
        retries=10,
        held=20,
        waits=30,
        interrupted=True,
    )
    whole = _together(SEEN.load, [one, two], np.array([0, 2, 1]), interrupted=False)
    assert {field.name: getattr(whole, field.name) for field in fields(whole)} == {
        "load": SEEN.load,
        "sent": 8,
        "tally": Tally(
            outcomes=Counter({"": 6, "a": 1, "b": 1}),
            tokens=16,
            examples=[{"id": 1}] * 15 + [{"id": 2}] * 5,
        ),
        "lateness_ns": array("q", [1, 2, 5]),
        "begun_lateness_ns": array("q", [3, 6, 7]),
        "ends_ns": array("q", [10, 20, 30]),
        "endpoint": None,
        "cpu": array("d", [0.3, 0.9, 0.4]),
        "cpu_share": 0.5,
        "cpu_s": 3.5,
        "seconds": 5.0,
        "start_ns": 11,
        "started_unix_ns": 12,
        "connections": 9,
        "retries": 11,
        "held": 23,
        "waits": 34,
        "interrupted": True,
        "turns": None,
    }
    alone = _together(SEEN.load, [one], np.array([1, 0]), interrupted=False)
    assert (alone.ends_ns.tolist(), alone.interrupted) == ([30, 10], False)  # type: ignore[attr-defined]
    assert _together(SEEN.load, [one], np.array([0, 1]), interrupted=True).interrupted


def test_counts_of_two_workers_add_up_name_by_name() -> None:
    numbers = [
        field.name for field in fields(Tally) if isinstance(getattr(Tally(), field.name), int)
    ]
    total = Tally(**{name: place for place, name in enumerate(numbers)})
    _add(total, Tally(**dict.fromkeys(numbers, 100)))
    assert [getattr(total, name) for name in numbers] == [100 + k for k in range(len(numbers))]
    assert [getattr(Tally(), name) for name in numbers] == [0] * len(numbers)


def part_of(due: list[int], observed: Any = SEEN) -> Part:
    """A worker's record of requests due then, of 100 ns each."""
    column = np.array(due, dtype=np.int64)
    requests = replace(
        record(np.full(len(due), 1e-4), due=column),
        isl=column + 1,
        osl=column + 2,
        cached_tokens=column + 3,
        preemptions=(column + 4).astype(np.int32),
        gaps=GOOD.gaps + 1,
    )
    return Part(observed=observed, requests=requests)


class Rows:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.gaps: Any = 0
        self.fault = ""

    def add(self, batch: Any) -> None:
        self.batches.append(batch)

    def add_gaps(self, gaps: Any) -> None:
        self.gaps = self.gaps + gaps


def test_rows_of_all_workers_come_in_the_order_in_which_they_were_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker has its rows at hand, without the moments of tokens; two have written them."""
    written = {
        tmp_path / "1" / "run": ([7, 30, 40], [5, 6, 7, 8], [1, 0, 3]),
        tmp_path / "2" / "run": ([20], [9, 10], [2]),
    }
    monkeypatch.setattr(
        "tonnage.bench.workers.read_run",
        lambda folder: SimpleNamespace(requests=part_of(written[folder][0]).requests),
    )
    monkeypatch.setattr(
        "tonnage.bench.workers.read_tokens",
        lambda folder: tuple(np.array(column) for column in written[folder][1:]),
    )
    monkeypatch.setattr("tonnage.bench.workers.BATCH_ROWS", 4)
    folders = [tmp_path / str(place) for place in range(3)]
    parts = [part_of([10, 25]), Part(observed=SEEN), Part(observed=SEEN)]
    writer = Rows()
    order = _merge(folders, parts, writer)  # type: ignore[arg-type]
    assert order.tolist() == [2, 0, 5, 1, 3, 4]
    first, second = writer.batches
    assert first.rows[:, 0].tolist() == [7, 10, 20, 25]
    assert second.rows.tolist() == [
        [due, due, due + 50, due + 100, due + 1, due + 2, due + 3, 0, 0, due + 4]
        for due in (30, 40)
    ]
    assert (first.lengths.tolist(), first.offsets_ns.tolist()) == ([1, 0, 2, 0], [5, 9, 10])
    assert (second.lengths.tolist(), second.offsets_ns.tolist()) == ([0, 3], [6, 7, 8])
    assert (writer.gaps == 3).all()


def test_what_a_worker_leaves_is_its_part_or_an_error(tmp_path: Path) -> None:
    seen = replace(SEEN, load="load")  # type: ignore[arg-type]
    data = pickle.dumps({"observed": seen, "fault": "full"})
    assert _result(tmp_path, data) == Part(observed=seen, fault="full")
    with pytest.raises(TonnageError, match="ended before its time"):
        _result(tmp_path, b"")
    (tmp_path / "seen.pickle").write_bytes(pickle.dumps({"observed": seen}))
    assert _result(tmp_path, b"") == Part(observed=seen)
    (tmp_path / "seen.pickle").write_bytes(pickle.dumps({"observed": 3}))
    with pytest.raises(TonnageError, match="something else than its run"):
        _result(tmp_path, b"")


class Process:
    """A client process as it is seen from outside."""

    def __init__(self, log: list[Any], *, says: bytes = b"ready\n", rest: bytes = b"") -> None:
        self.log, self.said = log, b""
        self.stdout = SimpleNamespace(
            readline=lambda: says, read=lambda: rest, close=lambda: log.append("closed")
        )
        self.stdin = SimpleNamespace(write=self.write, flush=lambda: None, close=self.close)

    def write(self, data: bytes) -> None:
        self.said += data

    def close(self) -> None:
        raise BrokenPipeError

    def kill(self) -> None:
        self.log.append("killed")

    def wait(self) -> None:
        self.log.append("over")

    def send_signal(self, number: int) -> None:
        self.log.append(number)


SETUP = Setup(
    target=Target(host="h", port=1),
    endpoint=find_endpoint("chat", model="m"),
    prompts=prompts(seed=0, tokenizer=None),
    head=b"",
    warmup=5,
    workers=2,
)


def test_a_load_is_sent_by_several_processes_from_one_moment_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[Any] = []
    faults = ["", "full"]
    starting: list[Any] = []
    made: list[Process] = []

    def start(setup: Setup, load: Load, folder: Path, place: int) -> Process:
        starting.append((setup, load, folder.name, place))
        parts = [part_of([10, 30]), part_of([20])]
        part = replace(parts[place], fault=faults[place])
        rest = {"observed": replace(SEEN, ends_ns=[place] * len(part.requests or ()))}
        rest |= {"requests": part.requests, "fault": part.fault}  # type: ignore[dict-item]
        made.append(Process(log, rest=pickle.dumps(rest)))
        return made[-1]

    monkeypatch.setattr("tonnage.bench.workers._start", start)
    monkeypatch.setattr(
        "tonnage.bench.workers.time", SimpleNamespace(monotonic_ns=lambda: 1_000_000_000)
    )
    metrics: Any = SimpleNamespace(start=log.append, end=lambda: log.append("read"))
    writer = Rows()
    load = Load(isl=np.arange(3), osl=np.arange(3), concurrency=3)
    observed = measure_by_workers(SETUP, load, writer, metrics=metrics)  # type: ignore[arg-type]
    assert starting == [(SETUP, load, str(place), place) for place in range(2)]
    assert [process.said for process in made] == [b"1050000000\n"] * 2
    assert log == [
        1_050_000_000,
        *("over", "over"),
        *("killed", "over", "closed") * 2,
        "read",
    ]
    assert writer.fault == "full"
    [batch] = writer.batches
    assert batch.rows[:, 0].tolist() == [10, 20, 30]
    assert list(observed.ends_ns) == [0, 1, 0]
    assert (observed.load, observed.sent, observed.interrupted) == (load, 1_200, False)


def test_a_process_that_does_not_start_ends_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    says = [b"ready\n", b"Traceback\n"]
    monkeypatch.setattr(
        "tonnage.bench.workers._start", lambda *words: Process(log, says=says[words[3]])
    )
    with pytest.raises(
        TonnageError, match="a client process did not start; try with one, workers 1"
    ):
        measure_by_workers(SETUP, Load(isl=np.arange(3), osl=np.arange(3)), Rows())  # type: ignore[arg-type]
    assert log == ["killed", "over", "closed"] * 2


@pytest.mark.parametrize(("place", "isl"), [(0, [0, 2]), (1, [1])])
def test_a_process_gets_its_share_and_its_place(
    place: int, isl: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five requests of a warm-up are three for each of two."""
    log: list[Any] = []
    calls: list[Any] = []
    process = Process(log)

    def popen(command: list[str], **how: Any) -> Process:
        calls.append((command, how))
        return process

    monkeypatch.setattr("tonnage.bench.workers.subprocess.Popen", popen)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    load = Load(isl=np.arange(3), osl=np.arange(3), concurrency=3)
    setup = replace(SETUP, tls="context")  # type: ignore[arg-type]
    assert _start(setup, load, tmp_path / "w", place) is process  # type: ignore[comparison-overlap]
    [(command, how)] = calls
    assert command == [sys.executable, "-m", "tonnage.bench.workers"]
    assert how["stdin"] == how["stdout"] == subprocess.PIPE
    paths = how["env"]["PYTHONPATH"].split(os.pathsep)
    assert (Path(paths[0]) / "tonnage" / "bench" / "workers.py").is_file()
    assert paths[1:] == ["/elsewhere"]
    job = pickle.loads(process.said)
    assert (tmp_path / "w").is_dir()
    assert (job.folder, job.load.isl.tolist(), job.load.concurrency) == (
        tmp_path / "w",
        isl,
        2 - place,
    )
    mine = job.setup
    assert (mine.tls, mine.first, mine.step, mine.warmup, mine.workers) == (None, place, 2, 3, 2)


def test_signals_end_the_workers_and_not_this_process() -> None:
    """A terminal's Ctrl-C reaches them by itself; SIGTERM is passed on."""
    log: list[Any] = []
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with _interrupts_pass([Process(log), Process(log)]) as came:  # type: ignore[list-item]
        assert came == []
        os.kill(os.getpid(), signal.SIGINT)
        assert (came, log) == ([signal.SIGINT], [])
        os.kill(os.getpid(), signal.SIGTERM)
        assert (came, log) == ([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM] * 2)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    elsewhere: list[Any] = []

    def in_a_thread() -> None:
        with _interrupts_pass([]) as came:
            elsewhere.append(came)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert elsewhere == [[]]


@pytest.mark.parametrize("fault", ["", "full", "late"])
def test_a_worker_leaves_its_run_and_what_it_saw(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its folder, or over its output where that cannot be written."""
    log: list[Any] = []

    class Writer:
        def __init__(self, folder: Path) -> None:
            assert folder == tmp_path / "run"
            self.fault = "" if fault == "late" else fault

        def finish(self) -> str:
            return "requests"

        def noting_faults(self) -> Any:
            return nullcontext()

        def close(self, **parts: Any) -> None:
            log.append(parts)
            if fault == "late":
                raise InputError("a: b (late)")

        def discard(self) -> None:
            log.append("discarded")

    def measuring(setup: Setup, load: Load, writer: Any, *, gate: Any) -> str:
        assert gate() == 1_234
        log.append((setup.tls, len(load)))
        return "seen"

    monkeypatch.setattr("tonnage.bench.workers.RunWriter", Writer)
    monkeypatch.setattr("tonnage.bench.workers.measure", measuring)
    monkeypatch.setattr(InputError, "reason", "late", raising=False)
    read, write = os.pipe()
    stdin = SimpleNamespace(buffer=SimpleNamespace(readline=lambda: b"1234\n"))
    words: list[str] = []
    stdout = SimpleNamespace(
        fileno=lambda: write, write=words.append, flush=lambda: words.append("<flushed>")
    )
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr("sys.stdout", stdout)
    work(Job(setup=SETUP, load=Load(isl=np.arange(3), osl=np.arange(3)), folder=tmp_path))
    monkeypatch.undo()
    os.close(write)
    with open(read, "rb") as output:
        said = output.read()
    empty: dict[str, Any] = {"scenario": {}, "summary": {}, "provenance": {}, "run": {}}
    assert log == [(None, 3), *([] if fault == "full" else [empty]), "discarded"]
    assert "".join(words) == "ready\n<flushed>"
    assert pickle.loads((tmp_path / "seen.pickle").read_bytes()) == {"observed": "seen"}
    assert (pickle.loads(said) if said else None) == (
        {"observed": "seen", "requests": "requests", "fault": fault} if fault else None
    )
