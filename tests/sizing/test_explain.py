"""Why the chosen point is where it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.questions import best, contenders, question
from tests.sizing.explained import carried, sized
from tonnage.perf.step import step_seconds
from tonnage.simulator.first_token import PARTS
from tonnage.simulator.request import (
    ALL_TOKENS,
    CONTEXT_TOKENS,
    DECODE_SEQUENCES,
    DURATION,
    PREFILL_TOKENS,
    STEP_COLUMNS,
)
from tonnage.sizing.explain import explained, step_terms
from tonnage.sizing.search.candidate import memory_parts
from tonnage.sizing.search.deployment_capacity import Contender


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_the_terms_of_every_step_sum_to_the_price_of_it(model: str) -> None:
    one = carried(model=model, tp="2")
    steps = one.ready.instance.recorded(one.capacity.rate, 500, 2_000).steps
    c = one.ready.instance.step.coefficients
    prices = [
        step_seconds(c, *(int(v) for v in row[PREFILL_TOKENS : CONTEXT_TOKENS + 1]))
        for row in steps
    ]
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
    one = next(
        each
        for each in contenders(question(speculation=guessed, tp="2"))
        if each.ready.trial.deployment.speculation
    )
    instance, drafting = one.instance, one.instance.step.drafting
    assert drafting is not None
    steps = instance.recorded(50.0, 500, 2_000).steps
    free = replace(instance.step, drafting=replace(drafting, passes=0))
    prices = [
        free.seconds(*(int(v) for v in row[PREFILL_TOKENS : CONTEXT_TOKENS + 1])) for row in steps
    ]
    np.testing.assert_allclose(
        sum(step_terms(free.coefficients, steps, drafting).values()), prices, rtol=1e-12
    )
    found = explained(sized(one))
    assert 0 < next(t.share for t in found.terms if t.term == "drafter") < 0.5
    assert sum(term.share for term in found.terms) == pytest.approx(1.0)
    assert (
        next(part.bytes_per_gpu for part in memory_parts(instance) if part.part == "drafter")
        == instance.memory.drafter_bytes
        > 0
    )


def test_the_shares_add_up_and_the_largest_binds() -> None:
    found = explained(carried(tp="2"))
    assert sum(term.seconds for term in found.terms) == pytest.approx(found.step_seconds, rel=1e-6)
    assert found.binds == found.terms[0].term
    assert [t.seconds for t in found.terms] == sorted(
        (t.seconds for t in found.terms), reverse=True
    )
    assert next(t.seconds for t in found.terms if t.term == "link") > 0


def test_the_parts_of_a_ttft_are_those_of_the_run_that_found_the_load() -> None:
    found = explained(carried(ttft="p95<=300ms", tpot="mean 1s"))
    mean, p95 = found.ttft
    assert sum(getattr(p95, part) for part in PARTS[:-1]) == pytest.approx(found.limits[0].value_ms)
    assert 0 < mean.front_end_ms < mean.prefill_ms
    assert mean.queue_ms < p95.queue_ms
    assert p95.handover_ms == p95.saved_ms == 0


def test_the_steps_at_the_start_explain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fifth of a run fills the engine: steps a thousand times as long there change no
    mean."""
    found, recorded = best(question(tp="1")), Contender.recorded
    plain = explained(found)

    def begun_slowly(self: Contender, *asked: Any) -> tuple[Any, float, Any]:
        instance, rate, steps = recorded(self, *asked)
        steps = steps.copy()
        steps[: len(steps) // 5, DURATION] *= 1_000
        return instance, rate, steps

    monkeypatch.setattr(Contender, "recorded", begun_slowly)
    assert explained(found) == plain


def test_a_step_of_ranks_has_its_share_of_the_tokens_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of four ranks the fullest has 12 tokens: of 36 in all three quarters are real; with drafts of
    two, 10 + 3 · 2 = 16 of 36."""
    seen: list[Any] = []
    monkeypatch.setattr(
        "tonnage.perf.vectorised_step.parts", lambda c, contents, drafting: seen.append(contents)
    )
    steps = np.zeros((1, STEP_COLUMNS), np.int64)
    steps[0, [PREFILL_TOKENS, DECODE_SEQUENCES, ALL_TOKENS]] = (10, 2, 36)
    step_terms(np.zeros(1), steps, None, 4)
    step_terms(np.zeros(1), steps, SimpleNamespace(tokens=2), 4)  # type: ignore[arg-type]
    step_terms(np.zeros(1), steps)
    assert seen[0].share.tolist() == [36 / 48]
    assert seen[1].share.tolist() == [36 / 64]
    assert seen[2].share == 1.0
    assert (seen[0].prefill_tokens.tolist(), seen[0].decode_sequences.tolist()) == ([10.0], [2.0])
