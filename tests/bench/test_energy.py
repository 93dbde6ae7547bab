"""Energy of a run: counters and power of a known curve, by NVML's library, DCGM's page, RAPL and a rack's PDU."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from tests.bench.test_parts import library
from tonnage.api.bench import bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.scrape import GPU_COUNTERS, GPU_WATTS, DriverGpus, host_joules, joules
from tonnage.errors import InputError


def test_joules_of_a_known_power_curve() -> None:
    """Watts that rise from 200 to 600 in 20 s: 8,000 J, and 7,900 J from a counter that began again; both exact to 1 %."""
    times = [round(1e9 * (0.3 + each)) for each in range(20)]
    watts = [(at, 'DCGM_FI_DEV_POWER_USAGE{gpu="0"}', 200 + 20 * at / 1e9) for at in times]
    assert joules(watts, GPU_WATTS, 20.0) == pytest.approx(8_000, rel=0.01)
    both = [*watts, *((at, 'DCGM_FI_DEV_POWER_USAGE{gpu="1"}', 100.0) for at in times)]
    assert joules(both, GPU_WATTS, 20.0) == pytest.approx(10_000, rel=0.01)
    counted = [(at, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3 * (200 * at / 1e9 + 10 * (at / 1e9) ** 2)) for at in times]
    assert joules(counted, GPU_COUNTERS, 20.0) == pytest.approx(8_000, rel=0.01)
    assert joules(counted[:1], GPU_COUNTERS, 20.0) is None
    began = [(at, name, value - counted[10][2] if at >= times[10] else value) for at, name, value in counted]
    assert joules(began, GPU_COUNTERS, 20.0) == pytest.approx(8_000, rel=0.07)  # what was counted between the two readings is lost


def test_energy_of_a_run_is_in_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("5000000\n")
    monkeypatch.setattr("tonnage.bench.scrape.RAPL", tmp_path)
    assert host_joules() == {'rapl:energy_j{package="intel-rapl:0"}': 5.0}
    monkeypatch.setitem(sys.modules, "pynvml", library(gpus=1))
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {"concurrency": 2, "request_count": 40, "metrics_url": ["none"], "gpu_metrics": True}
        (found,) = bench(url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked)
    energy = found.summary_json["energy"]
    seconds, tokens = found.summary.window_s, found.summary.output_tokens_per_second * found.summary.window_s
    assert energy["mean_gpu_watts"] == pytest.approx(300, rel=0.01)
    assert energy["joules_per_output_token"] == pytest.approx(300 * seconds / tokens, rel=0.01)


class AmdFault(Exception):
    """What amdsmi raises."""


def amd_library(*, counter: bool = True) -> types.ModuleType:
    """A stand-in for ``amdsmi``: two GPUs of 250 and 500 W, the second of a generation that tells an average alone."""
    made = types.ModuleType("amdsmi")

    def energy(gpu: int) -> dict[str, float]:
        if not counter:
            raise AmdFault("not supported")
        joules = 250 * (gpu + 1) * time.monotonic()
        return {("power", "energy_accumulator")[gpu]: round(joules * 1e6 / 15.3), "counter_resolution": 15.3}

    def power(gpu: int) -> dict[str, object]:
        return {"current_socket_power": "N/A" if gpu else 250, "average_socket_power": 500 if gpu else "N/A"}

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
def test_amd_s_library_gives_the_joules_of_its_gpus(counter: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", amd_library(counter=counter))
    monkeypatch.setattr("tonnage.bench.scrape.AMD_DRIVER", tmp_path)
    found = DriverGpus().samples()
    assert found['amdsmi:power_w{gpu="1"}'] == 500
    assert found['amdsmi:memory_used_bytes{gpu="0"}'] == 2**30
    assert 'amdsmi:utilization_percent{gpu="0"}' not in found
    with exact_server(Schedule(ttft_s=0.02, itl_s=0.002)) as url:
        asked = {"concurrency": 2, "request_count": 40, "metrics_url": ["none"], "gpu_metrics": True}
        (run,) = bench(url=url, model="m", isl=5, osl=5, selftest=False, output=tmp_path / "run", **asked)
    energy = run.summary_json["energy"]
    assert energy["by"] == ("energy counters" if counter else "power read once a second")
    assert energy["joules_per_output_token"] == pytest.approx(750 * run.summary.window_s / 200, rel=0.01)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(InputError, match="amdsmi"):
        DriverGpus()


class RisingPower(http.server.BaseHTTPRequestHandler):
    """DCGM's page of a GPU that draws 300 W and 10 W more every second, and a PDU's that draws twice as much."""

    began = time.time()

    def do_GET(self) -> None:
        watts = 300 + 10 * (time.time() - self.began)
        body = f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} {watts}\nrPDU2DeviceStatusPower{{ifIndex="1"}} {2 * watts / 10}\n'.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_joules_of_a_token_by_dcgm_s_page_are_those_of_the_power_curve(tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RisingPower)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with exact_server(Schedule(ttft_s=0.05, itl_s=0.01)) as url:
            page = f"http://127.0.0.1:{server.server_port}/metrics"
            asked = {"concurrency": 2, "request_count": 40, "metrics_url": [page], "selftest": False}
            (found,) = bench(url=url, model="m", isl=5, osl=10, output=tmp_path / "run", **asked)
    finally:
        server.shutdown()
        server.server_close()
    run = json.loads((tmp_path / "run/run.json").read_text())
    seconds, energy = found.summary.window_s, found.summary_json["energy"]
    middle = run["load"]["started_unix_ns"] / 1e9 - RisingPower.began + seconds / 2
    assert energy["by"] == "power read once a second"
    assert energy["joules_per_output_token"] == pytest.approx((300 + 10 * middle) * seconds / 400, rel=0.01)
    assert energy["pdu_joules"] == pytest.approx(2 * energy["gpu_joules"], rel=0.001)
