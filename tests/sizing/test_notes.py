"""Notes of a plan: what a reader must know."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.sizing.outside_rows import found
from tonnage.plan.notes import LimitHalvesThroughput
from tonnage.plan.sensitivity import Changed, Sensitivity, Swing
from tonnage.report.plans.notes import warning_text
from tonnage.sizing.notes import length_to_shorten, link_share, warnings
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.accuracy import find_score


def rules(**changed: object) -> dict[str, float]:
    return {warned.rule: warned.value for warned in warnings(found(**changed), None)}


def test_large_models_and_wide_groups_over_pcie_are_warned_about_with_their_share_of_the_step() -> (
    None
):
    said = rules(model="llama-3.1-70b", gpu="l40s", tp="4", ttft=None, peak_rps=5)
    assert {"nvlink", "tp-over-pcie"} <= set(said)
    assert 0 < said["nvlink"] < 1
    assert said["nvlink"] == said["tp-over-pcie"]
    assert not {"nvlink", "tp-over-pcie"} & set(
        rules(model="llama-3.1-70b", gpu="h100", tp="4", ttft=None, peak_rps=5)
    )


def test_a_pair_over_pcie_is_warned_about_its_link_and_one_gpu_is_not() -> None:
    warned = rules(gpu="l40s", tp="2", ttft=None, peak_rps=5)
    assert {"nvlink", "tp-over-pcie"} & set(warned) == {"tp-over-pcie"}
    assert 0 < warned["tp-over-pcie"] < 0.5
    assert not {"nvlink", "tp-over-pcie"} & set(rules(gpu="l40s", tp="1", ttft=None, peak_rps=5))
    assert link_share(found(gpu="l40s", tp="1", ttft=None).ready.instance) == 0


def test_a_limit_that_halves_throughput_is_shown_with_the_throughput_without_it() -> None:
    tight = found(tp="1", isl=2000, ttft="p95<=70ms", e2e="p95<=20s")
    warned = next(w for w in warnings(tight, None) if w.rule == "limit-halves-throughput")
    free = found(tp="1", isl=2000, ttft=None, e2e="p95<=20s")
    ratio = free.as_predicted.rate / tight.as_predicted.rate
    assert warned.value == pytest.approx(ratio, rel=0.05)  # of more systems each
    assert isinstance(warned, LimitHalvesThroughput)
    assert f"{warned.requests_per_second_without:.3g}" in warning_text(warned)
    assert "limit-halves-throughput" not in rules(tp="1", isl=2000, ttft="p95<=2s", e2e="p95<=20s")


def swings(isl: float | None, osl: float | None, size: int = 8) -> Sensitivity:
    """Of a plan of ten systems with 8 GPUs each: exactly so many with each length 20 % shorter, in
    systems of ``size`` GPUs."""
    base = Changed(
        change=0.2, systems=13, systems_exact=12.5, deployment=None, gpus=104, reason=None
    )

    def low(exact: float | None) -> Changed:
        systems = None if exact is None else math.ceil(exact)
        return replace(
            base, change=-0.2, systems=systems, systems_exact=exact, gpus=size * (systems or 0)
        )

    rows = [
        Swing(input=name, low=low(exact), high=base) for name, exact in (("isl", isl), ("osl", osl))
    ]
    return Sensitivity(systems=10, systems_exact=10.0, swings=tuple(rows), relaxed=None)


def test_advice_on_lengths_is_read_off_the_sensitivity() -> None:
    prompts, answers = (
        length_to_shorten(swings(7.0, 9.5), 80),
        length_to_shorten(swings(10.0, 8.0), 80),
    )
    assert (prompts.which, prompts.saved, prompts.other_saved, prompts.value) == (
        "isl",
        3.0,
        0.5,
        6.0,
    )
    assert (
        warning_text(prompts)
        == "shorten prompts first: 20% shorter prompts save 24 GPUs (3.00 systems before rounding),"
        " 20% shorter answers 0.500"
    )
    assert (answers.which, answers.saved, answers.other_saved) == ("osl", 2.0, 0.0)
    for none in (swings(9.0, 9.0), swings(9.1, 10.0), swings(None, None)):
        assert length_to_shorten(none, 80) is None
    assert length_to_shorten(None, 80) is None


def test_systems_of_another_size_are_counted_by_their_gpus() -> None:
    """Nine tenths of a rack of 72 GPUs is 8.1 systems of 8; a whole rack saves 8 of the 80 GPUs."""
    found = length_to_shorten(swings(0.9, 1.1, size=72), 80)
    assert (found.gpus, found.which) == (8, "isl")
    assert found.saved == pytest.approx(10 - 8.1)


def test_where_one_system_is_enough_no_limit_is_blamed() -> None:
    assert "limit-halves-throughput" not in rules(
        tp="1", isl=2000, ttft="p95<=85ms", e2e="p95<=20s", peak_rps=1
    )


def test_a_smaller_model_with_the_same_published_score_is_named() -> None:
    chosen = found(model="llama-2-70b", gpu="h100", tp="4", ttft=None, peak_rps=5)
    warned = next(w for w in warnings(chosen, None) if w.rule == "smaller-model")
    named = find_model(warned.other)
    assert warned.value == pytest.approx(
        chosen.contender.question.model.parameters / named.parameters
    )
    assert warned.value >= 2
    scores = [find_score(name) for name in (named.name, "llama-2-70b")]
    assert all(score is not None and f"{score.score:g}" in warning_text(warned) for score in scores)
    assert scores[0].score >= scores[1].score
    assert "smaller-model" not in rules(model="llama-3.1-8b", ttft=None)


def test_scores_asked_another_way_name_no_smaller_model() -> None:
    """Phi 4's 84.8 without examples is no answer to the 83.3 of a base model with five."""
    assert "smaller-model" not in rules(model="qwen2.5-32b", gpu="h100", tp="1,2", ttft=None)
