"""Loads of recordings, in any form that they were written in."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.changed_files import changed, told
from tests.strategies import examples
from tonnage.api.compare import read_history
from tonnage.api.question.loads import traffic_from
from tonnage.cli.main import run
from tonnage.errors import TonnageError

BEGAN = 1_793_577_600.0


def lite(place: int) -> dict[str, Any]:
    at = BEGAN + 10 * place
    tokens = {"prompt_tokens": 100 + place, "completion_tokens": 20, "total_tokens": 120 + place}
    return {
        "startTime": at,
        "completionStartTime": at + 0.5,
        "endTime": at + 2,
        "status": "success",
        "model": "llama",
        **tokens,
    }


def gateway(place: int) -> dict[str, Any]:
    at = f"2026-11-02T00:{place // 6:02d}:{10 * place % 60:02d}.000+00:00"
    tokens = {"gen_ai.usage.input_tokens": 100 + place, "gen_ai.usage.output_tokens": 20}
    return {"start_time": at, "duration": 2000, "response_code": 200, **tokens}


def response(place: int) -> dict[str, Any]:
    usage = {"prompt_tokens": 100 + place, "completion_tokens": 20}
    return {
        "id": f"x{place}",
        "object": "chat.completion",
        "created": int(BEGAN) + 10 * place,
        "model": "llama",
        "usage": usage,
    }


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "access.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("line", [lite, gateway, response])
def test_each_form_is_read_as_the_same_traffic(line: Any, tmp_path: Path) -> None:
    recording = traffic_from(
        str(written(tmp_path, [line(place) for place in range(60)])), "x"
    ).recording
    assert recording.due_ns == tuple(10**10 * place for place in range(60))
    assert recording.isl == tuple(100 + place for place in range(60))
    assert set(recording.osl) == {20}
    assert recording.began_ns == round(1e9 * BEGAN)


def test_a_day_of_lines_is_a_history_and_failed_ones_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [lite(2), lite(0), {**lite(1), "status": "failure"}, {**lite(3), "completion_tokens": 0}]
    recording = traffic_from(str(written(tmp_path, rows)), "x").recording
    assert (recording.isl, recording.failed) == ((100, 102), 2)
    found = read_history(str(written(tmp_path, [lite(place) for place in range(3 * 360 + 1)])))
    assert found.at(0).isoformat() == "2026-11-02T00:00:00+00:00"
    assert found.requests.tolist() == [360, 360, 361]
    path = written(tmp_path, [lite(place) for place in range(20)])
    assert run(["import", str(path), "--output", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["ttft_ms"]["mean"] == pytest.approx(500)
    assert summary["e2e_ms"]["mean"] == pytest.approx(2_000)
    capsys.readouterr()


TRACES = [
    {
        "timestamp": 500 * place,
        "input_length": 1024,
        "output_length": 100,
        "hash_ids": [0, place + 1],
    }
    for place in range(20)
]


@examples(1.0)
@given(data=st.data())
def test_a_changed_trace_is_read_or_every_bad_line_named(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = copy.deepcopy(TRACES)
    place = data.draw(st.integers(1, 18))
    rows[place] = data.draw(changed(rows[place]))
    path = tmp_path_factory.mktemp("changed", numbered=True) / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    try:
        recording = traffic_from(str(path), "the traffic").recording
    except TonnageError as error:
        told(error, path)
        return
    assert (len(recording), recording.due_ns[-1]) == (20, 9_500_000_000)
    assert set(recording.isl) == {1024}
