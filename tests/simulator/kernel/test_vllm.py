"""The scheduler of vLLM, compiled: long prompts in chunks beside others."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.kernel.hand_worked import trace_of
from tests.simulator.reference.examples import TICK, VLLM
from tonnage.simulator.kernel import run
from tonnage.simulator.reference import run_reference


def test_long_prompts_are_computed_in_chunks_beside_others():
    """Steps of 1 ms and 8 tokens: two prompts of 12 come together. Whole, one is done after two
    steps and the other after four; in chunks of 4 both after three, and in chunks of 2 a short one
    that comes later is done before them."""
    knobs = replace(VLLM, tokens_per_block=1, max_batch_size=8, max_num_tokens=8)
    trace = trace_of((0, 12, 2), (0, 12, 2), (1, 3, 2))
    whole, cut = (
        run(trace, TICK, replace(knobs, long_prefill_token_threshold=most), 1000) for most in (0, 4)
    )
    assert whole.first_token_ns.tolist() == [2_000_000, 4_000_000, 4_000_000]
    assert cut.first_token_ns.tolist() == [3_000_000, 3_000_000, 4_000_000]
    asked = trace, TICK, replace(knobs, long_prefill_token_threshold=2), 1000
    for record in (run(*asked), run_reference(*asked).requests):
        assert record.first_token_ns.tolist() == [6_000_000, 6_000_000, 3_000_000]


def test_a_lone_prompt_is_computed_whole():
    knobs = replace(VLLM, tokens_per_block=1, max_num_tokens=64, long_prefill_token_threshold=4)
    asked = trace_of((0, 40, 1)), TICK, knobs, 1000
    for record in (run(*asked), run_reference(*asked).requests):
        assert record.first_token_ns.tolist() == [1_000_000]
