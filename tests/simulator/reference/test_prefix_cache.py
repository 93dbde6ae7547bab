"""Prefix caches: what is found is what an oracle finds, no block is lost, and the kernel is the
reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deployments import knobs_of
from tests.in_turn import in_turn
from tests.simulator.kernel.compared import both
from tests.simulator.lru_oracle import lru_hits
from tests.simulator.reference.shared_prompts import conserved
from tests.strategies import MS, coefficient_array, examples, shared_runs
from tonnage.perf.step import StepModel
from tonnage.simulator.reference import run_reference
from tonnage.spec.sessions import ENDLESS, of_blocks, of_rows
from tonnage.spec.workload import Trace

CACHING = ("tensorrt-llm", "vllm", "sglang", "one-prefill")


MOONCAKE = (
    Path(__file__).parents[4] / "shared" / "data" / "traces" / "mooncake_conversation_2000.jsonl"
)


SECOND = 1_000 * MS


STEP = StepModel(coefficients=coefficient_array(host_step=0.001, norm=1.0), frontend_s=0.0)


ENGINE = knobs_of(64, 8192)


def served(contents, isl, osl, *, due, knobs=ENGINE, blocks=1000, tiers=(), pauses=None):
    """Requests of these lengths on one engine, by the kernel and the reference, which agree."""
    columns = [np.array(column, np.int64) for column in (due, isl, osl)]
    pause = None if pauses is None else np.array(pauses, np.int64)
    trace = Trace(
        due_ps=columns[0],
        isl=columns[1],
        osl=columns[2],
        concurrency=0,
        turnaround_ps=0,
        contents=of_rows(contents),
        pause_ps=pause,
    )
    return both(trace, STEP, knobs, blocks, tiers=tiers)[2]


@pytest.mark.skipif(not MOONCAKE.exists(), reason="the trace is not part of the project")
@pytest.mark.parametrize(
    ("scheduler", "blocks"), in_turn(["vllm", "sglang", "tensorrt-llm"], [1_000, 3_000, 20_000])
)
def test_on_mooncakes_trace_an_engine_finds_what_the_oracle_finds(scheduler, blocks):
    """Requests one by one; of TensorRT-LLM's finds the whole blocks, since the oracle knows no
    parts."""
    rows = [json.loads(line) for line in MOONCAKE.read_text().splitlines()][:600]
    ids, isl = [tuple(row["hash_ids"]) for row in rows], [row["input_length"] for row in rows]
    osl = [min(row["output_length"], 40) for row in rows]
    due = np.arange(len(rows)) * 10 * SECOND
    trace = Trace(
        due_ps=due,
        isl=np.array(isl),
        osl=np.array(osl),
        concurrency=0,
        turnaround_ps=0,
        contents=of_blocks(ids, isl, 512),
    )
    found = run_reference(
        trace, STEP, replace(ENGINE, scheduler=scheduler, tokens_per_block=512), blocks
    ).requests.cached_tokens
    expected = lru_hits(ids, isl, osl, blocks=blocks, size=512, parts=scheduler == "tensorrt-llm")
    assert (found // 512 * 512).tolist() == expected


@pytest.mark.parametrize("scheduler", CACHING)
@settings(examples(0.4), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_block_is_lost(scheduler, data):
    r = data.draw(shared_runs((scheduler,)))
    run = run_reference(
        r.trace,
        r.step,
        r.knobs,
        r.kv_blocks,
        windows=r.windows,
        max_context=r.max_context,
        tiers=r.tiers,
    )
    assert (run.requests.cached_tokens < run.requests.isl).all()
    assert len(run.requests) == len(r.trace)
    if run.cache is not None:
        conserved(run.cache, run.free_blocks, r.kv_blocks)


def test_what_is_found_is_not_computed_but_attended_to() -> None:
    run = served(
        [[(7, 64), (0, ENDLESS)], [(7, 64), (1, ENDLESS)]], [100, 100], [1, 1], due=[0, SECOND]
    )
    assert run.requests.cached_tokens.tolist() == [0, 64]
    assert [step[2] for step in run.steps] == [100, 36]
    assert [step[5] for step in run.steps] == [100 * 100, 36 * (2 * 64 + 36)]


@pytest.mark.parametrize(
    ("scheduler", "found"), [("vllm", 32), ("sglang", 32), ("tensorrt-llm", 41)]
)
def test_tensorrt_llm_finds_parts_of_a_block(scheduler, found):
    knobs = replace(ENGINE, scheduler=scheduler)
    run = served(
        [[(7, 41), (0, ENDLESS)], [(7, 41), (1, ENDLESS)]],
        [100, 100],
        [5, 1],
        due=[0, SECOND],
        knobs=knobs,
    )
    assert run.requests.cached_tokens.tolist() == [0, found]


@pytest.mark.parametrize(("scheduler", "found"), [("vllm", 96), ("sglang", 0), ("tensorrt-llm", 0)])
def test_who_enters_in_the_same_step_finds_blocks_on_vllm_alone(scheduler, found):
    knobs = replace(ENGINE, scheduler=scheduler)
    run = served(
        [[(7, 100), (0, ENDLESS)], [(7, 100), (1, ENDLESS)]],
        [120, 120],
        [3, 3],
        due=[0, 0],
        knobs=knobs,
    )
    assert run.requests.cached_tokens.tolist() == [0, found]


def test_a_turn_finds_the_answer_before_it_and_is_sent_after_its_pause() -> None:
    conversation = [[(0, ENDLESS)], [(0, ENDLESS)]]
    run = served(conversation, [100, 250], [100, 5], due=[0, -1], pauses=[-1, 3 * SECOND])
    first, second = run.jobs
    assert second.due == first.last_token + 3 * SECOND
    assert run.requests.cached_tokens.tolist() == [0, 199 // 16 * 16]


def test_conversations_that_no_client_began_within_the_window_are_in_no_record() -> None:
    """One client has four conversations of ten tokens, a millisecond each, one after another."""
    same = np.full(4, 10, np.int64)
    trace = Trace(
        due_ps=np.zeros(4, np.int64),
        isl=same,
        osl=same,
        concurrency=1,
        turnaround_ps=0,
        contents=of_rows([[(number, ENDLESS)] for number in range(4)]),
    )
    run = both(trace, STEP, ENGINE, 1000, window_ps=15 * MS)[2]
    assert run.requests.row.tolist() == [0, 1]
    assert run.requests.due_ns.tolist() == [0, 10 * MS // 1000]


@pytest.mark.parametrize(
    ("scheduler", "found"), [("vllm", 48), ("sglang", 48), ("tensorrt-llm", 49)]
)
def test_a_block_that_is_not_full_is_taken_before_those_that_can_be_found(scheduler, found):
    """The first prompt leaves three full blocks and a part of one, and six more prompts a part of
    one each, by which ten blocks are used.

    Of five blocks the six take the same one again and again, but where its part can be found: that
    one has the others forgotten."""
    others = range(1, 7)
    contents = [
        [(0, ENDLESS)],
        *([(number, ENDLESS)] for number in others),
        [(0, 49), (7, ENDLESS)],
    ]
    lengths = [[49, *(10 for _ in others), 60], [1] * 8]
    run = served(
        contents,
        *lengths,
        due=[each * SECOND for each in range(8)],
        knobs=replace(ENGINE, scheduler=scheduler),
        blocks=10,
    )
    assert run.requests.cached_tokens.tolist()[-1] == found
    tight = served(
        contents,
        *lengths,
        due=[each * SECOND for each in range(8)],
        knobs=replace(ENGINE, scheduler=scheduler),
        blocks=5,
    )
    assert tight.requests.cached_tokens.tolist()[-1] == (0 if scheduler == "tensorrt-llm" else 48)


@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "vllm", "sglang"])
def test_a_long_answer_takes_the_blocks_that_could_have_been_found(scheduler):
    """Of 17 blocks two prompts leave four each, and the answer of a third takes three of them
    before the fourth asks for the first's."""
    contents = [*([(number, ENDLESS)] for number in range(3)), [(0, 64), (3, ENDLESS)]]
    due = [0, SECOND, 2 * SECOND, 2 * SECOND + 170 * MS]
    run = served(
        contents,
        [64, 64, 16, 64],
        [1, 1, 176, 1],
        due=due,
        knobs=replace(ENGINE, scheduler=scheduler),
        blocks=17,
    )
    assert run.requests.cached_tokens.tolist() == [0, 0, 0, 16]
