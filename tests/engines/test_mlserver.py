"""A real v2 server, MLServer, from measured batches to a sized service, and the size measured again
at its load.

Its own batching is off: it sends batches on while the model is busy, where Triton's, which is
simulated, lets requests wait for each other."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tonnage.cli.main import run

pytestmark = pytest.mark.engines

SLEEPER = '''
import asyncio

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Sleeper(MLModel):
    """One batch at a time, which takes 20 ms and 5 ms for each item."""

    async def load(self):
        self.turn = asyncio.Lock()
        return True

    async def predict(self, payload):
        values = NumpyCodec.decode_input(payload.inputs[0])
        async with self.turn:
            await asyncio.sleep(0.020 + 0.005 * len(values))
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", values.sum(axis=1, keepdims=True))])
'''
SETTINGS = {
    "name": "sleeper",
    "implementation": "sleeper.Sleeper",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
}
SERVICE = """
service:
  models:
    sleeper: {time: {1: 1ms}, max_batch_size: 8}
traffic: [{to: sleeper, rate: 120}]
latency: p95<=100ms
"""


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Its addresses over HTTP and gRPC."""
    program = os.environ.get("TONNAGE_MLSERVER")
    assert program, "TONNAGE_MLSERVER names no mlserver; run ./check --engines"
    http, grpc, metrics = free_ports(3)
    folder = tmp_path / "models"
    folder.mkdir()
    ports = {
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "host": "127.0.0.1",
        "parallel_workers": 0,
    }
    for name, text in (
        ("sleeper.py", SLEEPER),
        ("settings.json", json.dumps(ports)),
        ("model-settings.json", json.dumps(SETTINGS)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    server = subprocess.Popen(
        [program, "start", "."],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{http}"
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/v2/models/sleeper/ready", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield address, f"grpc://127.0.0.1:{grpc}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_over_grpc_the_same_is_measured(
    urls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("h2", reason="./check --engines installs it")
    asked = [
        "bench",
        "--endpoint-type",
        "infer",
        "--no-selftest",
        "--metrics-url",
        "none",
        "--items",
        "8",
        "--concurrency",
        "1",
        "--json",
    ]
    found = []
    for url in urls:
        run([*asked, "--url", url, "--model", "sleeper", "--request-count", "60"])
        found.append(json.loads(capsys.readouterr().out))
    with capsys.disabled():
        print(f"\nE2E of 8 items: HTTP {found[0]['e2e_ms']}, gRPC {found[1]['e2e_ms']}")
    assert found[1]["e2e_ms"]["p50"] == pytest.approx(found[0]["e2e_ms"]["p50"], rel=0.15)
    # beyond HTTP/2's window
    run(
        [
            *asked,
            "--url",
            urls[1],
            "--model",
            "sleeper",
            "--tensor",
            "x=FP32[100000]",
            "--request-count",
            "4",
        ]
    )
    assert json.loads(capsys.readouterr().out)["requests"]["completed"] == 4
    run(
        [
            *asked,
            "--url",
            urls[1],
            "--model",
            "nobody",
            "--tensor",
            "x=FP32[4]",
            "--request-count",
            "2",
        ]
    )
    assert json.loads(capsys.readouterr().out)["requests"]["completed"] == 0


def test_the_size_of_a_measured_service_holds_when_it_is_measured(
    urls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, _ = urls
    service, made = tmp_path / "service.yaml", tmp_path / "measured.yaml"
    service.write_text(SERVICE, encoding="utf-8")
    bench = [
        "bench",
        "--url",
        url,
        "--model",
        "sleeper",
        "--endpoint-type",
        "infer",
        "--no-selftest",
        "--metrics-url",
        "none",
    ]
    run(
        [
            *bench,
            "--items",
            "1,2,4,8",
            "--concurrency",
            "1",
            "--request-count",
            "60",
            "--artifact-dir",
            str(tmp_path / "single"),
        ]
    )
    assert (
        run(
            [
                "calibrate",
                str(service),
                str(tmp_path / "single"),
                "--include-invalid",
                "--output",
                str(made),
            ]
        )
        == 0
    )
    times = yaml.safe_load(made.read_text(encoding="utf-8"))["service"]["models"]["sleeper"]["time"]
    assert float(times[8].removesuffix("ms")) == pytest.approx(60, rel=0.15)
    capsys.readouterr()
    assert run(["size", str(made), "--json"]) == 0
    sized = json.loads(capsys.readouterr().out)
    share = 120 / sized["servers"]
    run([*bench, "--request-rate", f"{share:g}", "--request-count", "600", "--json"])
    measured = json.loads(capsys.readouterr().out)
    stream = sized["run"]["streams"][0]["latencies"]
    print(
        f"\n{sized['servers']} servers, {share:g}/s each; E2E predicted {stream}, measured"
        f" {measured['e2e_ms']}"
    )
    assert measured["e2e_ms"]["mean"] == pytest.approx(stream["mean"], rel=0.15)
    assert measured["e2e_ms"]["p95"] < 1.15 * 100
