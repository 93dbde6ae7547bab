"""AIPerf's records and reports: phases, loads and their own summary."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.formats.field_files import rows_of, written
from tests.formats.imported_runs import FILES, Imported, has_their_statistics
from tests.formats.report_files import REPORT_JSON, REPORT_KEYS, report_file
from tonnage.formats.measured_files import read_measured, read_points


def test_aiperf_s_own_summary_comes_out_of_its_records(tmp_path: Path) -> None:
    found = Imported(FILES / "aiperf", tmp_path / "run")
    said = json.loads((FILES / "aiperf" / "profile_export_aiperf.json").read_text())
    assert len(found.requests) == said["request_count"]["avg"] == 24
    has_their_statistics(found, said)
    gaps = found.theirs["gap_by_event_ms"]["mean"]
    chunks = said["inter_chunk_latency"]
    # AIPerf counts the gap of two events that came at one moment, which is none
    assert 0.995 * gaps < chunks["avg"] <= gaps
    row = read_measured(found.folder, {"gpu": "h100-sxm-80gb", "precision": "fp8", "tp": 1})[0]
    assert (row["model"], row["concurrency"]) == ("m", 4)


@pytest.mark.parametrize(
    ("phase", "row", "refused"),
    [
        ({"type": "constant", "rate": 6.0}, (None, 6, None, math.inf), ""),
        (
            {"type": "gamma", "rate": 6.0, "smoothness": 2.0, "concurrency": 5},
            (None, 6, 5, 2.0),
            "",
        ),
        ({"type": "concurrency", "concurrency": 2}, (2, None, None, None), ""),
        ({"type": "constant", "rate": 6.0, "rate_ramp": {"duration": 3.0}}, None, "its rate rose"),
        (
            {"type": "user_centric", "rate": 6.0},
            None,
            "its arrivals (user_centric) are not simulated",
        ),
    ],
)
def test_phases_of_aiperf(
    tmp_path: Path, phase: dict[str, Any], row: tuple[Any, ...] | None, refused: str
) -> None:
    """As AIPerf 0.13 writes them for a rate with a cap, constant arrivals, and a ramp."""
    fixture = (
        Path(__file__).parents[1] / "bench" / "fixtures" / "aiperf" / "profile_export_aiperf.json"
    )
    report = json.loads(fixture.read_text())
    report["input_config"]["phases"] = [
        {"name": "profiling", "kind": "profiling", "requests": 12, **phase}
    ]
    report["inter_token_latency"]["avg"] = 0.0  # all tokens in one read, as on a busy machine
    rows, said = rows_of(written(tmp_path / "run" / "profile_export_aiperf.json", report))
    loads = [
        (one["concurrency"], one["request_rate"], one["in_flight"], one["burstiness"])
        for one in rows
    ]
    assert loads == ([] if row is None else [row])
    assert [refused in sentence for sentence in said] == ([True] if refused else [])


def test_aiperf_report_with_its_load(tmp_path: Path) -> None:
    report = {
        **REPORT_JSON,
        "schema_version": "1.4",
        "input_config": {"endpoint": {"model_names": ["m"]}, "loadgen": {"request_rate": 2.5}},
    }
    (p,) = read_points(
        report_file(tmp_path, "profile_export_aiperf.json", json.dumps(report)), REPORT_KEYS
    )
    assert (p.model, p.concurrency, p.request_rate) == ("m", None, 2.5)
    assert p.load == "open loop at 2.5 requests/s"
