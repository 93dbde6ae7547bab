"""The server's own metrics beside a run, and the view that a person has of it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from tonnage.api.bench import prepare_bench, run_bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.scrape import fetch, samples
from tonnage.cli.progress import LiveView

PAGE = """# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:kv_cache_usage_perc 0.25 1700000000
vllm:time_to_first_token_seconds_bucket{le="0.1"} 4
vllm:time_to_first_token_seconds_count 9
vllm:generation_tokens_created 1.7e9
nv_inference_queue_duration_us{model="m"} NaN
DCGM_FI_DEV_POWER_USAGE{gpu="0"} 312.5
process_cpu_seconds_total 12
vllm:broken
"""


def test_known_names_are_kept_and_the_rest_is_passed_over() -> None:
    found = samples(PAGE)
    assert found.pop('nv_inference_queue_duration_us{model="m"}') != 0
    assert found == {
        'vllm:num_requests_running{engine="0",model_name="a b"}': 3.0,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:time_to_first_token_seconds_count": 9.0,
        'DCGM_FI_DEV_POWER_USAGE{gpu="0"}': 312.5,
    }


def test_a_page_that_is_not_there_is_empty() -> None:
    assert fetch("http://127.0.0.1:9/metrics", timeout_s=0.5) == ""


def test_a_run_holds_the_server_s_metrics_and_a_view_shows_it(tmp_path: Path) -> None:
    views: list[LiveView] = []

    def watch(words: str) -> LiveView:
        views.append(LiveView(words, Console(file=io.StringIO(), width=120)))
        return views[-1]

    with exact_server(Schedule(ttft_s=0.05, itl_s=0.02, slots=2), seconds=60) as url:
        asked = prepare_bench(url=url, model="m", isl=20, osl=10, concurrency=6, request_count=30)
        assert asked.metrics_urls == (f"{url}/metrics",)
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={}, watch=watch)[0]
    waiting = run.run_json["server_metrics"]["vllm:num_requests_waiting"]
    assert waiting["max"] == 4  # six clients, two slots
    rows = pq.read_table(tmp_path / "run" / "server_metrics.parquet")
    assert rows.column_names == ["time_ns", "name", "value"]
    assert rows.num_rows == 2 * waiting["read"]
    console = Console(file=io.StringIO(), width=120)
    console.print(views[0].picture())
    shown = console.file.getvalue()
    assert views[0]._words == "6 clients"
    assert "30" in shown.split()
    assert "TTFT p95" in shown
