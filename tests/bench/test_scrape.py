"""The server's own metrics and the GPUs' energy while a run lasts."""

from __future__ import annotations

import io
import json
import sys
import time
import types
from email.message import Message
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.answering import answering
from tests.bench.parts import library
from tonnage.api.bench import bench, prepare_bench, run_bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.scrape import (
    AMDSMI,
    GPU_COUNTERS,
    GPU_WATTS,
    NVML,
    PDU,
    DriverGpus,
    Scraper,
    _counted_joules,
    _socket_watts,
    fetch,
    host_joules,
    joules,
    samples,
)
from tonnage.cli.bench import LiveView
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


def test_a_run_holds_the_server_s_metrics_and_a_view_shows_it(tmp_path: Path) -> None:
    views: list[LiveView] = []

    def watch(words: str) -> LiveView:
        views.append(LiveView(words, Console(file=io.StringIO(), width=120)))
        return views[-1]

    with exact_server(Schedule(ttft_s=0.05, itl_s=0.005, slots=2), seconds=60) as url:
        asked = prepare_bench(url=url, model="m", isl=20, osl=10, concurrency=6, request_count=30)
        assert asked.metrics_urls == (f"{url}/metrics",)
        run = run_bench(asked, output=tmp_path / "run", selftest=False, provenance={}, watch=watch)[
            0
        ]
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


def test_every_gpu_is_read_and_what_one_does_not_tell_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    nvml = DriverGpus()
    assert nvml.gpus == ("NVIDIA H100", "NVIDIA H200")
    found = nvml.samples()
    assert len(found) == 2 * len(NVML) - 1
    assert found['nvml:power_w{gpu="0"}'] == 412.5
    assert 'nvml:power_w{gpu="1"}' not in found
    assert found['nvml:memory_used_bytes{gpu="1"}'] == 70 * 2**30


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "nvidia-ml-py"),
        (library(driver=False), "Driver Not Loaded"),
        (library(gpus=0), "no GPU"),
    ],
)
def test_without_package_driver_or_gpu_it_is_refused_before_anything_is_sent(
    made: types.ModuleType | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", made)
    with pytest.raises(InputError, match=says):
        bench(
            url="127.0.0.1:1",
            model="m",
            isl=5,
            osl=5,
            concurrency=1,
            request_count=1,
            selftest=False,
            gpu_metrics=True,
        )


def test_joules_of_a_known_power_curve() -> None:
    """Watts that rise from 200 to 600 in 20 s: 8,000 J, and 7,900 J from a counter that began
    again; both exact to 1 %."""
    times = [round(1e9 * (0.3 + each)) for each in range(20)]
    watts = [(at, 'DCGM_FI_DEV_POWER_USAGE{gpu="0"}', 200 + 20 * at / 1e9) for at in times]
    assert joules(watts, GPU_WATTS, 20.0) == pytest.approx(8_000, rel=0.01)
    both = [*watts, *((at, 'DCGM_FI_DEV_POWER_USAGE{gpu="1"}', 100.0) for at in times)]
    assert joules(both, GPU_WATTS, 20.0) == pytest.approx(10_000, rel=0.01)
    counted = [
        (at, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3 * (200 * at / 1e9 + 10 * (at / 1e9) ** 2))
        for at in times
    ]
    assert joules(counted, GPU_COUNTERS, 20.0) == pytest.approx(8_000, rel=0.01)
    assert joules(counted[:1], GPU_COUNTERS, 20.0) is None
    began = [
        (at, name, value - counted[10][2] if at >= times[10] else value)
        for at, name, value in counted
    ]
    # what was counted between the two readings is lost
    assert joules(began, GPU_COUNTERS, 20.0) == pytest.approx(8_000, rel=0.07)


def test_energy_of_a_run_is_in_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("5000000\n")
    monkeypatch.setattr("tonnage.bench.scrape.RAPL", tmp_path)
    assert host_joules() == {'rapl:energy_j{package="intel-rapl:0"}': 5.0}
    monkeypatch.setitem(sys.modules, "pynvml", library(gpus=1))
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {
            "concurrency": 2,
            "request_count": 20,
            "metrics_url": ["none"],
            "gpu_metrics": True,
        }
        (found,) = bench(
            url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked
        )
    rows = pq.read_table(tmp_path / "run" / "server_metrics.parquet").to_pydict()
    assert all(-1e8 <= at < found.observed.seconds * 1e9 + 2e9 for at in rows["time_ns"])
    assert found.run_json["server_metrics"]['nvml:utilization_percent{gpu="0"}']["mean"] == 87
    energy = found.summary_json["energy"]
    seconds, tokens = (
        found.summary.window_s,
        found.summary.output_tokens_per_second * found.summary.window_s,
    )
    assert energy["mean_gpu_watts"] == pytest.approx(300, rel=0.01)
    assert energy["joules_per_output_token"] == pytest.approx(300 * seconds / tokens, rel=0.01)


class AmdFault(Exception):
    """What amdsmi raises."""


def amd_library(*, counter: bool = True) -> types.ModuleType:
    """A stand-in for ``amdsmi``: two GPUs of 250 and 500 W, the second of a generation that tells
    an average alone."""
    made = types.ModuleType("amdsmi")

    def energy(gpu: int) -> dict[str, float]:
        if not counter:
            raise AmdFault("not supported")
        joules = 250 * (gpu + 1) * time.monotonic()
        return {
            ("power", "energy_accumulator")[gpu]: round(joules * 1e6 / 15.3),
            "counter_resolution": 15.3,
        }

    def power(gpu: int) -> dict[str, object]:
        return {
            "current_socket_power": "N/A" if gpu else 250,
            "average_socket_power": 500 if gpu else "N/A",
        }

    for name, value in {
        "AmdSmiException": AmdFault,
        "amdsmi_init": lambda: None,
        "amdsmi_get_processor_handles": lambda: [0, 1],
        "amdsmi_get_gpu_asic_info": lambda gpu: {"market_name": "AMD Instinct MI300X"},
        "amdsmi_get_power_info": power,
        "amdsmi_get_gpu_activity": lambda gpu: {"gfx_activity": 90 if gpu else "N/A"},
        "amdsmi_get_gpu_vram_usage": lambda gpu: {"vram_used": 1024},
        "amdsmi_get_energy_count": energy,
    }.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("counter", [True, False])
def test_amd_s_library_gives_the_joules_of_its_gpus(
    counter: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", amd_library(counter=counter))
    monkeypatch.setattr("tonnage.bench.scrape.AMD_DRIVER", tmp_path)
    found = DriverGpus().samples()
    assert found['amdsmi:power_w{gpu="1"}'] == 500
    assert found['amdsmi:memory_used_bytes{gpu="0"}'] == 2**30
    assert 'amdsmi:utilization_percent{gpu="0"}' not in found
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {
            "concurrency": 2,
            "request_count": 20,
            "metrics_url": ["none"],
            "gpu_metrics": True,
        }
        (run,) = bench(
            url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked
        )
    energy = run.summary_json["energy"]
    assert energy["by"] == ("energy counters" if counter else "power read once a second")
    assert energy["joules_per_output_token"] == pytest.approx(
        750 * run.summary.window_s / 100, rel=0.01
    )
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(InputError, match="amdsmi"):
        DriverGpus()


@pytest.mark.live
def test_joules_of_a_token_by_dcgm_s_page_are_those_of_the_power_curve(tmp_path: Path) -> None:
    """A GPU that draws 300 W and 10 W more every second, and a PDU that says twice as much."""
    began = time.time()

    def reply(path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        watts = 300 + 10 * (time.time() - began)
        return (
            200,
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} {watts}\nrPDU2DeviceStatusPower{{ifIndex="1"}}'
            f" {2 * watts / 10}\n".encode(),
        )

    with answering(reply) as page, exact_server(Schedule(ttft_s=0.05, itl_s=0.01)) as url:
        asked = {
            "concurrency": 2,
            "request_count": 40,
            "metrics_url": [f"{page}/metrics"],
            "selftest": False,
        }
        (found,) = bench(url=url, model="m", isl=5, osl=10, output=tmp_path / "run", **asked)
    run = json.loads((tmp_path / "run/run.json").read_text())
    seconds, energy = found.summary.window_s, found.summary_json["energy"]
    middle = run["load"]["started_unix_ns"] / 1e9 - began + seconds / 2
    assert energy["by"] == "power read once a second"
    assert energy["joules_per_output_token"] == pytest.approx(
        (300 + 10 * middle) * seconds / 400, rel=0.01
    )
    assert energy["pdu_joules"] == pytest.approx(2 * energy["gpu_joules"], rel=0.001)


def test_a_driver_that_fails_is_quoted_up_to_80_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = amd_library(counter=True)

    def failing() -> None:
        raise library.AmdSmiException("error 7: " + "0123456789" * 20)

    monkeypatch.setattr(library, "amdsmi_init", failing)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    monkeypatch.setattr("tonnage.bench.scrape.AMD_DRIVER", tmp_path)
    with pytest.raises(InputError, match=r"cannot be asked \(error 7: [0-9]{71}\); leave it out"):
        DriverGpus()


@pytest.mark.parametrize(
    ("rows", "units", "seconds", "energy"),
    [
        # power of 100 W from 1 s on, rising to 300 W at 3 s: the ends go on as they are
        ([(1, 100), (3, 300)], {"w": 1.0}, 5.0, 100 + 400 + 600),
        ([(1, 100), (3, 300)], {"w": 1.0}, 2.0, 100 + 400 / 2),
        ([(1, 100), (3, 300)], {"w": 10.0}, 0.5, 500),
        ([(-1, 100), (1, 200), (3, 300)], {"w": 1.0}, 3.0, 300 / 2 + 500),
        # in the midst of several readings
        ([(0, 100), (1, 100), (3, 300), (4, 0)], {"w": 1.0}, 2.0, 100 + 400 / 2),
        ([(0, 100), (1, 100), (3, 300), (4, 0)], {"w": 1.0}, 4.0, 100 + 400 + 150),
        ([(1, 100)], {"w": 1.0}, 5.0, None),
        ([], {"w": 1.0}, 5.0, None),
        # a counter that began again at 3 s counts 60 from there
        ([(1, 100), (2, 150), (3, 60), (4, 90)], {"c": 1.0}, 4.0, 50 + 50 + 60 + 30),
        ([(1, 100), (2, 150), (3, 60), (4, 90)], {"c": 0.5}, 6.0, (50 + 50 + 60 + 30 + 60) / 2),
        ([(1, 100), (2, 100)], {"c": 1.0}, 2.0, 0),
    ],
)
def test_joules_by_hand(
    rows: list[tuple[int, float]],
    units: dict[str, float],
    seconds: float,
    energy: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tonnage.bench.scrape.GPU_WATTS", {"w": units.get("w", 1.0)})
    [name] = units
    read = [(at * 10**9, f'{name}{{gpu="0"}}', value) for at, value in rows]
    found = joules(read, units, seconds)
    assert found == (None if energy is None else pytest.approx(energy))
    both = [*read, *((at, f'{name}{{gpu="1"}}', value) for at, _, value in read)]
    twice = joules(both, units, seconds)
    assert twice == (None if energy is None else pytest.approx(2 * energy))
    assert joules([*read, (0, "x", 1.0), (1, "x", 2.0)], {"y": 1.0}, seconds) is None


def test_the_first_name_that_was_read_twice_counts() -> None:
    rows = [(0, "b", 1.0), (10**9, "b", 2.0), (0, "a", 5.0), (0, "c", 9.0), (10**9, "c", 99.0)]
    assert joules(rows, {"a": 1.0, "b": 3.0, "c": 1.0}, 1.0) == pytest.approx(3.0)


def test_figures_of_what_was_read() -> None:
    scraper = Scraper(())
    scraper.rows = [
        (0, "nvml:power_w", 100.0),
        (10**9, "nvml:power_w", 300.0),
        (0, "nvml:energy_j", 7.0),
        (10**9, "nvml:energy_j", 7.0),
        (0, PDU, 1.0),
        (10**9, PDU, 3.0),
        (0, "rapl:energy_j", 10.0),
        (10**9, "rapl:energy_j", 60.0),
    ]
    expected = {
        "gpu_joules": pytest.approx(200.0),
        "mean_gpu_watts": pytest.approx(200.0),
        "joules_per_output_token": pytest.approx(4.0),
        "by": "power read once a second",
        "host_joules": pytest.approx(50.0),
        "pdu_joules": pytest.approx(20.0),
    }
    assert scraper.energy(1.0, 50) == expected
    assert scraper.energy(1.0, 0)["joules_per_output_token"] is None
    assert scraper.summary()["nvml:power_w"] == {
        "read": 2,
        "first": 100.0,
        "mean": 200.0,
        "max": 300.0,
        "last": 300.0,
    }
    assert list(scraper.summary()) == ["nvml:energy_j", "nvml:power_w", PDU, "rapl:energy_j"]
    scraper.rows[3] = (10**9, "nvml:energy_j", 107.0)
    counted = scraper.energy(2.0, 50)
    assert (counted["gpu_joules"], counted["by"]) == (pytest.approx(200.0), "energy counters")
    assert counted["mean_gpu_watts"] == pytest.approx(100.0)
    scraper.rows = scraper.rows[4:]
    assert scraper.energy(1.0, 50) == {}


def test_a_page_is_read_by_its_path_and_question() -> None:
    asked: list[str] = []

    def reply(path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        asked.append(path)
        return (500 if "bad" in path else 200), b"vllm:a 1 \xff"

    with answering(reply) as url:
        assert fetch(url) == fetch(f"{url}/m?x=1&y=2") == "vllm:a 1 \ufffd"
        assert fetch(f"{url}/bad") == ""
    assert asked == ["/metrics", "/m?x=1&y=2", "/bad"]
    assert fetch(url, 0.1) == ""


def test_readings_of_amd_by_their_fields() -> None:
    watts = [
        {"current_socket_power": 5, "average_socket_power": 7},
        {"current_socket_power": "N/A", "average_socket_power": 7.5},
    ]
    assert [_socket_watts(power) for power in watts] == [5.0, 7.5]
    counts = [
        {"energy_accumulator": 4_000_000, "power": 1, "counter_resolution": 15.3},
        {"power": 2_000_000, "counter_resolution": 1},
    ]
    assert [_counted_joules(count) for count in counts] == [pytest.approx(61.2), 2.0]


def test_a_page_is_waited_for_two_seconds_and_by_tls_where_its_address_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[object, ...]] = []

    def connection(kind: str) -> object:
        def made(host: str, port: int | None, timeout: float) -> types.SimpleNamespace:
            opened.append((kind, host, port, timeout))
            return types.SimpleNamespace(
                request=lambda *words: opened.append(words),
                getresponse=lambda: types.SimpleNamespace(status=200, read=lambda size: b"a"),
                close=lambda: opened.append(("closed",)),
            )

        return made

    monkeypatch.setattr("http.client.HTTPConnection", connection("plain"))
    monkeypatch.setattr("http.client.HTTPSConnection", connection("tls"))
    assert fetch("http://h:1") == fetch("https://h/x", 0.5) == "a"
    assert opened == [
        ("plain", "h", 1, 2.0),
        ("GET", "/metrics"),
        ("closed",),
        ("tls", "h", None, 0.5),
        ("GET", "/x"),
        ("closed",),
    ]


def test_each_reading_of_a_gpu_has_its_unit() -> None:
    """NVML says milliwatts, bytes and millijoules; AMD's library MiB and microjoules."""
    nvidia = library(energy=lambda now: 12.5)
    assert {name: read(nvidia, 0) for name, read in NVML.items()} == {
        "power_w": 412.5,
        "utilization_percent": 87.0,
        "memory_used_bytes": 70.0 * 2**30,
        "sm_clock_mhz": 1_755.0,
        "energy_j": 12.5,
        "temperature_c": 61.0,
    }
    amd = types.SimpleNamespace(
        amdsmi_get_power_info=lambda gpu: {"current_socket_power": 500 + gpu},
        amdsmi_get_gpu_activity=lambda gpu: {"gfx_activity": 90 + gpu},
        amdsmi_get_gpu_vram_usage=lambda gpu: {"vram_used": 3 + gpu},
        amdsmi_get_energy_count=lambda gpu: {"power": 4_000_000, "counter_resolution": 2},
    )
    assert {name: read(amd, 1) for name, read in AMDSMI.items()} == {
        "power_w": 501.0,
        "utilization_percent": 91.0,
        "memory_used_bytes": 4.0 * 2**20,
        "energy_j": 8.0,
    }


def test_the_counter_of_each_cpu_package_in_joules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.bench.scrape.RAPL", tmp_path)
    assert host_joules() == {}
    values = {"intel-rapl:1": "2500000", "intel-rapl:0": "1\n", "intel-rapl:0:0": "7"}
    for name, value in {**values, "intel-rapl:2": "none", "other:0": "5"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(value, encoding="utf-8")
    assert list(host_joules().items()) == [
        ('rapl:energy_j{package="intel-rapl:0"}', 1e-6),
        ('rapl:energy_j{package="intel-rapl:1"}', 2.5),
    ]


def test_a_line_that_is_no_sample_ends_no_page() -> None:
    page = "vllm:a_bucket 1\nvllm:c x\nvllm:d\nother 1\nvllm:b 1"
    assert samples(page) == {"vllm:b": 1.0}


def test_pages_and_gpus_are_read_at_the_beginning_again_and_again_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Times count from the beginning of the run; one who waits five times reads six times."""
    clock = types.SimpleNamespace(now=1_000)
    pages: list[str] = []
    waits: list[float] = []

    def fetched(url: str) -> str:
        clock.now += 10
        pages.append(url)
        return f"vllm:{url} {len(pages)}\nother 1"

    monkeypatch.setattr("tonnage.bench.scrape.fetch", fetched)
    monkeypatch.setattr(
        "tonnage.bench.scrape.time", types.SimpleNamespace(monotonic_ns=lambda: clock.now)
    )
    gpus: Any = types.SimpleNamespace(samples=lambda: {"nvml:a": 5.0})
    scraper = Scraper(("x", "y"), gpus=gpus, every_s=0.25)
    scraper._start_ns = 900
    scraper._stop = types.SimpleNamespace(  # type: ignore[assignment]
        wait=lambda seconds: waits.append(seconds) or len(waits) == 2
    )
    scraper._read()
    assert pages == ["x", "y"] * 3
    assert waits == [0.25, 0.25]
    assert scraper.rows == [
        *((100, "vllm:x", 1.0), (110, "vllm:y", 2.0), (120, "nvml:a", 5.0)),
        *((120, "vllm:x", 3.0), (130, "vllm:y", 4.0), (140, "nvml:a", 5.0)),
        *((140, "vllm:x", 5.0), (150, "vllm:y", 6.0), (160, "nvml:a", 5.0)),
    ]
    alone = Scraper(("x",))
    assert (alone._every, alone._gpus, alone.rows) == (1.0, None, [])
    alone.end()  # before it began
    alone = Scraper(("x",))
    alone.begin(types.SimpleNamespace(start_ns=77), None)  # type: ignore[arg-type]
    alone.seen(None, None)  # type: ignore[arg-type]
    assert alone._thread is not None
    assert (alone._start_ns, alone._thread.daemon) == (77, True)
    alone.end()
    assert not alone._thread.is_alive()
    assert [name for _, name, _ in alone.rows] == ["vllm:x"] * 2


def test_what_was_read_is_written_row_by_row(tmp_path: Path) -> None:
    for rows in ([(5, "a", 1.5), (7, "b", 2.0), (9, "a", 3.0)], []):
        scraper = Scraper(())
        scraper.rows = list(rows)
        scraper.write(tmp_path / "m.parquet")
        table = pq.read_table(tmp_path / "m.parquet").to_pydict()
        assert list(zip(*table.values(), strict=True)) == rows
        assert list(table) == ["time_ns", "name", "value"]


@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ((True, False, True), "amdsmi"),
        ((True, False, False), "amdsmi"),
        ((True, True, True), "nvml"),
        ((True, True, False), "amdsmi"),
        ((False, False, True), "nvml"),
        ((False, True, True), "nvml"),
        ((False, False, False), None),
    ],
)
def test_whose_gpus_are_read(
    there: tuple[bool, bool, bool],
    kind: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By AMD's driver, NVIDIA's and NVIDIA's library: AMD's where its driver is loaded, unless NVIDIA's is too and its library is there."""
    for name, loaded in (("AMD_DRIVER", there[0]), ("NVIDIA_DRIVER", there[1])):
        path = tmp_path / name
        if loaded:
            path.mkdir()
        monkeypatch.setattr(f"tonnage.bench.scrape.{name}", path)
    monkeypatch.setitem(sys.modules, "pynvml", library() if there[2] else None)
    monkeypatch.setitem(sys.modules, "amdsmi", amd_library())
    if kind is None:
        with pytest.raises(InputError, match="gpu_metrics: needs the package nvidia-ml-py"):
            DriverGpus()
        return
    gpus = DriverGpus()
    names = {
        "amdsmi": ("AMD Instinct MI300X",) * 2,
        "nvml": ("NVIDIA H100", "NVIDIA H200"),
    }
    assert gpus.gpus == names[kind]
    monkeypatch.setattr("tonnage.bench.scrape.RAPL", tmp_path)
    read = gpus.samples()
    assert {name.partition(":")[0] for name in read} == {kind}
    assert {name.partition("{")[2] for name in read} == {'gpu="0"}', 'gpu="1"}'}
