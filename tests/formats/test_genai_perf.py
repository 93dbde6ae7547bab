"""GenAI-Perf's raw exports as runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.field_files import rows_of, written
from tests.formats.imported_runs import CLOSE, FILES, Imported, has_their_statistics
from tonnage.cli.main import run


def test_genai_perf_s_own_statistics_come_out_of_its_raw_export(tmp_path: Path) -> None:
    found = Imported(
        FILES / "genai-perf",
        tmp_path / "run",
        "--tokenizer",
        str(FILES / "genai-perf" / "tokenizer.json"),
    )
    said = json.loads((FILES / "genai-perf" / "statistics.json").read_text())
    assert len(found.requests) == said["request_count"]["avg"] == 10
    has_their_statistics(found, said)
    assert found.summary["requests_per_second"] == pytest.approx(
        said["request_throughput"]["avg"], rel=CLOSE
    )


def test_without_a_tokenizer_an_event_is_a_token_and_a_prompt_has_none(tmp_path: Path) -> None:
    found = Imported(FILES / "genai-perf" / "profile_export.json", tmp_path / "run")
    # the exact server sends a token an event
    assert found.requests.osl.mean() == pytest.approx(5.9)
    assert not found.requests.isl.any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(service_kind="triton"), "only those to OpenAI's API"),
        (lambda d: d["experiments"][0].pop("requests"), "experiment 1"),
        (
            lambda d: d["experiments"][0]["requests"][0].update(timestamp="soon"),
            "request 1, timestamp",
        ),
        (lambda d: d["experiments"][0]["requests"][0]["request_inputs"].pop("payload"), "payload"),
    ],
)
def test_a_damaged_raw_export_is_refused_with_its_place(
    change: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((FILES / "genai-perf" / "profile_export.json").read_text())
    change(document)
    (tmp_path / "profile_export.json").write_text(json.dumps(document))
    assert run(["import", str(tmp_path), "--output", str(tmp_path / "run")]) == 2
    assert says in capsys.readouterr().err


def test_an_error_inside_a_stream_is_a_failed_request(tmp_path: Path) -> None:
    document = json.loads((FILES / "genai-perf" / "profile_export.json").read_text())
    request = document["experiments"][0]["requests"][0]
    request["response_outputs"][1]["response"] = 'data: {"error": {"message": "out of memory"}}\n\n'
    (tmp_path / "profile_export.json").write_text(json.dumps(document))
    found = Imported(tmp_path / "profile_export.json", tmp_path / "run")
    assert found.summary["errors_by_kind"] == {"out of memory": 1}


FIELD = Path(__file__).parents[3] / "shared" / "field" / "measuring"


def test_errors_of_genai_perf_s_successor_are_counted_from_their_summary(tmp_path: Path) -> None:
    report = (
        json.loads((FIELD / "062/ai_err/profile_export_aiperf.json").read_text())
        if FIELD.exists()
        else pytest.skip("no field")
    )
    del report["error_request_count"]
    rows, said = rows_of(written(tmp_path / "run" / "profile_export_aiperf.json", report))
    assert not rows
    assert "150 of 350" in said[0]
