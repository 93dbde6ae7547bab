from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage import api
from tonnage.api.compare import read_history
from tonnage.api.question.loads import traffic_from
from tonnage.cli.main import run
from tonnage.errors import InputError, TonnageError
from tonnage.formats.invalid_runs import InvalidRuns, why_invalid
from tonnage.formats.lm_eval import TaskScore, task_scores
from tonnage.formats.measured_files import read_measured

GIVEN: dict[str, str | int] = {
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "isl": 1000,
    "osl": 200,
}

VLLM: dict[str, Any] = {
    "date": "20261121-010203",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 80,
    "request_rate": "inf",
    "max_concurrency": 8,
    "duration": 40.0,
    "completed": 80,
    "total_input_tokens": 80_800,
    "total_output_tokens": 15_920,
    "request_throughput": 2.0,
    "output_throughput": 398.0,
    "mean_ttft_ms": 100.0,
    "median_ttft_ms": 90.0,
    "p99_ttft_ms": 300.0,
    "mean_tpot_ms": 19.0,
    "mean_itl_ms": 18.5,
    "p99_itl_ms": 60.0,
    "mean_e2el_ms": 3900.0,
}


def summary(mean: float) -> dict[str, Any]:
    return {
        "successful": {
            "mean": mean,
            "median": mean,
            "percentiles": {"p001": 0.0, "p50": mean, "p95": 1.5 * mean},
        },
        "errored": None,
    }


def guidellm(strategy: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        "requests_per_second": summary(2.0),
        "request_latency": summary(3.9),
        "prompt_token_count": summary(1010.0),
        "output_token_count": summary(199.0),
        "time_to_first_token_ms": summary(100.0),
        "time_per_output_token_ms": summary(19.6),
        "inter_token_latency_ms": summary(19.0),
        "output_tokens_per_second": summary(398.0),
    }
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy, "backend": {"model": "llama-3.1-8b"}},
        "metrics": metrics,
    }


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 2},
    "benchmarks": [
        guidellm({"type_": "synchronous"}),
        guidellm({"type_": "concurrent", "streams": 8}),
        guidellm({"type_": "poisson", "rate": 2.5}),
        guidellm({"type_": "throughput", "max_concurrency": 64}),
    ],
}


def file_of(folder: Path, document: object, name: str = "result.json") -> Path:
    path = folder / name
    path.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
    return path


def test_a_vllm_result_is_read_with_its_own_definitions(tmp_path: Path) -> None:
    (row,) = read_measured(file_of(tmp_path, VLLM), GIVEN)
    assert (row["model"], row["engine"], row["gpu"], row["tp"]) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        "vllm",
        "h100-sxm-80gb",
        1,
    )
    assert (row["concurrency"], row["request_rate"], row["requests"]) == (8, None, 80)
    # 1,010 and 199 measured, within 5 % of what was given
    assert (row["isl"], row["osl"]) == (1000, 200)
    assert (row["ttft_ms"], row["ttft_p50_ms"], row["ttft_p99_ms"], row["ttft_p95_ms"]) == (
        100.0,
        90.0,
        300.0,
        None,
    )
    # itl_ms is scored as the TPOT
    assert (row["tpot_ms"], row["itl_ms"], row["itl_p99_ms"]) == (19.0, 19.0, 60.0)
    assert (row["e2e_ms"], row["requests_s"], row["output_tok_s"]) == (3900.0, 2.0, 398.0)
    detailed = VLLM | {"input_lens": [1010] * 80, "output_lens": [100] * 40 + [300] * 40}
    (row,) = read_measured(file_of(tmp_path, detailed), GIVEN)
    assert row["isl_drawn"] is None
    assert row["osl_drawn"] == "histogram:" + ",".join(["100:1"] * 5 + ["300:1"] * 5)
    given = {name: value for name, value in GIVEN.items() if name not in ("isl", "osl")}
    (row,) = read_measured(file_of(tmp_path, VLLM), {**given, "model": "llama-3-8b"})
    assert (row["model"], row["isl"], row["osl"]) == ("llama-3-8b", 1010, 199)
    with pytest.raises(TonnageError, match="give gpu"):
        read_measured(file_of(tmp_path, VLLM), {"precision": "fp16", "tp": 1})


def test_vllm_loads(tmp_path: Path) -> None:
    def load(**change: Any) -> tuple[Any, Any]:
        (row,) = read_measured(file_of(tmp_path, {**VLLM, **change}), GIVEN)
        return row["concurrency"] or row["in_flight"], row["request_rate"]

    assert load(max_concurrency=None) == (80, None)  # all at once
    assert load(max_concurrency=None, request_rate=2.5) == (None, 2.5)
    assert load(request_rate="Infinity") == (8, None)
    assert load(request_rate=2.5) == (8, 2.5)  # an open loop with a cap
    for change in (
        {"request_rate": "often"},
        {"request_rate": -1, "max_concurrency": None},
        {"completed": 0},
    ):
        with pytest.raises(TonnageError, match=r"result\.json"):
            load(**change)


def test_a_guidellm_report_is_several_points_and_its_tpot_is_the_inter_token_latency(
    tmp_path: Path,
) -> None:
    rows = read_measured(file_of(tmp_path, GUIDELLM), {**GIVEN, "engine": "vllm"})
    assert [(row["concurrency"], row["request_rate"]) for row in rows] == [
        (1, None),
        (8, None),
        (None, 2.5),
        (64, None),
    ]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    row = rows[1]
    assert (row["model"], row["isl"], row["osl"]) == ("llama-3.1-8b", 1000, 200)
    assert (row["ttft_ms"], row["ttft_p95_ms"], row["itl_ms"], row["e2e_ms"]) == (
        100.0,
        150.0,
        19.0,
        3900.0,
    )
    assert (row["requests_s"], row["output_tok_s"]) == (2.0, 398.0)


def test_run_folders_give_what_was_simulated(tmp_path: Path) -> None:
    runs = api.simulate_sweep(
        model="llama-3-8b", isl=200, osl=20, engine="nim-2024", concurrency="1,4", requests=40
    )
    api.write_runs(tmp_path / "sweep", runs, {"seed": 0})
    rows = read_measured(tmp_path / "sweep")
    assert [row["concurrency"] for row in rows] == [1, 4]
    for row, simulated in zip(rows, runs, strict=True):
        assert (row["model"], row["gpu"], row["engine"], row["requests"]) == (
            "llama-3-8b",
            "h100-sxm-80gb",
            "nim-2024",
            40,
        )
        assert (row["isl"], row["osl"]) == (200, 20)
        assert row["ttft_ms"] == pytest.approx(simulated.summary.ttft_ms.mean)
        assert row["itl_ms"] == pytest.approx(simulated.summary.tpot_ms.mean)
        assert row["requests_s"] == pytest.approx(simulated.summary.requests_per_second, rel=1e-6)
    from tonnage.evidence.predict import reported_metrics

    (run,) = api.simulate_sweep(
        model="llama-3-8b", isl=200, osl=50, engine="nim-2024", concurrency=4, window="7s"
    )
    api.write_runs(tmp_path / "run", [run], {"seed": 0})
    (row,) = read_measured(tmp_path / "run")
    assert row["window_s"] == 7.0
    assert row["requests_s"] == pytest.approx(
        reported_metrics(run.requests)["requests_s"], rel=1e-6
    )
    assert row["requests_s"] > run.summary.requests_per_second  # which is over the whole window


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["successful", "mean", "type_", "rate"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(sorted(VLLM)), ANY, max_size=3),
    st.dictionaries(st.sampled_from(["config", "metrics"]), ANY),
)
def test_any_report_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, vllm: dict[str, Any], benchmark: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    for document in (
        {**VLLM, **vllm},
        {"benchmarks": [{**GUIDELLM["benchmarks"][1], **benchmark}]},
    ):
        message, rows = "", []
        try:
            rows = read_measured(file_of(folder, document), GIVEN)
        except TonnageError as error:
            message = str(error)
        assert "\n" not in message
        assert bool(rows) != ("result.json" in message)
        assert all(row["requests_s"] is None or row["requests_s"] > 0 for row in rows)


def test_lines_of_json_are_a_point_each_and_a_foreign_line_is_named(tmp_path: Path) -> None:
    lines = [json.dumps({**VLLM, "max_concurrency": clients}) for clients in (1, 2, 4)]
    rows = read_measured(file_of(tmp_path, "\n".join([*lines, ""]), "all.jsonl"), GIVEN)
    assert [(row["concurrency"], row["line"]) for row in rows] == [(1, 1), (2, 2), (4, 3)]
    for second in ('{"a": 1}', "{", "[" * 10_000):
        with pytest.raises(TonnageError, match=r"all\.jsonl, line 2: not "):
            read_measured(file_of(tmp_path, f"{lines[0]}\n{second}\n", "all.jsonl"), GIVEN)


# Run folders that their own client called INVALID: left out by name, refused where nothing is left,
# taken only where that is asked for.


LATE = "the client's event loop was late by a mean of 7 ms, at most 2 ms would be right"
CLIENTS = (1, 4, 8, 16)


def say(folder: Path, verdict: str, *reasons: str) -> None:
    """Write a verdict into a run folder, as ``bench`` does."""
    file = folder / "summary.json"
    summary = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(
        json.dumps({**summary, "validity": {"verdict": verdict, "reasons": reasons}}),
        encoding="utf-8",
    )


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Four loads; the one of 8 clients is INVALID."""
    load = {"concurrency": ",".join(map(str, CLIENTS)), "requests": 60}
    runs = api.simulate_sweep(
        model="llama-3-8b", precision="fp16", isl=200, osl=20, engine="nim-2024", **load
    )
    api.write_runs(tmp_path / "sweep", runs, {"seed": 0})
    folders = {
        int(folder.name.rsplit("-", 1)[-1]): folder for folder in (tmp_path / "sweep").iterdir()
    }
    for clients, folder in folders.items():
        say(folder, *(("INVALID", LATE, "no steady state") if clients == 8 else ("VALID",)))
    return tmp_path / "sweep"


def test_an_invalid_run_is_no_row_unless_asked_for(sweep: Path) -> None:
    for include, counted in ((False, [1, 4, 16]), (True, [1, 4, 8, 16])):
        invalid = InvalidRuns(include=include)
        rows = read_measured(sweep, invalid=invalid)
        assert sorted(row["concurrency"] for row in rows) == counted
        (met,) = invalid.met
        assert (Path(met.run).name, met.counts) == ("concurrency-8", include)
        assert met.why.startswith(LATE)
    for summary, why in [
        ({}, ""),
        ({"validity": {"verdict": "INVALID", "reasons": [LATE]}}, LATE),
        (
            {"validity": {"verdict": "INVALID", "reasons": [LATE, "b", "c"]}},
            f"{LATE}; and 2 more reasons",
        ),
        ({"validity": {"verdict": "INVALID"}}, "it does not say why"),
    ]:
        assert why_invalid(summary) == why


def commands(sweep: Path) -> dict[str, list[str]]:
    measured = ["--model=llama-3-8b", "--isl=200", "--osl=20", "--peak-rps=20", "--json"]
    return {
        "score": ["score", str(sweep), "--json"],
        "calibrate": ["calibrate", str(sweep), "--json"],
        "size": ["size", f"--benchmarks={sweep}", *measured],
        "compare": [
            "compare",
            str(sweep / "concurrency-4"),
            str(sweep / "concurrency-8"),
            "--json",
        ],
    }


@pytest.mark.parametrize("verb", ["score", "calibrate", "size"])
def test_every_reader_leaves_it_out_by_name_and_takes_it_where_asked(
    verb: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, words in (
        ([], "is left out"),
        (["--include-invalid"], "counts because of --include-invalid"),
    ):
        command = [*commands(sweep)[verb], *flags]
        assert run(command) == 0
        document = json.loads(capsys.readouterr().out)
        told = json.dumps([document.get("remarks"), document.get("notes")])
        assert "concurrency-8" in told
        assert "event loop was late" in told
        assert run([part for part in command if part != "--json"]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert words in text
        assert "concurrency-8" in text
        assert "--include-invalid" in text


@pytest.mark.parametrize("verb", ["score", "calibrate", "size", "compare"])
def test_where_nothing_valid_is_left_the_command_refuses(
    verb: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in sweep.iterdir():
        say(folder, "INVALID", LATE)
    assert run(commands(sweep)[verb]) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    assert LATE in line
    assert "--include-invalid" in line


# Results of lm-evaluation-harness: the scores that count, and the files that are none.

WRITTEN: dict[str, Any] = {
    "results": {
        "tiny_a": {
            "name": "tiny_a",
            "alias": "tiny_a",
            "sample_len": 20,
            "acc,none": 0.5,
            "acc_stderr,none": 0.11,
        },
        "tiny_b": {
            "name": "tiny_b",
            "alias": "tiny_b",
            "sample_len": 20,
            "acc,none": 0.7,
            "acc_stderr,none": 0.1,
        },
        "tiny_gen": {
            "alias": "tiny_gen",
            "exact_match,strict-match": 0.25,
            "exact_match_stderr,strict-match": 0.1,
            "exact_match,flexible-extract": 0.3,
            "exact_match_stderr,flexible-extract": 0.1,
        },
        "tiny": {
            "alias": "tiny",
            "name": "tiny",
            "acc,none": 0.6,
            "acc_stderr,none": 0.075,
            "sample_count": {"acc,none": 40},
        },
    },
    "group_subtasks": {"tiny": ["tiny_a", "tiny_b"]},
}
"""The keys that lm-eval 0.4.13 wrote for two tasks in a group and one by itself, with other
numbers."""


def test_a_group_counts_in_place_of_its_tasks_and_the_first_metric_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "model"
    folder.mkdir(parents=True)
    (folder / "results_2026-11-24.json").write_text("{}", encoding="utf-8")
    (folder / "results_2026-11-25.json").write_text(json.dumps(WRITTEN), encoding="utf-8")
    assert task_scores(tmp_path / "out") == {
        "tiny": TaskScore(metric="acc,none", score=0.6, error=0.075),
        "tiny_gen": TaskScore(metric="exact_match,strict-match", score=0.25, error=0.1),
    }
    for text in [
        "{}",
        '{"results": {"mmlu": {"acc,none": 0.5}}}',
        "[1]",
        '{"results": {"mmlu": 1}, "group_subtasks": []}',
    ]:
        (tmp_path / "results_x.json").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="give what lm_eval wrote"):
            task_scores(tmp_path / "results_x.json")


# Access logs of single requests: LiteLLM's, a gateway's, and responses of the OpenAI API, read as
# traffic and as a history.

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
