"""Genuine files with a field dropped, repeated, moved or of another type: read as before, or
refused in a line, never otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.changed_files import changed, told
from tests.formats.field_files import LLMPERF, SGLANG, VLLM_RUN
from tests.strategies import examples
from tonnage.api.compare import import_run
from tonnage.errors import TonnageError
from tonnage.formats.invalid_runs import InvalidRuns
from tonnage.formats.measured_files import MEASURED, read_measured

FIXTURES = Path(__file__).parents[1] / "bench" / "fixtures"


GIVEN: dict[str, str | int] = {
    "model": "m",
    "gpu": "h100-sxm-80gb",
    "precision": "fp16",
    "tp": 1,
    "engine": "vllm",
    "concurrency": 8,
}


STAGE = {
    "load_summary": {"count": 100, "requested_rate": 2.0},
    "successes": {
        "count": 100,
        "latency": {
            name: {"mean": value, "p99": value}
            for name, value in (("request_latency", 1.1), ("time_to_first_token", 0.1))
        },
        "throughput": {"requests_per_sec": 2.0, "output_tokens_per_sec": 202},
        "prompt_len": {"mean": 1000},
        "output_len": {"mean": 101},
    },
    "failures": {"count": 0},
}


REPORTS: dict[str, tuple[str, Any]] = {
    "vllm": ("r.json", VLLM_RUN),
    "sglang": ("r.jsonl", SGLANG),
    "llmperf": ("x_summary.json", LLMPERF),
    "inference-perf": ("stage_0_lifecycle_metrics.json", STAGE),
    "inference-perf 0.7": (
        "stage_0_lifecycle_metrics.json",
        json.loads((FIXTURES / "inference-perf" / "stage_0_lifecycle_metrics.json").read_text()),
    ),
    "guidellm": ("guidellm.json", json.loads((FIXTURES / "guidellm.json").read_text())),
    "aiperf": (
        "profile_export_aiperf.json",
        json.loads((FIXTURES / "aiperf" / "profile_export_aiperf.json").read_text()),
    ),
}


@pytest.mark.parametrize("name", REPORTS)
@examples(1.0)
@given(data=st.data())
def test_no_measured_value_of_a_report_changes_silently(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file, document = REPORTS[name]
    path = tmp_path_factory.mktemp("changed", numbered=True) / file

    def rows_of(value: Any) -> list[dict[str, Any]]:
        path.write_text(json.dumps(value))
        return read_measured(path, GIVEN, InvalidRuns())

    (before,) = rows_of(document)
    try:
        rows = rows_of(data.draw(changed(document)))
    except TonnageError as error:
        told(error, path)
        return
    for row in rows:
        # without the server's count its tokens are those of its own tokenizer
        if name == "inference-perf 0.7" and row["osl"] == 32:
            continue
        # a repeated benchmark is a second row; where a report has no TPOT, its mean gap is
        # ``itl_ms``
        columns = [
            column
            for column in MEASURED
            if column != "itl_ms" or row["tpot_ms"] is not None or before["tpot_ms"] is None
        ]
        assert [column for column in columns if row[column] not in (before[column], None)] == []


DETAILED = {
    "vllm": FIXTURES / "vllm.json",
    "sglang": FIXTURES / "sglang.jsonl",
    "guidellm": FIXTURES / "guidellm.json",
    "aiperf": FIXTURES / "aiperf" / "profile_export.jsonl",
    "inference-perf": FIXTURES / "inference-perf" / "per_request_lifecycle_metrics.json",
}


@pytest.mark.parametrize("name", DETAILED)
@examples(0.5)
@given(data=st.data())
def test_single_requests_are_read_or_refused(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source, folder = DETAILED[name], tmp_path_factory.mktemp("changed", numbered=True)
    path = folder / source.name
    if source.suffix == ".jsonl":
        records = [json.loads(line) for line in source.read_text().splitlines()]
        records[-1] = data.draw(changed(records[-1]))
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        path.write_text(json.dumps(data.draw(changed(json.loads(source.read_text())))))
    try:
        made = import_run(path, folder / "run")
    except TonnageError as error:
        told(error, path)
        assert not (folder / "run").exists()
        return
    assert all(summary.counted for _, summary, _ in made)
