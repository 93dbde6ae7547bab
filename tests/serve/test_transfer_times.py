"""Two simulated pools behind a router of the simplest kind take the times of the simulator's two
pools."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tonnage.api.question.deployment import deployment_of
from tonnage.api.running.processes import served_instances
from tonnage.results.requests import Requests
from tonnage.serve.supervisor import Supervisor
from tonnage.simulator.disaggregated import Disaggregated, simulate_disaggregated
from tonnage.spec.workload import Trace
from tonnage.units import PS_PER_S

CLOCK_MS, HOPS_MS = 2.0, 6.0
"""How far times may be off, and the TTFT on the wall's clock: a second request over HTTP takes
longer than the cache takes on the link."""


COUNT, ISL, OSL, RATE = 30, 1000, 40, 5.0


MODEL = ("--model", "llama-3.1-8b", "--precision", "fp8", "--gpu", "h100-sxm-80gb")


@dataclass(frozen=True, slots=True)
class Times:
    """Simulated milliseconds of a request."""

    ttft: float
    tpot: float


async def post(
    port: int, body: dict[str, Any]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose reply's head has been read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({"model": "llama-3.1-8b", **body}).encode()
    head = (
        "POST /v1/completions HTTP/1.1",
        "Host: x",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
    )
    writer.write("\r\n".join((*head, "", "")).encode() + data)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def routed(ports: tuple[int, int], due: float, prompt: list[int], speed: float) -> Times:
    """A request by way of both pools, at its time."""
    await asyncio.sleep(due - time.monotonic())
    sent = time.monotonic()
    reader, writer = await post(
        ports[0],
        {"prompt": prompt, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}},
    )
    params = json.loads(await reader.read())["kv_transfer_params"]
    writer.close()
    asked = {
        "prompt": prompt,
        "max_tokens": OSL,
        "ignore_eos": True,
        "stream": True,
        "kv_transfer_params": params,
    }
    reader, writer = await post(ports[1], asked)
    moments = [time.monotonic() async for line in reader if line.startswith(b'data: {"id"')]
    writer.close()
    return Times(
        ttft=1e3 * speed * (moments[0] - sent),
        tpot=1e3 * speed * (moments[-1] - moments[0]) / (OSL - 1),
    )


def simulated(due_s: np.ndarray) -> Requests:
    """The same requests on the simulator's two pools."""
    one = deployment_of(
        model="llama-3.1-8b", gpu="h100-sxm-80gb", precision="fp8", tp=1, engine="vllm"
    )
    pools = Disaggregated(
        prefill=one, decode=one, prefill_instances=1, decode_instances=1, link_bytes_s=50e9
    )
    lengths = np.full(COUNT, ISL), np.full(COUNT, OSL)
    return simulate_disaggregated(
        pools,
        Trace(
            due_ps=(due_s * PS_PER_S).astype(np.int64),
            isl=lengths[0],
            osl=lengths[1],
            concurrency=0,
            turnaround_ps=0,
        ),
    )


@pytest.mark.engines
@pytest.mark.parametrize(("speed", "off_ms"), [(0.1, CLOCK_MS), (1.0, HOPS_MS)])
def test_both_pools_take_the_time_of_the_simulation(
    speed: float, off_ms: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(5)
    due_s = np.cumsum(rng.exponential(1 / RATE, COUNT))
    predicted = simulated(due_s)

    async def run(ports: tuple[int, int], count: int) -> list[Times]:
        prompts = rng.integers(5, 8000, (count, ISL)).tolist()
        began = time.monotonic() + 0.2
        requests = zip((due_s[:count] / speed).tolist(), prompts, strict=True)
        return await asyncio.gather(
            *(routed(ports, began + due, prompt, speed) for due, prompt in requests)
        )

    words = ["--engine", "simulated", *MODEL, "--speed", f"{speed:g}", "--kv-role"]
    sides = [served_instances([*words, role], 1)[0] for role in ("producer", "consumer")]
    first, second = (int(side.address.rpartition(":")[2]) for side in sides)
    with Supervisor(sides, tmp_path) as supervisor:
        supervisor.wait_until_ready(timeout_s=60)
        asyncio.run(run((first, second), 3))  # the first requests of a server are slower
        found = asyncio.run(run((first, second), COUNT))
    measured = np.array([one.ttft for one in found]), np.array([one.tpot for one in found])
    ttft, tpot = (
        (predicted.first_token_ns - predicted.due_ns) / 1e6,
        (predicted.last_token_ns - predicted.first_token_ns) / 1e6 / (OSL - 1),
    )
    off = np.median(measured[0] - ttft), np.median(measured[1] - tpot)
    with capsys.disabled():
        print(
            f"at speed {speed:g}, TTFT and TPOT are {off[0]:+.2f} and {off[1]:+.2f} ms off those of"
            " two simulated pools, by the median"
        )
    assert abs(off[0]) < off_ms
    assert abs(off[1]) < CLOCK_MS
