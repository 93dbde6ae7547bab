"""Access logs: lines of gateways and tracers as they occur, and what becomes of lines that are
odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.compare import describe_workload, import_run
from tonnage.errors import InputError

FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"
BEGAN = 1_762_000_000.0

pytestmark = pytest.mark.filterwarnings("error")


def field_file(case: str, name: str) -> Path:
    """A file of a case from the field; the test is skipped where they are absent."""
    path = FIELD / case / name
    if not path.exists():
        pytest.skip("the cases from the field are not here")
    return path


def lines(count: int = 60, **fields: Any) -> list[dict[str, Any]]:
    """Two requests a second of 1,000 and 101 tokens, each with 1.1 s; ``fields`` are values, or
    functions of the begin in seconds."""
    made = []
    for place in range(count):
        began = BEGAN + place * 0.5
        made.append(
            {name: value(began) if callable(value) else value for name, value in fields.items()}
        )
    return made


def written(folder: Path, rows: list[dict[str, Any]], name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def imported(path: Path, folder: Path) -> tuple[Any, dict[str, Any]]:
    ((_, summary, facts),) = import_run(path, folder / "run")
    return summary, facts


USAGE = {"prompt_tokens": 1000, "completion_tokens": 101}


@pytest.mark.parametrize(
    ("place", "ttft", "tpot", "e2e"),
    [
        ("070/log_litellm_ttft_is_end.jsonl", None, None, 1100),
        ("072/log_litellm_mixed.jsonl", 100, 10, 1100),
        ("074/log_nginx_var.jsonl", None, None, 1047.5),
        ("079/log_envoy.jsonl", None, None, 1100),
        ("081/log_kong.jsonl", 100, 10, 1100),
        ("088/log_array.json", 100, 10, 1100),
    ],
)
def test_logs_from_the_field(
    tmp_path: Path, place: str, ttft: float | None, tpot: float | None, e2e: float
) -> None:
    path = field_file(*place.split("/"))
    summary, _ = imported(path, tmp_path)
    assert summary.counted == 60
    assert summary.ttft_ms.mean == (None if ttft is None else pytest.approx(ttft, rel=1e-3))
    assert summary.tpot_ms.mean == (None if tpot is None else pytest.approx(tpot, rel=1e-3))
    assert summary.e2e_ms.mean == pytest.approx(e2e, rel=1e-3)
    assert summary.output_tokens_per_second == pytest.approx(101 * summary.requests_per_second)
    recording = describe_workload(path).traffic.recording
    assert len(recording) == 60
    assert recording.mean_rps == pytest.approx(2.0, rel=0.01)


def test_ends_that_are_no_completions(tmp_path: Path) -> None:
    summary, facts = imported(field_file("084", "log_words.jsonl"), tmp_path)
    assert summary.counted == 20
    assert facts["failed"] == {"timed out": 20, "cancelled": 20}


def test_a_log_without_ends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no completed request has an end or a duration"):
        imported(field_file("077", "log_openai_created.jsonl"), tmp_path)
    assert not (tmp_path / "run").exists()


def iso(began: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(began, UTC).isoformat()


def clf(began: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(began, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")


FORMS: dict[str, dict[str, Any]] = {
    "LiteLLM's callback": {
        "standard_logging_object": lambda t: {
            "startTime": t,
            "endTime": t + 1.1,
            "completionStartTime": t + 0.1,
            "status": "success",
            **USAGE,
        }
    },
    "Langfuse, camelCase": {
        "startTime": iso,
        "endTime": lambda t: iso(t + 1.1),
        "completionStartTime": lambda t: iso(t + 0.1),
        "usageDetails": {"input": 1000, "output": 101},
        "level": "DEFAULT",
    },
    "Langfuse, seconds": {
        "start_time": iso,
        "latency": 1.1,
        "timeToFirstToken": 0.1,
        "usage": {"promptTokens": 1000, "completionTokens": 101},
    },
    "Cloudflare": {
        "created_at": iso,
        "duration": 1100,
        "timeToFirstToken": 100,
        "tokens_in": 1000,
        "tokens_out": 101,
        "success": True,
    },
    "nanoseconds": {
        "startTimeUnixNano": lambda t: str(round(t * 1e9)),
        "endTimeUnixNano": lambda t: str(round((t + 1.1) * 1e9)),
        "ttft_ms": 100,
        "attributes": {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 101},
    },
    "Go durations": {"start_time": iso, "duration": "1.1s", "ttft": "100ms", **USAGE},
    "Traefik's nanoseconds": {
        "StartUTC": iso,
        "Duration": 1_100_000_000,
        "ttft": 100_000_000,
        **USAGE,
    },
    "named units": {
        "time": lambda t: round(t * 1e3),
        "latency_s": "1.1",
        "ttft_ms": "100",
        **USAGE,
    },
    "Helicone": {
        "request_created_at": iso,
        "response_created_at": lambda t: iso(t + 1.1),
        "time_to_first_token": 100,
        "delay_ms": 1100,
        "response_status": 200,
        **USAGE,
    },
    "OpenTelemetry's spans": {
        "startTimeUnixNano": lambda t: str(round(t * 1e9)),
        "endTimeUnixNano": lambda t: str(round((t + 1.1) * 1e9)),
        "ttft_ms": 100,
        "attributes": [
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1000"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "101"}},
        ],
    },
    "Portkey": {
        "created_at": iso,
        "response_time": 1100,
        "time_to_first_token": 100,
        "req_units": 1000,
        "res_units": 101,
    },
    "Ollama": {
        "created_at": iso,
        "total_duration": 1_100_000_000,
        "ttft_ms": 100,
        "prompt_eval_count": 1000,
        "eval_count": 101,
    },
    "nginx": {"msec": lambda t: f"{t + 1.1:.3f}", "request_time": "1.100", "ttft": 0.1, **USAGE},
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_logs(tmp_path: Path, form: str) -> None:
    summary, facts = imported(written(tmp_path, lines(**FORMS[form])), tmp_path)
    assert summary.counted == 60
    assert not facts["left_out"]
    assert not facts["failed"]
    assert summary.ttft_ms.mean == pytest.approx(100, rel=1e-3)
    assert summary.tpot_ms.mean == pytest.approx(10, rel=1e-3)
    assert summary.e2e_ms.mean == pytest.approx(1100, rel=1e-3)
    assert summary.output_tokens_per_second == pytest.approx(101 * summary.requests_per_second)


def test_nginx_s_local_time_is_the_moment_of_the_end(tmp_path: Path) -> None:
    rows = lines(time_local=lambda t: clf(t + 2), request_time="2.000", status="200", **USAGE)
    path = written(tmp_path, rows)
    recording = describe_workload(path).traffic.recording
    assert recording.began_ns == round(BEGAN * 1e9)
    summary, facts = imported(path, tmp_path)
    assert summary.e2e_ms.mean == 2000
    assert facts["remarks"][0] == "Durations read as seconds."


ODD: dict[str, tuple[dict[str, Any] | str, str]] = {
    "no end": ({"startTime": BEGAN, **USAGE}, "no end"),
    "an end before its start": (
        {"startTime": BEGAN, "endTime": BEGAN - 5, **USAGE},
        "an end not after its start",
    ),
    "a Go duration among numbers": ({"startTime": BEGAN, "endTime": "1.1s", **USAGE}, "no end"),
    "no time": ({"endTime": BEGAN, **USAGE}, "no time"),
    "a health check": (
        {"startTime": BEGAN, "endTime": BEGAN + 0.01, "status": 200},
        "no counts of tokens",
    ),
    "HTTP 429": ({"startTime": BEGAN, "endTime": BEGAN + 0.01, "status": 429}, "HTTP 429"),
    "a timeout": (
        {"startTime": BEGAN, "endTime": BEGAN + 9, "status": "Timed out", **USAGE},
        "timed out",
    ),
    "an error's text": (
        {"startTime": BEGAN, "endTime": BEGAN + 9, "error_str": "boom", **USAGE},
        "boom",
    ),
    "not JSON": ("starting server on port 8000", "no JSON object"),
    "counts of another type": (
        {"startTime": BEGAN, "endTime": BEGAN + 1, "prompt_tokens": [1], "completion_tokens": {}},
        "no counts of tokens",
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_line_is_counted_as_left_out(tmp_path: Path, odd: str) -> None:
    line, reason = ODD[odd]
    rows = lines(
        59,
        startTime=lambda t: t,
        endTime=lambda t: t + 1.1,
        completionStartTime=lambda t: t + 0.1,
        **USAGE,
    )
    path = tmp_path / "log.jsonl"
    texts = [*map(json.dumps, rows)]
    path.write_text(
        "\n".join([*texts[:30], line if isinstance(line, str) else json.dumps(line), *texts[30:]])
    )
    summary, facts = imported(path, tmp_path)
    assert {**facts["left_out"], **facts["failed"]} == {reason: 1}
    assert summary.counted == 59
    assert summary.tpot_ms.mean == pytest.approx(10, rel=1e-3)


def test_a_unit_that_is_not_clear_is_asked_for(tmp_path: Path) -> None:
    rows = lines(time=lambda t: t, duration=75, prompt_tokens=1000, completion_tokens=100)
    with pytest.raises(InputError, match="milliseconds or seconds; name the field duration_ms"):
        imported(written(tmp_path, rows), tmp_path)


def test_rows_under_data_are_lines(tmp_path: Path) -> None:
    rows = lines(
        startTime=lambda t: t,
        endTime=lambda t: t + 1.1,
        completionStartTime=lambda t: t + 0.1,
        **USAGE,
    )
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"data": rows, "meta": {"page": 1}}, indent=1))
    assert imported(path, tmp_path)[0].counted == 60


def test_several_models_are_named(tmp_path: Path) -> None:
    rows = lines(
        startTime=lambda t: t,
        endTime=lambda t: t + 1.1,
        model=lambda t: "small" if t % 1 else "large",
        **USAGE,
    )
    assert (
        "The log holds 2 models: large, small."
        in imported(written(tmp_path, rows), tmp_path)[1]["remarks"]
    )


def test_exports_as_csv_are_logs(tmp_path: Path) -> None:
    """LiteLLM's table of spend, and Langfuse's observations with an object in a cell."""
    header = "request_id,status,prompt_tokens,completion_tokens,startTime,endTime,completionStartTime,model"
    spend = [
        f"{at},success,1000,101,{iso(BEGAN + at)},{iso(BEGAN + at + 1.1)},{iso(BEGAN + at + 0.1)},m"
        for at in range(20)
    ]
    usage = '"{""input"": 1000, ""output"": 101}"'
    traced = [
        f"{iso(BEGAN + at)},{iso(BEGAN + at + 1.1)},{iso(BEGAN + at + 0.1)},{usage}"
        for at in range(20)
    ]
    for place, text in enumerate(
        [[header, *spend], ["startTime,endTime,completionStartTime,usageDetails", *traced]]
    ):
        path = tmp_path / f"{place}.csv"
        path.write_text("\n".join(text))
        folder = tmp_path / str(place)
        folder.mkdir()
        summary, _ = imported(path, folder)
        assert (summary.counted, summary.ttft_ms.mean, summary.e2e_ms.mean) == (
            20,
            pytest.approx(100),
            pytest.approx(1100),
        )
        assert len(describe_workload(path).traffic.recording) == 20


def test_lines_of_no_known_form_are_refused_by_their_keys(tmp_path: Path) -> None:
    path = written(tmp_path, [{"spam": 1, "eggs": 2}] * 3)
    with pytest.raises(
        InputError,
        match=r"no file with single requests \(its keys are spam, eggs\); give one of AIPerf",
    ):
        imported(path, tmp_path)


RELATIVE: dict[str, dict[str, Any]] = {
    "seconds": {"timestamp": lambda t: t - BEGAN, "latency": 1.1, "ttft": 0.1, **USAGE},
    "milliseconds": {
        "timestamp": lambda t: round(1e3 * (t - BEGAN)),
        "latency_ms": 1100,
        "ttft_ms": 100,
        **USAGE,
    },
    "named": {"start_ms": lambda t: 1e3 * (t - BEGAN), "duration_s": 1.1, "ttft_s": 0.1, **USAGE},
    "a monotonic clock": {
        "start": lambda t: t - BEGAN + 17_259.2,
        "end": lambda t: t - BEGAN + 17_260.3,
        "first_token": lambda t: t - BEGAN + 17_259.3,
        "input_tokens": 1000,
        "output_tokens": 101,
    },
    "ends": {
        "start_time": lambda t: t - BEGAN,
        "end_time": lambda t: t - BEGAN + 1.1,
        "first_token_time": lambda t: t - BEGAN + 0.1,
        **USAGE,
    },
    "ends in milliseconds": {
        "start": lambda t: round(1e3 * (t - BEGAN)),
        "end": lambda t: round(1e3 * (t - BEGAN)) + 1_100,
        **USAGE,
    },
}


@pytest.mark.parametrize("kind", RELATIVE)
def test_moments_that_count_from_the_beginning_of_the_log(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, lines(**RELATIVE[kind]))
    summary, facts = imported(path, tmp_path)
    assert (summary.counted, summary.e2e_ms.mean) == (60, pytest.approx(1100))
    if kind != "ends in milliseconds":
        assert (summary.ttft_ms.mean, summary.tpot_ms.mean) == (
            pytest.approx(100),
            pytest.approx(10),
        )
    assert any("Moments read as" in remark for remark in facts["remarks"]) == (kind != "named")
    recording = describe_workload(path).traffic.recording
    assert (len(recording), recording.mean_rps) == (60, pytest.approx(2.0, rel=0.01))


def test_moments_of_an_unknown_unit_are_asked_for(tmp_path: Path) -> None:
    # 0.1 or 100 requests a second
    rows = [{"timestamp": place * 10, "latency": 1.1, **USAGE} for place in range(60)]
    with pytest.raises(
        InputError,
        match=(
            "its moments may be seconds or milliseconds; name the field timestamp_s or timestamp_ms"
        ),
    ):
        imported(written(tmp_path, rows), tmp_path)
    named = [{"timestamp_s": row.pop("timestamp"), **row} for row in rows]
    assert imported(written(tmp_path, named), tmp_path)[0].counted == 60


def test_haproxy_s_moments_and_timers_are_read_from_json(tmp_path: Path) -> None:
    rows = [
        {
            "accept_date": f"06/Feb/2026:12:14:{14 + place // 2}.{place % 2 * 500:03}",
            "Ta": 1100,
            **USAGE,
        }
        for place in range(60)
    ]
    summary, _ = imported(written(tmp_path, rows), tmp_path)
    assert (summary.counted, summary.e2e_ms.mean) == (60, pytest.approx(1100))
    assert summary.requests_per_second == pytest.approx(60 / 30.6, rel=0.01)


TEXTS = {
    "haproxy": (
        "Feb  6 12:14:14 proxy haproxy[14]: 10.0.1.2:3 [06/Feb/2026:12:14:14.655] in a"
        ' 10/0/30/69/1109 200 27 - - - "POST /"'
    ),
    "apache": (
        '10.0.1.2 - - [06/Feb/2026:12:14:14 +0000] "POST /v1/chat/completions HTTP/1.1" 200 2750'
        ' "-" "curl/8"'
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", ["access.log", "access.jsonl", "access.csv"])
def test_a_log_in_text_is_refused_by_its_kind(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    path.write_text(f"{TEXTS[kind]}\n" * 3)
    for read in (lambda: import_run(path, tmp_path / "run"), lambda: describe_workload(path)):
        with pytest.raises(
            InputError,
            match=(
                "access log in text, which has no counts of tokens; let the proxy write a JSON"
                " object"
            ),
        ):
            read()
    assert not (tmp_path / "run").exists()


def test_durations_in_two_units_are_not_averaged(tmp_path: Path) -> None:
    rows = lines(timestamp=lambda t: t, latency=lambda t: 1.1 if int(2 * t) % 2 else 1100, **USAGE)
    summary, facts = imported(written(tmp_path, rows), tmp_path)
    assert (summary.counted, summary.e2e_ms.mean) == (30, pytest.approx(1100))
    assert facts["failed"] == {"a duration too short for its tokens": 30}


def test_counts_with_commas_between_thousands_are_numbers(tmp_path: Path) -> None:
    rows = lines(ts=str, duration_ms="1,100", prompt_tokens="1,000", completion_tokens="101")
    summary, _ = imported(written(tmp_path, rows), tmp_path)
    assert (summary.counted, summary.e2e_ms.mean) == (60, pytest.approx(1100))
    assert set(describe_workload(tmp_path / "log.jsonl").traffic.recording.isl) == {1000}
