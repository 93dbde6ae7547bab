"""Faults are read, meet the requests they are meant for, and slow what they are to slow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.api import serve_simulated
from tonnage.api.bench import bench
from tonnage.api.running.processes import Processes, gateway_before, processes, served_instances
from tonnage.bench.benchmark import Measured
from tonnage.errors import InputError
from tonnage.serve.faults import KINDS, Fault, Faults, clock_changes, parse_fault


def test_faults_are_read() -> None:
    assert parse_fault("slow factor=5 instance=1 from=10s to=30s") == Fault(
        kind="slow", factor=5, instance=1, start_s=10, end_s=30
    )
    assert parse_fault("stall for=2s from=1s") == Fault(kind="stall", start_s=1, end_s=3)
    assert parse_fault("crash from=10s instance=0") == Fault(kind="crash", start_s=10, instance=0)
    assert parse_fault("429 share=0.1") == Fault(kind="429", share=0.1)
    assert parse_fault("cut share=1 after=7 to=500ms") == Fault(
        kind="cut", share=1, after=7, end_s=0.5
    )


@pytest.mark.parametrize(
    "text",
    [
        "slow factor=5 from=10s to=30s",
        "slow factor=1.15",
        "stall for=2s from=1.5s",
        "crash from=10s",
        "500 share=0.25 from=1s",
        "cut share=0.1 after=3",
    ],
)
def test_a_fault_written_again_is_the_same(text: str) -> None:
    assert parse_fault(parse_fault(text).words()) == parse_fault(text)


@pytest.mark.parametrize(
    "text",
    ["", "slow", "slow factor=0", "slow factor=x", "slow factor=nan", "slow factor=2 share=1", "stall", "crash", "429 share=2",
     "cut share=0.1 after=1.5",
     "slow factor=2 from=3s to=2s", "slow factor=2 factor=3", "slow factor=2 instance=-1", "503 share=1", "slow factor=2 from=3"],
)  # fmt: skip
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_fault(text)
    assert "\n" not in str(error.value)


@given(st.text(max_size=30) | st.tuples(st.sampled_from(KINDS), st.text(max_size=20)).map(" ".join))
def test_any_text_is_a_fault_or_refused(text: str) -> None:
    try:
        fault = parse_fault(text)
    except InputError:
        return
    assert fault.kind in KINDS


def test_the_pace_of_an_instance() -> None:
    faults = [
        parse_fault(text)
        for text in (
            "slow factor=2 from=1s to=4s",
            "slow factor=3 instance=1 from=2s",
            "stall for=1s from=3s",
            "429 share=1",
        )
    ]
    assert clock_changes(faults, 0) == ((0, 1), (1, 2), (3, math.inf), (4, 1))
    assert clock_changes(faults, 1) == ((0, 1), (1, 2), (2, 6), (3, math.inf), (4, 3))
    assert clock_changes([], 0) == ((0, 1),)


def test_the_share_of_the_requests_that_a_fault_meets() -> None:
    faults = [parse_fault("429 share=0.1 from=10s"), parse_fault("cut share=0.3")]
    begun: list[str] = []
    now = [100.0]

    def drawn(after_s: float, requests: int) -> list[Fault | None]:
        made = Faults(faults, lambda timed: begun.append("begun"), seed=3, now_s=lambda: now[0])
        now[0] = 100.0
        first = made.next()
        now[0] += after_s
        return [first, *(made.next() for _ in range(requests - 1))]

    found = drawn(20.0, 20_000)
    refused, cut = (
        sum(one is not None and one.kind == kind for one in found) / len(found)
        for kind in ("429", "cut")
    )
    assert abs(refused - 0.1) < 4 * math.sqrt(0.1 * 0.9 / len(found))
    assert abs(cut - 0.9 * 0.3) < 4 * math.sqrt(0.27 * 0.73 / len(found))
    assert drawn(20.0, 200) == found[:200]
    assert "429" not in {one.kind for one in drawn(9.9, 1000) if one is not None}
    assert begun == ["begun"] * 3


# Faults as a client sees them: refused, failed and cut requests, a slow instance, a crash, each
# counted by bench as what it is.

MODEL = "llama-3.1-8b"


@contextmanager
def fleet(logs: Path, own: list[list[str]]) -> Iterator[Processes]:
    """One process for each list of arguments."""
    instances = served_instances(
        ["--engine", "simulated", "--model", MODEL, "--speed", "4"], len(own), own
    )
    gateway = gateway_before(instances, policy="round-robin")
    with processes(
        instances,
        gateway,
        logs,
        ready_s=60,
        grace_s=3,
        announce=lambda line: None,
        on_ready=lambda ready, of: None,
    ) as up:
        yield up


def measured(url: str, **more: Any) -> Measured:
    asked = {
        "isl": 200,
        "osl": 20,
        "endpoint_type": "completions",
        "metrics_url": ["none"],
        "max_error_rate": 1.0,
    }
    return bench(url=url, model=MODEL, selftest=False, **{**asked, **more})[0]


@pytest.mark.live
def test_each_fault_is_seen_as_what_it_is(tmp_path: Path) -> None:
    own = [
        [
            "--fault",
            "429 share=0.2",
            "--fault",
            "500 share=0.2",
            "--fault",
            "cut share=0.3 after=5",
            "--seed",
            "2",
        ]
    ]
    with fleet(tmp_path, own) as up:
        url = up.supervisor.children[0].program.url
        direct = measured(url, concurrency=4, request_count=120)
        kinds = Counter(direct.summary_json["errors_by_kind"])
    assert 10 <= kinds["HTTP 429"] <= 40
    assert 5 <= kinds["HTTP 500"] <= 35
    assert 5 <= kinds["cut off"] <= 45
    assert direct.summary.counted + sum(kinds.values()) == 120


@pytest.mark.engines
def test_a_slow_instance_is_slow(tmp_path: Path) -> None:
    with fleet(tmp_path, [[], ["--fault", "slow factor=5"]]) as up:
        # of few tokens, the first of which is late on a busy machine, the fast one's TPOT would be
        # too short
        fast, slow = (
            measured(child.program.url, concurrency=2, request_count=8, osl=300)
            for child in up.supervisor.children
        )
    ratio = slow.summary.tpot_ms.mean / fast.summary.tpot_ms.mean
    assert 4 < ratio < 5.2


@pytest.mark.engines
def test_a_crash_ends_the_process_once(tmp_path: Path) -> None:
    with fleet(tmp_path, [[], ["--fault", "crash from=2s"]]) as up:
        child = up.supervisor.children[1]
        run = measured(up.url, request_rate=20, benchmark_duration="6s", osl=200)
        assert child.starts == 2
    cut = run.summary_json["errors"]
    # the streams that it had begun; the rest goes to the other instance, and to it again when it is
    # back
    assert 0 < cut < 20
    assert run.summary.counted + cut == run.observed.sent


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("slow factor=2 instance=2", "no instance 2; they count from 0 to 1"),
        ("crash from=1s", "a crash ends a process"),
        ("slow", "factor="),
    ],
)
def test_faults_that_cannot_be_are_refused(fault: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        serve_simulated(model=MODEL, instances=2, fault=[fault])
