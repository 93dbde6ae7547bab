"""The server's own metrics beside a run, and the view that a person has of it."""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tonnage.api.bench import bench, prepare_bench, run_bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.scrape import READINGS, Nvml, fetch, samples
from tonnage.cli.progress import LiveView
from tonnage.errors import InputError

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


class NvmlFault(Exception):
    pass


def library(*, gpus: int = 2, driver: bool = True) -> types.ModuleType:
    """A stand-in for ``pynvml``: GPU 1 does not tell its power."""
    made = types.ModuleType("pynvml")

    def init() -> None:
        if not driver:
            raise NvmlFault("Driver Not Loaded")

    def power(handle: int) -> int:
        if handle == 1:
            raise NvmlFault("Not Supported")
        return 412_500

    for name, value in {
        "NVMLError": NvmlFault,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda place: place,
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200" if handle else "NVIDIA H100",
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetUtilizationRates": lambda handle: types.SimpleNamespace(gpu=87, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(used=70 * 2**30),
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1_755,
        "nvmlDeviceGetTemperature": lambda handle, kind: 61,
    }.items():
        setattr(made, name, value)
    return made


def test_every_gpu_is_read_and_what_one_does_not_tell_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    nvml = Nvml()
    assert nvml.gpus == ("NVIDIA H100", "NVIDIA H200")
    found = nvml.samples()
    assert len(found) == 2 * len(READINGS) - 1
    assert found['nvml:power_w{gpu="0"}'] == 412.5
    assert 'nvml:power_w{gpu="1"}' not in found
    assert found['nvml:memory_used_bytes{gpu="1"}'] == 70 * 2**30


@pytest.mark.parametrize(
    ("made", "says"), [(None, "nvidia-ml-py"), (library(driver=False), "Driver Not Loaded"), (library(gpus=0), "no GPU")]
)
def test_without_package_driver_or_gpu_it_is_refused_before_anything_is_sent(
    made: types.ModuleType | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", made)
    with pytest.raises(InputError, match=says):
        bench(url="127.0.0.1:1", model="m", isl=5, osl=5, concurrency=1, request_count=1, selftest=False, gpu_metrics=True)


def test_readings_stand_beside_the_run_on_its_time_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {"concurrency": 2, "request_count": 20, "metrics_url": ["none"], "gpu_metrics": True}
        (found,) = bench(url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked)
    rows = pq.read_table(tmp_path / "run" / "server_metrics.parquet").to_pydict()
    assert {rows["value"][i] for i, name in enumerate(rows["name"]) if name == 'nvml:power_w{gpu="0"}'} == {412.5}
    assert all(-1e8 <= at < found.observed.seconds * 1e9 + 2e9 for at in rows["time_ns"])
    assert found.run_json["server_metrics"]['nvml:utilization_percent{gpu="1"}']["mean"] == 87
