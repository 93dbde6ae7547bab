"""MAX_UTILIZATION, compiled: more enter than have room, and go back to the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.reference.examples import TICK, VLLM
from tonnage.api import simulate
from tonnage.cli.main import run as command
from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.simulator.kernel import run
from tonnage.simulator.reference import run_reference

OWN = replace(
    VLLM,
    scheduler="max-utilization",
    chunked_prefill=False,
    tokens_per_block=1,
    max_batch_size=8,
    max_num_tokens=64,
)


def test_more_enter_than_have_room_for_their_whole_output():
    """Two of 4 + 8 tokens in 16 blocks: under GUARANTEED_NO_EVICT one after the other, here
    together until blocks run out."""
    both = trace_of((0, 4, 8), (0, 4, 8))
    paused = run(both, TICK, OWN, 16)
    kept = run(both, TICK, replace(OWN, scheduler="tensorrt-llm"), 16)
    assert kept.first_token_ns.tolist() == [1_000_000, 9_000_000]
    assert paused.first_token_ns.tolist() == [1_000_000, 1_000_000]
    assert (kept.preemptions.tolist(), paused.preemptions.tolist()) == ([0, 0], [0, 1])
    assert paused.last_token_ns[0] == 8_000_000
    assert paused.last_token_ns[1] < kept.last_token_ns[1]


def test_a_request_that_could_not_be_computed_again_is_rejected():
    assert run(trace_of((0, 60, 5)), TICK, OWN, 1000).status.tolist() == [REJECTED]
    assert run(
        trace_of((0, 60, 5)), TICK, replace(OWN, chunked_prefill=True), 1000
    ).status.tolist() == [COMPLETED]
    whole_blocks = replace(OWN, chunked_prefill=True, max_num_tokens=10, tokens_per_block=16)
    asked = trace_of((0, 4, 6), (0, 4, 7), (0, 4, 6)), TICK, whole_blocks, 1000
    for record in (run(*asked), run_reference(*asked).requests):
        assert record.status.tolist() == [COMPLETED, REJECTED, COMPLETED], (
            "a chunk is a whole block, and none fits into the budget"
        )


def test_max_utilization_is_tensorrt_llms(capsys):
    with pytest.raises(InputError, match="max-utilization"):
        simulate(
            model="llama-3.1-8b",
            isl=100,
            osl=10,
            request_rate=1,
            requests=5,
            engine="vllm",
            batcher="max-utilization",
        )
    assert command(["simulate", "--ticks", "--batcher", "max-utilization"]) == 2
    assert "batcher" in capsys.readouterr().err
