"""Whatever knows about coefficients knows it from their one description."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage import api
from tonnage.perf import pipeline, step, step_terms
from tonnage.perf import step_terms as at
from tonnage.perf.step import StepModel, step_seconds
from tonnage.perf.step_terms import COEFFICIENTS, DURATIONS, LIMITS, PARTS, TERMS, StepTerm
from tonnage.perf.vectorised_step import Steps, parts
from tonnage.plan.plan import TERMS as EXPLAINED
from tonnage.sizing.loads.confidence import slower
from tonnage.sizing.notes import link_share

CONTENTS = (700, 2, 9, 900_000, 20_000)
"""A step of prompts and decodes."""

ALWAYS = {at.NORM: 1.0, at.EXPERT_BYTES: 1e-30, at.EXPERT_MISS: 0.9, at.EXPERT_REST: 1.0, at.WAVE: 0.3}
"""Coefficients without which others would have no effect on the step."""

SWITCHES: dict[int, dict[int, float]] = {
    at.COMM_STEP: {at.ONE_SHOT_TO: 1e6},
    at.COMM_SMALL: {at.ONE_SHOT_TO: 1e6},
    at.STARVED: {at.STARVED_TO: 1e6},
    at.COMM_SLOW: {at.SLOW_TO: 1e6},
    at.HEADS: {at.GROUPED_FROM: 1e6},
    at.SPARSE: {at.SPARSE_MOST: 1e6},
    at.SPARSE_MOST: {at.SPARSE: 1e6},
}
"""The limits inside which a duration is taken."""


def alone(place: int, seconds: float = 1e-3) -> np.ndarray:
    """A step model in which nothing but one duration takes time."""
    c = np.zeros(COEFFICIENTS)
    for other, value in {**ALWAYS, **SWITCHES.get(place, {}), place: seconds}.items():
        c[other] = value
    return c


def named(names: object) -> list[str]:
    return [TERMS[place].name for place in names]


def test_each_term_has_its_name_and_place() -> None:
    assert [term.place for term in TERMS] == list(range(COEFFICIENTS))
    names = {name.lower(): value for name, value in vars(step_terms).items() if name.isupper() and isinstance(value, int)}
    assert {term.name: term.place for term in TERMS} | {"coefficients": COEFFICIENTS} == names
    assert all(term.about and not term.about.endswith(".") for term in TERMS)


def test_every_term_is_used_by_both_price_functions() -> None:
    """The names that a function of ``step`` or ``vectorised_step`` reads are those of all terms."""
    from tonnage.perf import vectorised_step

    def names(code: object) -> set[str]:
        inner = [names(const) for const in code.co_consts if hasattr(const, "co_names")]
        return set(code.co_names).union(*inner)

    for module in (step, vectorised_step):
        functions = [f for f in vars(module).values() if getattr(f, "__module__", "") == module.__name__ and hasattr(f, "__code__")]
        read = set().union(*(names(f.__code__) for f in functions))
        assert {term.name.upper() for term in TERMS} <= read, module.__name__


@pytest.mark.parametrize("place", DURATIONS, ids=named(DURATIONS))
def test_each_duration_is_filed_under_its_part(place: int) -> None:
    """A step in which one duration alone takes time takes as long as the part that the duration belongs to."""
    c = alone(place)
    columns = [np.array([float(value)]) for value in CONTENTS]
    names = "prefill_tokens", "prefill_sequences", "decode_sequences", "attention_pairs_2", "context_tokens"
    found = parts(c, Steps(**dict(zip(names, columns, strict=True))))
    whole = step_seconds(c, *CONTENTS)
    assert whole > 1e-6
    assert found[str(TERMS[place].part)][0] == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("place", DURATIONS, ids=named(DURATIONS))
def test_each_duration_takes_longer_in_a_slower_step(place: int) -> None:
    model = StepModel(coefficients=alone(place), frontend_s=0.0)
    assert slower(model, 1.5).seconds(*CONTENTS) == pytest.approx(1.5 * model.seconds(*CONTENTS), rel=1e-9)


def test_numbers_that_are_no_durations_stay_in_a_slower_step() -> None:
    model = StepModel(coefficients=np.arange(1.0, COEFFICIENTS + 5.0), frontend_s=0.0)
    ratio = slower(model, 1.5).coefficients / model.coefficients
    pure = [term.place for term in TERMS if not term.is_time]
    assert set(LIMITS) <= set(pure)
    assert (ratio[pure] == 1.0).all()
    assert (ratio[list(DURATIONS)] == 1.5).all()
    assert ratio[COEFFICIENTS:].tolist() == [1.0, 1.5, 1.0, 1.5]


def test_every_part_is_explained_in_words_and_has_durations() -> None:
    assert {*PARTS, "drafter", "table"} == set(EXPLAINED)
    assert {term.part for term in TERMS if term.is_time} == set(PARTS)
    assert {term.part for term in TERMS if not term.is_time} == {None}


def test_the_share_of_links_is_that_of_their_terms() -> None:
    class Filled:
        batch = 9
        step = StepModel(coefficients=alone(at.COMM_LARGE) + alone(at.HOST_STEP, 3e-3) - alone(at.NORM, 0.0), frontend_s=0.0)

    Filled.step.coefficients[at.NORM] = 1.0
    assert link_share(Filled) == pytest.approx(0.25)


@pytest.mark.parametrize("term", TERMS, ids=[term.name for term in TERMS])
def test_a_round_scales_each_term_as_described(term: StepTerm) -> None:
    deployment = api.deployment_of(model="mixtral-8x7b", gpu="h100-sxm-80gb", precision="fp8", tp=4, engine="tensorrt-llm-0.9")
    stage = StepModel(coefficients=np.full(COEFFICIENTS, 0.7), frontend_s=0.0)
    staged = replace(deployment, parallelism=replace(deployment.parallelism, pp=3))
    found = pipeline._round(stage, staged, 16, 100).coefficients[term.place]
    expected = {"same": 0.7, "times": 2.1, "share": 0.7 / 3, "root": 0.7 ** (1 / 3)}[term.stages]
    hops = {place for pair in at.MESSAGES for place in pair}
    assert found == pytest.approx(expected, rel=1e-3 if term.place in hops else 1e-12)


def test_limits_of_a_round_are_those_of_all_its_micro_batches() -> None:
    assert {TERMS[place].stages for place in LIMITS} == {"times"}
