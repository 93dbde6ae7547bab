"""Candidates: their memory, and how sure their number of systems is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.questions import best, plans_with, question
from tests.sizing.explained import carried
from tonnage.plan.candidate import MOST_TIMES
from tonnage.sizing.search.candidate import candidate, memory_parts

few_parts = plans_with("tail")


def test_memory_adds_up_to_the_gpu() -> None:
    instance = carried().ready.instance
    parts = memory_parts(instance)
    assert sum(part.bytes_per_gpu for part in parts) == instance.deployment.gpu.memory_bytes
    assert sum(part.share for part in parts) == pytest.approx(1)


def test_a_chance_is_the_percentile_at_which_the_systems_are_just_enough() -> None:
    """Without limits an instance whose steps take f times as long carries an f-th: the chance is
    known in closed form."""
    sized = best(question(tp="1", ttft=None, peak_rps=1500))
    found = candidate(sized, chosen=True)
    carried, errors = sized.as_predicted.rate, sized.contender.errors["requests_s"]
    spare = carried * sized.instances / 1500
    chance = next(p / 1e3 for p in range(999, 0, -1) if errors.factor(p / 1e3) <= spare)
    assert found.confidence.meets == pytest.approx(chance, abs=0.006)
    assert 0.8 <= found.confidence.meets < 0.999


@pytest.mark.parametrize("asked", [{"ttft": "p95<=120ms"}, {"model": "llama-3.1-70b", "tp": "4,8"}])
def test_systems_for_more_confidence_are_never_fewer_and_at_most_twice_those_that_were_asked_for(
    asked: dict[str, Any],
) -> None:
    found = candidate(best(question(**asked)), chosen=True)
    assert found.confidence is not None
    counts = [found.confidence.systems[share] for share in ("50", "80", "95")]
    numbers = [count for count in counts if count is not None]
    assert numbers == sorted(numbers)
    assert numbers[-1] <= MOST_TIMES * found.systems
    assert found.systems in numbers
