"""A request on its way, what a step computes, and what it costs, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.strategies import ROOFLINE, coefficient_array
from tonnage.perf.step import StepModel
from tonnage.simulator.reference.job import NEVER, Job, Prices, Step
from tonnage.simulator.request import CANCELLED


def composition(step: Step) -> tuple[int, ...]:
    return (
        step.prefill_tokens,
        step.prefill_sequences,
        step.decode_sequences,
        step.pairs_2,
        step.context_tokens,
    )


def test_a_request_before_anything_has_happened_to_it() -> None:
    job = Job(id=3, isl=10, osl=4, due=7)
    moments = job.first_token, job.last_token, job.admitted, job.first_step, job.last_step
    assert moments == (-1,) * 5
    counts = job.priority, job.computed, job.generated, job.blocks, job.preemptions, job.cached
    assert counts == (0,) * 6
    assert (job.deadline, job.named, job.held, job.windows) == (NEVER, 0, [], [])
    assert (job.tokens, job.ended, job.decodes, job.drafts, job.handed_on) == (10,) + (False,) * 4


@pytest.mark.parametrize(
    ("computed", "generated", "decodes"),
    [(9, 0, False), (10, 1, True), (9, 1, False), (0, 1, False), (12, 3, True), (10, 3, False)],
)
def test_a_request_decodes_where_only_its_last_token_is_not_computed(
    computed, generated, decodes
) -> None:
    job = Job(id=0, isl=10, osl=9, due=0, computed=computed, generated=generated)
    assert (job.decodes, job.tokens) == (decodes, 10 + generated)
    job.status = CANCELLED
    assert job.ended


def test_what_is_left_out_of_a_step_is_as_if_it_had_never_been_in_it() -> None:
    """Prompts of 6 from the start and of 5 after 4, and decodes at contexts of 12 and 33; twice
    the pairs of a chunk of n after d are n (2 d + n)."""
    prompt = Job(id=0, isl=6, osl=2, due=0)
    chunk = Job(id=1, isl=20, osl=2, due=0, computed=4)
    decodes = [
        Job(id=2, isl=10, osl=9, due=0, computed=11, generated=2),
        Job(id=3, isl=30, osl=9, due=0, computed=32, generated=3),
    ]
    jobs = {prompt.id: (prompt, 6), 1: (chunk, 5), 2: (decodes[0], 1), 3: (decodes[1], 1)}
    parts = {0: (6, 1, 0, 36, 0), 1: (5, 1, 0, 65, 0), 2: (0, 0, 1, 0, 12), 3: (0, 0, 1, 0, 33)}
    for out, (victim, tokens) in jobs.items():
        step = Step()
        for job, new in jobs.values():
            step.add(job, new)
        assert composition(step) == (11, 2, 2, 101, 45)
        assert step.take_back(victim) == tokens
        rest = [part for number, part in parts.items() if number != out]
        assert composition(step) == tuple(map(sum, zip(*rest, strict=True)))
        assert [job.id for job, _ in step.work] == [number for number in parts if number != out]
        assert step.take_back(victim) == 0
        assert composition(step) == tuple(map(sum, zip(*rest, strict=True)))
    again = Step()
    again.add_prompt(decodes[0], 1)
    assert composition(again) == (1, 1, 0, 1 * (2 * 11 + 1), 0), "as a prompt, though it decodes"


def test_what_a_step_costs_by_hand() -> None:
    """A millisecond a step, 10 µs for each token of a prompt and for each decode, and a microsecond
    for each token of context; transfers that overlap count where they are longer, others always."""
    c = coefficient_array(host_step=1e-3, linear_flops=1e-5, context=1e-6, norm=1.0)
    prices = Prices(StepModel(coefficients=c, frontend_s=0.0), 8)
    us = 1_000_000
    prompt = Step(prefill_tokens=50, prefill_sequences=1)
    decodes = Step(decode_sequences=3, context_tokens=400)
    mixed = Step(prefill_tokens=50, prefill_sequences=1, decode_sequences=3, context_tokens=400)
    assert prices.of(prompt) == pytest.approx(1500 * us, abs=2)
    assert prices.of(decodes) == pytest.approx(1430 * us, abs=2)
    assert prices.of(mixed) == pytest.approx(1930 * us, abs=2)
    assert prices.of(decodes, 0.5) == pytest.approx(prices.of(decodes), abs=2), "has no experts"
    for transfer, overlap, takes in (
        (700, 0, 2130),
        (0, 1400, 1430),
        (0, 1600, 1600),
        (5, 2000, 2005),
    ):
        waits = replace(decodes, transfer_ps=transfer * us, overlap_ps=overlap * us)
        assert prices.of(waits) == pytest.approx(takes * us, abs=2)


def test_a_share_of_the_experts_costs_less_in_every_kind_of_step() -> None:
    prices = Prices(StepModel(coefficients=ROOFLINE, frontend_s=0.0), 8)
    for step in (Step(prefill_tokens=40, prefill_sequences=1), Step(decode_sequences=4)):
        whole, almost, half = (prices.of(step, share) for share in (1.0, 1 - 1e-9, 0.5))
        assert half < whole
        assert almost == pytest.approx(whole, rel=1e-6)
