"""The client measured against the exact server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from array import array
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.answering import answering
from tests.bench.live import question, run
from tests.bench.records import MS, SEEN, record
from tonnage.bench import measure
from tonnage.bench.connection import parse_url, request_head
from tonnage.bench.endpoints import find_endpoint
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.receiver import HELD_UP_NS
from tonnage.bench.selftest import _compared, self_test, server_log
from tonnage.spec.workload import ClosedLoop


def test_first_tokens_are_stamped_when_the_server_wrote_them(tmp_path: Path) -> None:
    """Never before, and later by no more than the client's own loop was held up: a busy machine
    delays a run, not its stamps."""
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.005), seconds=60) as url:
        found = run(
            url, tmp_path / "run", question(ClosedLoop(concurrency=16), osl="20", requests=96)
        )
        number, received, first, last, tokens = server_log(url).T
    ours, start = found.requests, found.observed.start_ns
    assert sorted(number) == list(range(96))
    assert set(tokens) == {20}
    assert (received >= ours.sent_ns[number] + start).all()
    # by which two readings of the clocks may differ
    assert (ours.first_token_ns[number] + start >= first - HELD_UP_NS).all()
    assert (ours.last_token_ns[number] + start >= last - HELD_UP_NS).all()
    assert int(ours.gaps.sum()) == 96 * 19
    assert np.median(ours.first_token_ns[number] + start - first) <= 5e6 + max(
        found.observed.lateness_ns
    )


def test_nothing_is_measured_after_a_self_test_that_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = measure.measure
    monkeypatch.setattr(
        "tonnage.bench.selftest.measure", lambda *asked: replace(whole(*asked), interrupted=True)
    )
    with pytest.raises(KeyboardInterrupt):
        self_test(streams=2, requests=2)


@pytest.mark.live
def test_the_server_of_a_self_test_ends_with_a_client_that_is_killed() -> None:
    program = (
        "import time\nfrom tonnage.bench.exact_server import Schedule, exact_server\n"
        "with exact_server(Schedule(ttft_s=0.0, itl_s=0.001)) as url:\n"
        "    print(url, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as (
        client
    ):
        assert client.stdout is not None
        target = parse_url(client.stdout.readline().strip())
        socket.create_connection((target.host, target.port), timeout=5).close()
        client.kill()
    end, ended = time.monotonic() + 30, False
    while not ended and time.monotonic() < end:
        try:
            socket.create_connection((target.host, target.port), timeout=5).close()
        except ConnectionRefusedError:
            ended = True
    assert ended


def test_the_client_next_to_the_server_s_own_stamps_by_hand() -> None:
    """A hundred requests whose first stamps are 0 to 99 ms late and last ones 2 ms; the log is in
    another order, and has a request that nobody sent."""
    count = 100
    due = np.arange(count) * 1_000 * MS
    made = record(np.full(count, 100.0), due=due)
    requests = replace(
        made, first_token_ns=due + (50 + np.arange(count)) * MS, last_token_ns=due + 182 * MS
    )
    log = np.column_stack(
        [np.arange(count), due + 5 * MS + 7, due + 50 * MS + 7, due + 180 * MS + 7, due * 0 + 5]
    )
    log = np.vstack([log[::-1], [[-1, 1, 2, 3, 4]]])
    observed = replace(
        SEEN, start_ns=7, cpu_s=0.25, lateness_ns=array("q", [MS, 3 * MS]), load=SEEN.load
    )
    found = _compared(8, requests, observed, log)
    assert (
        asdict(found)
        == found.to_json()
        == {
            "streams": 8,
            "requests": 100,
            "tokens": 500,
            "ttft_ms": pytest.approx(50 + 49.5),
            "server_ttft_ms": pytest.approx(45.0),
            "bias_ms": pytest.approx(49.5),
            "bias_p99_ms": pytest.approx(98.01),
            "last_bias_ms": pytest.approx(2.0, rel=1e-9),
            "cpu_us_per_token": pytest.approx(500.0),
            "ceiling_tokens_per_second": pytest.approx(1_700.0),
            "lateness_mean_ms": pytest.approx(2.0),
        }
    )
    assert (
        _compared(8, requests, replace(observed, lateness_ns=array("q")), log).lateness_mean_ms == 0
    )
    failed = replace(requests, status=np.full(count, 3))
    assert _compared(8, failed, observed, log).ttft_ms == 0.0


@pytest.mark.parametrize(
    ("asked", "streams", "count"), [({}, 64, 192), ({"streams": 5, "requests": 7}, 5, 7)]
)
def test_a_self_test_sends_this_load_to_a_server_of_its_own(
    asked: dict[str, int], streams: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []

    def measuring(setup: Any, load: Any, writer: Any) -> Any:
        log.append((setup, load))
        return SEEN

    url = "http://127.0.0.1:7"
    for name, value in {
        "exact_server": lambda schedule: log.append(schedule) or nullcontext(url),
        "measure": measuring,
        "server_log": lambda url: f"log of {url}",
        "_compared": lambda *words: words,
    }.items():
        monkeypatch.setattr(f"tonnage.bench.selftest.{name}", value)
    found: Any = self_test(**asked)
    assert (found[0], found[2:]) == (streams, (SEEN, f"log of {url}"))
    assert len(found[1]) == 0
    schedule, (setup, load) = log
    assert schedule == Schedule()
    assert (setup.target, setup.endpoint) == (
        parse_url(url),
        find_endpoint("chat", model="exact"),
    )
    assert setup.head == request_head(parse_url(url), "/v1/chat/completions")
    assert (setup.prompts.seed, setup.prompts.exact) == (0, False)
    assert (len(load), load.concurrency, load.due_ns) == (count, streams, None)
    assert (set(load.isl.tolist()), set(load.osl.tolist())) == ({200}, {64})


def test_the_log_of_a_server_is_a_table_of_five_columns() -> None:
    rows: list[list[int]] = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]

    def reply(path: str, headers: Any, data: bytes) -> tuple[int, bytes]:
        assert path == "/log"
        return 200, json.dumps({"requests": rows}).encode()

    with answering(reply) as url:
        assert server_log(url).tolist() == rows
        rows.clear()
        assert server_log(url).shape == (0, 5)
