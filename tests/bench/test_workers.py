"""A load sent by several processes with one clock and one record."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from tests.bench.live import question
from tests.bench.records import SEEN
from tonnage.api.bench import prepare_bench, run_bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.recorder import Tally
from tonnage.bench.selftest import server_log
from tonnage.bench.workers import _add, _together
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
