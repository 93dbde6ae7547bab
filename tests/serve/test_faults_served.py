"""Faults as a client sees them: refused, failed and cut requests, a slow instance, a crash, each counted by bench as what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tonnage.api import serve_simulated
from tonnage.api.bench import bench
from tonnage.api.running.processes import Processes, gateway_before, processes, served_instances
from tonnage.bench.benchmark import Measured
from tonnage.errors import InputError

MODEL = "llama-3.1-8b"


@contextmanager
def fleet(logs: Path, own: list[list[str]]) -> Iterator[Processes]:
    """One process for each list of arguments."""
    instances = served_instances(["--engine", "simulated", "--model", MODEL, "--speed", "4"], len(own), own)
    gateway = gateway_before(instances, policy="round-robin")
    with processes(instances, gateway, logs, ready_s=60, grace_s=3, told=lambda line: None, seen=lambda ready, of: None) as up:
        yield up


def measured(url: str, **more: Any) -> Measured:
    asked = {"isl": 200, "osl": 20, "endpoint_type": "completions", "metrics_url": ["none"], "max_error_rate": 1.0}
    return bench(url=url, model=MODEL, selftest=False, **{**asked, **more})[0]


def test_each_fault_is_seen_as_what_it_is(tmp_path: Path) -> None:
    own = [["--fault", "429 share=0.2", "--fault", "500 share=0.2", "--fault", "cut share=0.3 after=5", "--seed", "2"]]
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
        # of few tokens, the first of which is late on a busy machine, the fast one's TPOT would be too short
        fast, slow = (measured(child.program.url, concurrency=2, request_count=8, osl=300) for child in up.supervisor.children)
    ratio = slow.summary.tpot_ms.mean / fast.summary.tpot_ms.mean
    assert 4 < ratio < 5.2


@pytest.mark.engines
def test_a_crash_ends_the_process_once(tmp_path: Path) -> None:
    with fleet(tmp_path, [[], ["--fault", "crash from=2s"]]) as up:
        child = up.supervisor.children[1]
        run = measured(up.url, request_rate=20, benchmark_duration="6s", osl=200)
        assert child.starts == 2
    cut = run.summary_json["errors"]
    assert 0 < cut < 20  # the streams that it had begun; the rest goes to the other instance, and to it again when it is back
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
