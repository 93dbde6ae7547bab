"""The client against servers on this machine: every endpoint, every way to fail, and times that
cannot be."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.bench.exact_runs import in_flight
from tests.bench.live import question, run
from tonnage.api.bench import bench
from tonnage.bench import measure
from tonnage.bench.arguments import Fault
from tonnage.bench.connection import Setup, Target
from tonnage.bench.conversations import Conversations
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.load import Load
from tonnage.bench.prompts import prompts
from tonnage.bench.recorder import Tally, TokenTimes
from tonnage.bench.reply import Exchange, Reply
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import read_measured
from tonnage.results.metrics import summarize


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        *(
            ("429", "HTTP 429"),
            ("500", "HTTP 500"),
            ("cut", "cut off"),
            ("error", "error in the reply"),
        ),
        pytest.param("hang", "timed out", marks=pytest.mark.live),
    ],
)
def test_a_fault_is_counted_as_what_it_is(fault: Fault, outcome: str, tmp_path: Path) -> None:
    schedule = Schedule(ttft_s=0.01, itl_s=0.002, fault=fault, fault_every=3)
    with exact_server(schedule, seconds=60) as url:
        found = run(url, tmp_path / "run", question(), timeout_s=0.5 if fault == "hang" else 30.0)
    assert found.outcomes == {"": 8, outcome: 4}
    assert found.statuses == {"completed": 8, "failed": 4}
    assert len(found.observed.tally.examples) == 4
    assert summarize(found.requests).counted == 8


def test_a_server_that_closes_without_a_word_is_counted(tmp_path: Path) -> None:
    with exact_server(Schedule(fault="close", fault_every=1), seconds=60) as url:
        assert run(url, tmp_path / "run", question()).outcomes == {"closed without a reply": 12}


def test_several_tokens_in_an_event_share_its_moment_and_its_gap_is_divided(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.01, tokens_per_event=4), seconds=60) as url:
        found = run(url, tmp_path / "run", question(osl="18"))
    assert set(found.requests.osl) == {18}
    assert int(found.requests.gaps.sum()) == 12 * (18 - 4)
    assert 5 < summarize(found.requests).itl_ms.p50 < 15
    assert found.observed.tally.shared == 12


def test_a_cap_is_shared_by_client_processes_and_in_the_run_folder(tmp_path: Path) -> None:
    with exact_server(Schedule(ttft_s=0.03, itl_s=0.005), seconds=60) as url:
        load = {"request_rate": 400, "concurrency": 5, "arrival_pattern": "constant"}
        (measured,) = bench(
            url=url,
            model="m",
            isl=20,
            osl=5,
            request_count=40,
            workers=2,
            selftest=False,
            output=tmp_path / "run",
            **load,
        )
    assert in_flight(measured.requests) == 5
    assert (measured.run_json["load"]["in_flight"], measured.run_json["load"]["kind"]) == (
        5,
        "open",
    )
    assert measured.run_json["load"]["held"] == measured.observed.held == 35
    where = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "tp": 1,
        "engine": "vllm",
    }
    (row,) = read_measured(tmp_path / "run", where, InvalidRuns(include=True))
    assert (row["request_rate"], row["in_flight"], row["concurrency"]) == (400, 5, None)


def test_both_signals_end_a_run_where_they_can() -> None:
    added: list[tuple[int, object]] = []
    loop = SimpleNamespace(add_signal_handler=lambda *words: added.append(words))
    measure._on_interrupt(loop, print)  # type: ignore[arg-type]
    assert added == [(signal.SIGINT, print), (signal.SIGTERM, print)]

    def refuses(*_: object) -> None:
        raise RuntimeError

    measure._on_interrupt(SimpleNamespace(add_signal_handler=refuses), print)  # type: ignore[arg-type]


def test_percentiles_of_the_latest_requests() -> None:
    assert measure._percentiles(deque()) is None
    assert measure._percentiles(deque([7])) == (7e-9, 7e-9)
    assert measure._percentiles(deque(range(100, -1, -1))) == (50e-9, 95e-9)


def test_what_is_left_of_a_run_by_its_time_or_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tonnage.bench.measure.time", SimpleNamespace(monotonic_ns=lambda: 5_000_000_000)
    )

    class Sized(SimpleNamespace):
        def __len__(self) -> int:
            return 40

    live = measure.Live()
    for seconds, over, expected in (
        (10.0, 3, 6.0),
        (3.0, 3, 0.0),
        (float("inf"), 10, 12.0),
        (float("inf"), 0, None),
    ):
        conductor = SimpleNamespace(
            start_ns=1_000_000_000, load=Sized(seconds=seconds), sent=12, over=over
        )
        live.begin(conductor, None)  # type: ignore[arg-type]
        reading = live.reading()
        assert reading is not None
        assert reading.left_s == expected
        assert (reading.in_flight, reading.requests_per_second, reading.ttft_s) == (
            *(12 - over, None, None),
        )
    live._ends.extend([1_000_000_000, 2_000_000_000, 3_000_000_000])
    assert live.reading().requests_per_second == 1.0  # type: ignore[union-attr]
    assert time.monotonic_ns() > 0


def test_sigterm_changes_nothing_while_a_run_is_written() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with measure.sigterm_waits():
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) == before


class Playing:
    """A run without a network: a conductor that sends nothing, and everything around it noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, talks: bool = False) -> None:
        self.log: list[Any] = []
        self.conductors: list[Any] = []
        play = self

        class Conducting:
            sent, held, waits, stopped, log = 7, 3, 4, False, "turns"

            def __init__(self, loop: Any, load: Load, make: Any, taken: Any) -> None:
                self.load, self.make, self.taken = load, make, taken
                play.conductors.append(self)

            def planned_start(self, moment_ns: int | None = None) -> int:
                self.start_ns = 500 if moment_ns is None else moment_ns
                play.log.append(("start", moment_ns))
                return self.start_ns

            def done(self, exchange: Exchange) -> None:
                raise AssertionError

            def stop(self) -> None:
                self.stopped = True

            async def run(self, client: Any) -> None:
                play.log.append("run")
                if play.interrupted:
                    self.stop()

        class Client:
            connections, retries = 5, 6

            def __init__(self, loop: Any, target: Any, **settings: Any) -> None:
                play.log.append((target, sorted(settings)))
                play.settings = settings

            def close(self) -> None:
                play.log.append("closed")

        self.interrupted = False
        self.settings: dict[str, Any] = {}
        for name in ("Conductor", "TalkConductor"):
            kind = type(name, (Conducting,), {})
            monkeypatch.setattr(f"tonnage.bench.measure.{name}", kind)
        monkeypatch.setattr("tonnage.bench.measure.Client", Client)

    def begin(self, conductor: Any, client: Any) -> None:
        self.log.append(("begins", conductor.start_ns, client.connections))

    def seen(self, exchange: Exchange, times: Any) -> None:
        self.log.append(("seen", exchange.number, times.tokens))

    def end(self) -> None:
        self.log.append("ends")


class NoWriter:
    """A writer that keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def add(self, batch: Any) -> None:
        self.rows += batch.rows.tolist()

    def add_gaps(self, counts: Any) -> None:
        return


SETUP = Setup(
    target=Target(host="h", port=1),
    endpoint=find_endpoint("completions", model="m"),
    prompts=prompts(seed=0, tokenizer=None),
    head=b"",
)
SENT = Load(isl=np.array([10, 20, 30]), osl=np.array([1, 2, 3]), concurrency=2)


def test_a_run_is_told_to_those_who_look_on_and_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    play, writer = Playing(monkeypatch), NoWriter()
    before = sys.getswitchinterval()
    observed = measure.measure(SETUP, SENT, writer, watchers=[play])  # type: ignore[arg-type]
    assert sys.getswitchinterval() == before
    settings = ["done", "fresh_reply", "reuse", "timeout_s", "tls"]
    assert play.log == [
        (SETUP.target, settings),
        ("start", None),
        ("begins", 500, 5),
        "run",
        "closed",
        "ends",
    ]
    [conductor] = play.conductors
    assert play.settings == {
        "done": conductor.done,
        "fresh_reply": SETUP.reply,
        "timeout_s": 600.0,
        "tls": None,
        "reuse": True,
    }
    assert (conductor.load, conductor.make) == (SENT, SETUP.exchange)
    assert (observed.load, observed.endpoint, observed.turns) == (SENT, SETUP.endpoint, None)
    assert (observed.sent, observed.held, observed.waits) == (7, 3, 4)
    assert (observed.connections, observed.retries, observed.interrupted) == (5, 6, False)
    assert (observed.start_ns, observed.tally, len(observed.ends_ns)) == (500, Tally(), 0)
    assert 0 <= observed.seconds < 5
    assert 0 <= observed.cpu_s < 5
    assert 0 <= observed.cpu_share < 2
    assert len(observed.begun_lateness_ns) == 0
    # the moment of the start on the wall clock
    since_ns = (time.time_ns() - observed.started_unix_ns) - (time.monotonic_ns() - 500)
    assert abs(since_ns) < 1e9
    assert writer.rows == []


def test_a_worker_begins_at_the_common_moment_and_may_be_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Playing(monkeypatch)
    play.interrupted = True
    moments = iter([77])
    observed = measure.measure(SETUP, SENT, NoWriter(), gate=lambda: next(moments))  # type: ignore[arg-type]
    assert ("start", 77) in play.log
    assert (observed.start_ns, observed.interrupted) == (77, True)


def test_conversations_have_a_conductor_and_a_log_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Playing(monkeypatch)
    talks = Conversations(
        starts=np.array([0, 3]), isl=SENT.isl, osl=SENT.osl, pause_ns=np.zeros(3, np.int64)
    )
    monkeypatch.setattr("tonnage.bench.measure.isinstance", lambda one, kind: True, raising=False)
    observed = measure.measure(SETUP, replace(SENT, conversations=talks), NoWriter())  # type: ignore[arg-type]
    [conductor] = play.conductors
    assert (type(conductor).__name__, conductor.make) == ("TalkConductor", SETUP.turn)
    assert observed.turns == "turns"


def test_a_warm_up_comes_before_the_run_and_ends_it_where_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for interrupted, requests in ((False, 3), (True, 0)):
        for due in (None, np.array([5, 6, 7])):
            play = Playing(monkeypatch)
            play.interrupted = interrupted
            load = replace(SENT, due_ns=due)
            setup = replace(SETUP, warmup=2)
            observed = measure.measure(setup, load, NoWriter())  # type: ignore[arg-type]
            first, run = play.conductors
            assert first.load.isl.tolist() == [10, 20]
            assert [first.make(k, 9, 4).number for k in range(3)] == [-1, -2, -3]
            assert first.make(0, 9, 4).osl == 4
            assert first.taken(None) is None
            assert [part for part in play.log if part in ("run", "closed")] == [
                *("run", "closed", "run", "closed"),
            ]
            sent = observed.load
            assert run.load is sent
            assert [len(column) for column in (sent.isl, sent.osl)] == [requests] * 2
            assert (sent.due_ns is None) == (due is None)
            assert due is None or sent.due_ns.tolist() == due[:requests].tolist()  # type: ignore[union-attr]


def test_what_comes_back_is_recorded_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer counts where the server does not."""
    counter = SimpleNamespace(count=len)
    play, writer = Playing(monkeypatch), NoWriter()

    async def run(self: Any, client: Any) -> None:
        reply = Reply(SETUP.endpoint, keep_text=True)
        reply.times, reply.sizes, reply.texts = [600, 700], [3, 2], ["abc", "de"]
        reply.last_ns = 700
        exchange = Exchange(number=0, isl=10, osl=1, data=b"", reply=reply)
        exchange.due_ns = exchange.sent_ns = exchange.begun_ns = 510
        self.taken(exchange)

    monkeypatch.setattr(measure.Conductor, "run", run)
    setup = replace(SETUP, prompts=replace(SETUP.prompts, counter=counter))  # type: ignore[arg-type]
    observed = measure.measure(setup, SENT, writer, watchers=[play])  # type: ignore[arg-type]
    assert ("seen", 0, 5) in play.log
    assert writer.rows == [[10, 10, 100, 200, 10, 5, 0, 0, 0, 0]]
    assert list(observed.ends_ns) == [200]
    assert dict(observed.tally.sources) == {"tokenizer": 1}


def test_a_run_goes_to_a_thread_where_a_loop_is_running() -> None:
    async def who() -> Any:
        return threading.current_thread()

    assert measure._run(who()) is threading.main_thread()  # type: ignore[arg-type]

    async def within() -> Any:
        return measure._run(who())  # type: ignore[arg-type]

    assert asyncio.run(within()) is not threading.main_thread()


def test_figures_of_a_run_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four requests: TTFT of 1 to 4 s and three gaps of 10 to 40 ms each; a single token has no gap."""
    monkeypatch.setattr(
        "tonnage.bench.measure.time", SimpleNamespace(monotonic_ns=lambda: 30 * 10**9)
    )
    live = measure.Live()
    conductor: Any = SimpleNamespace(
        start_ns=10 * 10**9, load=SimpleNamespace(seconds=60.0), sent=9, over=5
    )
    live.begin(conductor, None)  # type: ignore[arg-type]
    for number in range(1, 5):
        first = number * 10**9
        times = [1_000 + first + gap * number * 10**7 for gap in range(4)]
        tokens = TokenTimes(times_ns=times, per_event=None, tokens=4, source="server")
        live.seen(SimpleNamespace(outcome="", due_ns=1_000), tokens)  # type: ignore[arg-type]
    single = TokenTimes(times_ns=[10**10], per_event=None, tokens=1, source="server")
    live.seen(SimpleNamespace(outcome="", due_ns=10**10 - 5), single)  # type: ignore[arg-type]
    live.end()
    assert live.reading() == measure.Reading(
        sent=9,
        in_flight=4,
        failed=0,
        requests_per_second=pytest.approx(4 / (9.0 - 0.03 - 1e-6)),
        ttft_s=(2.0, 3.0),
        tpot_s=(0.02, 0.03),
        left_s=40.0,
    )
    assert live._ends.maxlen == live._ttft.maxlen == live._tpot.maxlen == 1_000
