"""The client against servers on this machine: every endpoint, every way to fail, and times that
cannot be."""

from __future__ import annotations

import signal
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bench.exact_runs import in_flight
from tests.bench.live import question, run
from tonnage.api.bench import bench
from tonnage.bench import measure
from tonnage.bench.arguments import Fault
from tonnage.bench.exact_server import Schedule, exact_server
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
