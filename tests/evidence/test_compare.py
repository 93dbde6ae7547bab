from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.step_times import deployment, written
from tonnage import simulate
from tonnage.api import deployment_of
from tonnage.evidence.compare import compare
from tonnage.evidence.predict import MeasuredTable, measured_table, predict, read_point
from tonnage.evidence.replay import replay
from tonnage.evidence.score import score
from tonnage.perf.measured_steps import checked_source
from tonnage.perf.terms import step_model
from tonnage.results.requests import Requests
from tonnage.sizing.loads.confidence import slower

CLOSED = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "precision": "fp8", "engine": "vllm", "tp": 1, "isl": 400, "osl": 40}


def rows(**other: Any) -> list[dict[str, Any]]:
    return [CLOSED | {"concurrency": n, "requests": 40, "ttft_ms": 40.0, "itl_ms": 6.0, "line": n} | other for n in (1, 4, 16)]


def test_a_table_of_our_own_steps_agrees_with_us(tmp_path: Path) -> None:
    source = checked_source(written(step_model(deployment()).coefficients, tmp_path / "ours.csv"))
    found = compare(rows(), [None, source])
    assert list(found.reports) == ["fitted", str(tmp_path / "ours.csv")]
    assert found.common == 3
    (apart,) = found.disagreement.values()
    assert 0 < apart["itl_ms"] < 1
    assert apart["ttft_ms"] < 2
    assert found.reports["fitted"].to_json() == score(rows()).to_json()
    assert any("steps reduced with an error of" in remark for remark in found.reports[str(tmp_path / "ours.csv")].remarks)


def test_slower_steps_are_as_far_apart_as_they_are_slower(tmp_path: Path) -> None:
    step = step_model(deployment())
    found = compare(rows(), [None, checked_source(written(slower(step, 2.0).coefficients, tmp_path / "slow.csv"))])
    (apart,) = found.disagreement.values()
    assert apart["itl_ms"] == pytest.approx(100, rel=0.05)


def test_rows_that_one_of_them_cannot_price_count_for_none(tmp_path: Path) -> None:
    file = written(step_model(deployment()).coefficients, tmp_path / "ours.csv")
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0] + ",tp", *(f"{line},1" for line in lines[1:]), ""]))
    mixed = [*rows(), rows(tp=2, line=99)[0]]
    found = compare(mixed, [None, checked_source(file)])
    assert [report.predicted for report in found.reports.values()] == [4, 3]
    assert found.common == 3
    assert [errors["itl_ms"].n for errors in found.errors.values()] == [3, 3]
    (skipped,) = found.reports[str(file)].skipped
    assert "has no step times of" in skipped.reason


# What was due at the same moment comes as it was sent when it is replayed; its latencies count from the moment when it was due.


CLIENTS = 9
CHOICE = {"model": "llama-3-8b", "precision": "fp8", "gpu": "h100", "tp": 1, "engine": "vllm"}


def replayed(sent_ns: list[int], due_ns: list[int]) -> Requests:
    """The replay of nine requests."""
    made = simulate(**CHOICE, isl=500, osl=5, request_rate=1000, requests=CLIENTS).requests
    run = replace(made, due_ns=np.array(due_ns), sent_ns=np.array(sent_ns), isl=np.arange(500, 500 + CLIENTS))
    return replay(run, deployment_of(**CHOICE), gpus_per_system=8)


def test_the_first_of_several_clients_does_not_wait_for_the_others() -> None:
    together = replayed([0] * CLIENTS, [0] * CLIENTS)
    sent = [200_000 * place for place in range(CLIENTS)][::-1]
    apart = replayed(sent, [0] * CLIENTS)
    assert apart.due_ns.tolist() == [0] * CLIENTS
    assert apart.isl.tolist() == list(range(500, 500 + CLIENTS))[::-1]
    assert apart.first_token_ns[0] < 0.5 * together.first_token_ns[0]
    assert (np.diff(apart.first_token_ns) >= 0).all()
    assert apart.first_token_ns[1] > 1.5 * apart.first_token_ns[0]


def test_what_was_due_at_moments_of_its_own_comes_then_however_late_it_was_sent() -> None:
    due = [1_000_000 * place for place in range(CLIENTS)]
    on_time, late = replayed(due, due), replayed([at + 50_000_000 for at in due], due)
    assert on_time.due_ns.tolist() == late.due_ns.tolist() == due
    assert on_time.first_token_ns.tolist() == late.first_token_ns.tolist()


# Whatever a benchmark leaves its figures in can be scored, and so can a table that somebody else made.


ROW = {"model": "llama-3-8b", "gpu": "h100-sxm-80gb", "precision": "fp16", "tp": 1, "isl": 200, "osl": 20, "concurrency": 4}


def test_a_table_of_somebody_else_predicts_in_its_own_way() -> None:
    twice = MeasuredTable(
        rows=[ROW | {"e2e_ms": 100.0, "line": 7}],
        point=lambda _: read_point(ROW),
        predict=lambda _, point: {"e2e_ms": 2 * predict(point)["e2e_ms"]},
        remarks=("One line was left out.",),
    )
    assert measured_table(twice) is twice
    report = score(replace(twice, apart={"others": twice}))
    assert report.remarks == report.apart["others"].remarks == ("One line was left out.",)
    assert report.worst[0].line == 7
    assert report.worst[0].predicted["e2e_ms"] == 2 * predict(read_point(ROW))["e2e_ms"]
