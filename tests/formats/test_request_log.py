"""Access logs of single requests: LiteLLM's, a gateway's, and responses of the OpenAI API, read as traffic and as a history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.compare import read_history
from tonnage.api.question.loads import traffic_from
from tonnage.cli.main import run
from tonnage.errors import InputError

BEGAN = 1_793_577_600.0


def lite(place: int) -> dict[str, Any]:
    at = BEGAN + 10 * place
    tokens = {"prompt_tokens": 100 + place, "completion_tokens": 20, "total_tokens": 120 + place}
    return {"startTime": at, "completionStartTime": at + 0.5, "endTime": at + 2, "status": "success", "model": "llama", **tokens}


def gateway(place: int) -> dict[str, Any]:
    at = f"2026-11-02T00:{place // 6:02d}:{10 * place % 60:02d}.000+00:00"
    tokens = {"gen_ai.usage.input_tokens": 100 + place, "gen_ai.usage.output_tokens": 20}
    return {"start_time": at, "duration": 2000, "response_code": 200, **tokens}


def response(place: int) -> dict[str, Any]:
    usage = {"prompt_tokens": 100 + place, "completion_tokens": 20}
    return {"id": f"x{place}", "object": "chat.completion", "created": int(BEGAN) + 10 * place, "model": "llama", "usage": usage}


def written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "access.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("line", [lite, gateway, response])
def test_each_form_is_read_as_the_same_traffic(line: Any, tmp_path: Path) -> None:
    recording = traffic_from(str(written(tmp_path, [line(place) for place in range(60)])), "x").recording
    assert recording.due_ns == tuple(10**10 * place for place in range(60))
    assert recording.isl == tuple(100 + place for place in range(60))
    assert set(recording.osl) == {20}
    assert recording.began_ns == round(1e9 * BEGAN)


def test_spans_of_opentelemetry_are_a_history_too(tmp_path: Path) -> None:
    def span(place: int) -> dict[str, Any]:
        at = round(1e9 * (BEGAN + 10 * place))
        counts = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20}
        attributes = [{"key": key, "value": {"intValue": str(value)}} for key, value in counts.items()]
        names = {"traceId": f"{place:032x}", "spanId": f"{place:016x}", "name": "chat"}
        return {**names, "startTimeUnixNano": str(at), "endTimeUnixNano": str(at + 10**9), "attributes": attributes}

    path = tmp_path / "spans.json"
    spans = [span(place) for place in range(2 * 360 + 1)]
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    found = read_history(str(path))
    assert found.at(0).isoformat() == "2026-11-02T00:00:00+00:00"
    assert found.requests.tolist() == [360, 361]
    assert found.mean("isl") == 100


def test_failed_lines_are_left_out_and_counted_and_the_order_is_that_of_time(tmp_path: Path) -> None:
    rows = [lite(2), lite(0), {**lite(1), "status": "failure"}, {**lite(3), "completion_tokens": 0}]
    recording = traffic_from(str(written(tmp_path, rows)), "x").recording
    assert (recording.isl, recording.failed) == ((100, 102), 2)


def test_a_day_of_them_is_a_history(tmp_path: Path) -> None:
    found = read_history(str(written(tmp_path, [lite(place) for place in range(3 * 360 + 1)])))
    assert found.at(0).isoformat() == "2026-11-02T00:00:00+00:00"
    assert found.requests.tolist() == [360, 360, 361]


def test_latencies_come_with_the_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, [lite(place) for place in range(20)])
    assert run(["import", str(path), "--output", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["ttft_ms"]["mean"] == pytest.approx(500)
    assert summary["e2e_ms"]["mean"] == pytest.approx(2_000)
    capsys.readouterr()


def test_a_line_without_a_time_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2: has no time"):
        traffic_from(str(written(tmp_path, [lite(0), {"prompt_tokens": 1}])), "x")
