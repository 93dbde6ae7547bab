"""The step taken apart adds up to the step, and the memory to the GPU's."""

from dataclasses import replace

import numpy as np
import pytest

from tests.questions import contenders, question
from tonnage.perf.step import step_seconds
from tonnage.simulator.request import CONTEXT_TOKENS, PREFILL_TOKENS
from tonnage.sizing.explain import explained, step_terms
from tonnage.sizing.search.candidate import memory_parts
from tonnage.sizing.search.contender import Contender, Sized


def sized(one: Contender) -> Sized:
    return Sized(contender=one, level=None, systems=1, capacity=one.capacity(1))


def carried(**changed: object) -> Sized:
    return sized(contenders(question(**changed))[0])


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_the_terms_of_every_step_sum_to_the_price_of_it(model: str) -> None:
    one = carried(model=model, tp="2")
    steps = one.ready.instance.recorded(one.capacity.rate, 500, 2_000).steps
    c = one.ready.instance.step.coefficients
    prices = [step_seconds(c, *(int(v) for v in row[PREFILL_TOKENS : CONTEXT_TOKENS + 1])) for row in steps]
    np.testing.assert_allclose(sum(step_terms(c, steps).values()), prices, rtol=1e-12)


def test_the_front_end_is_busy_with_what_it_streams() -> None:
    one = carried(tp="1")
    tokens = one.as_predicted.rate * one.ready.instance.traffic.osl.mean
    assert explained(one).front_end_busy == pytest.approx(tokens * one.ready.instance.step.stream_s)
    instance = one.ready.instance
    instance.spec = replace(instance.spec, step=replace(instance.step, stream_s=1e-4))
    assert explained(one).front_end_busy == pytest.approx(tokens * 1e-4)


def test_guesses_have_a_term_of_their_own() -> None:
    guessed = "mtp k=2 acceptance=0.6"
    one = next(each for each in contenders(question(speculation=guessed, tp="2")) if each.ready.trial.deployment.speculation)
    instance, drafting = one.instance, one.instance.step.drafting
    assert drafting is not None
    steps = instance.recorded(50.0, 500, 2_000).steps
    free = replace(instance.step, drafting=replace(drafting, passes=0))
    prices = [free.seconds(*(int(v) for v in row[PREFILL_TOKENS : CONTEXT_TOKENS + 1])) for row in steps]
    np.testing.assert_allclose(sum(step_terms(free.coefficients, steps, drafting).values()), prices, rtol=1e-12)
    found = explained(sized(one))
    assert 0 < next(t.share for t in found.terms if t.term == "drafter") < 0.5
    assert sum(term.share for term in found.terms) == pytest.approx(1.0)
    assert next(part.bytes_per_gpu for part in memory_parts(instance) if part.part == "drafter") == instance.memory.drafter_bytes > 0


def test_the_shares_add_up_and_the_largest_binds() -> None:
    found = explained(carried(tp="2"))
    assert sum(term.seconds for term in found.terms) == pytest.approx(found.step_seconds, rel=1e-6)
    assert found.binds == found.terms[0].term
    assert [t.seconds for t in found.terms] == sorted((t.seconds for t in found.terms), reverse=True)
    assert next(t.seconds for t in found.terms if t.term == "link") > 0


def test_one_gpu_has_no_link_term() -> None:
    assert next(t.seconds for t in explained(carried(tp="1")).terms if t.term == "link") == 0


def test_limits_are_shown_with_what_is_used_of_them() -> None:
    found = explained(carried(ttft="p95<=300ms", tpot="mean 1s"))
    assert [str(use.limit) for use in found.limits] == ["TTFT p95 ≤ 300 ms", "TPOT mean ≤ 1 s"]
    assert all(use.used is not None and 0 < use.used <= 1 for use in found.limits)


def test_memory_adds_up_to_the_gpu() -> None:
    instance = carried().ready.instance
    parts = memory_parts(instance)
    assert sum(part.bytes_per_gpu for part in parts) == instance.deployment.gpu.memory_bytes
    assert sum(part.share for part in parts) == pytest.approx(1)
