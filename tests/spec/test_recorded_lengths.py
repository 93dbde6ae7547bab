"""The spread of recorded lengths: the catalog's numbers are those of the traces, and single lengths
take them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tonnage
from benchmarks.spreads import TRACES, computed
from tests.questions import plans_with
from tonnage import api
from tonnage.errors import InputError
from tonnage.report.plans.explained import spread_text
from tonnage.report.plans.question import lengths_text
from tonnage.sizing.sensitivity import other_spreads
from tonnage.spec.catalog.entries import recorded_lengths
from tonnage.spec.lengths import Lengths, with_spread

parts = plans_with("sensitivity")
ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "l40s",
    "precision": "fp8",
    "tp": 1,
    "engine": "vllm",
    "ttft": "p95<=300ms",
}


@pytest.mark.parametrize("name", recorded_lengths())
def test_the_table_is_what_the_traces_say(name: str) -> None:
    row = recorded_lengths()[name]
    if not (TRACES / row.trace).exists():
        pytest.skip(f"{row.trace} is not here")
    assert {key: getattr(row, key) for key in computed(row)} == computed(row)
    assert row.source
    assert 0.5 < row.isl_cv < 2.5


def test_lengths_as_recorded_have_the_mean_and_the_coefficient() -> None:
    chat = recorded_lengths()["chat"]
    for which, plus in (("isl", 0.0), ("isl", 300.0), ("osl", 0.0)):
        drawn = (
            with_spread(Lengths(mean=1000.0), which, chat, plus)
            .draw(400_000, np.random.default_rng(1))
            .astype(float)
        )
        assert drawn.mean() == pytest.approx(1000, rel=0.01)
        assert drawn.std() / (drawn.mean() - plus) == pytest.approx(chat.cv(which), rel=0.02)
        assert drawn.min() >= max(plus, 1)


def test_a_use_case_takes_the_recorded_spread_and_a_bare_mean_does_not() -> None:
    def kinds(**asked: Any) -> tuple[str, str]:
        (question,) = api.ask(None, **{**ASKED, "peak_rps": 5, **asked}).questions
        return str(question.isl), str(question.osl)

    assert kinds(use_case="chatbot") == ("lognormal:500,480", "lognormal:200,154")
    assert kinds(use_case="chatbot", isl=800) == ("lognormal:800,768", "lognormal:200,154")
    assert kinds(use_case="rag", model="llama-3.1-8b") == (
        "lognormal:3500,4620",
        "lognormal:500,355",
    )
    # its context of 8,192 has no room for the longest
    assert kinds(use_case="rag", model="llama-3-8b") == ("3500+-20%", "500+-20%")
    assert kinds(isl=800, osl=100) == ("800+-20%", "100+-20%")
    assert kinds(isl=800, osl=100, spread="exact") == ("exact:800", "exact:100")
    assert kinds(isl="600-1000", osl=100, spread="code") == (
        "uniform:600-1000",
        "lognormal:100,215",
    )
    for text in ("200%", "talk", "-0.1"):
        with pytest.raises(
            InputError,
            match=(
                r"spread: '.*' is no spread; write exact, a share below 100% or one of chat, code,"
                r" documents"
            ),
        ):
            kinds(isl=800, osl=100, spread=text)


def test_simulate_takes_the_same_spread() -> None:
    asked: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "isl": 500,
        "osl": 50,
        "request_rate": 2,
        "requests": 50,
    }
    assert str(tonnage.simulate(**asked).workload.isl) == "500"
    assert str(tonnage.simulate(**asked, spread="chat").workload.isl) == "lognormal:500,480"


def test_other_spreads_are_equal_requests_and_those_of_the_nearest_traffic() -> None:
    def others(**asked: Any) -> dict[str, str]:
        (question,) = api.ask(None, **{**ASKED, "peak_rps": 5, **asked}).questions
        return {name: str(other.isl) for name, other in other_spreads(question).items()}

    assert others(isl=800, osl=100) == {"exact": "exact:800", "chat": "lognormal:800,768"}
    assert list(others(isl=3000, osl=20)) == ["exact", "code"]
    assert list(others(isl=9000, osl=400)) == ["exact", "documents"]
    assert list(others(use_case="chatbot")) == ["exact", "20%"]
    # no room for a longer tail
    assert list(others(isl=7000, osl=400, model="llama-3-8b")) == ["exact"]
    for stated in (
        {"isl": "exact:800", "osl": "exact:100"},
        {"isl": "600-1000", "osl": "lognormal:100,90"},
    ):
        assert others(**stated) == {}


@pytest.mark.accuracy
def test_the_plan_says_what_other_spreads_take_and_asking_says_the_same() -> None:
    asked = {**ASKED, "isl": 800, "osl": 150, "peak_rps": 60}
    plan = tonnage.size(**asked)
    assert plan.sensitivity is not None
    assert [other.spread for other in plan.sensitivity.spreads] == ["exact", "chat"]
    changed = []
    for other in plan.sensitivity.spreads:
        direct = tonnage.size(**asked, spread=other.spread).choice
        assert direct is not None
        assert (other.answer.systems, other.answer.gpus) == (direct.systems, direct.gpus)
        assert other.answer.systems_exact is not None
        assert math.isclose(other.answer.systems_exact, direct.systems_exact or 0, rel_tol=1e-6)
        changed += [other.spread] if direct.systems != plan.sensitivity.systems else []
    text = spread_text(plan)
    assert all(
        (name == "exact" and "equal length" in text) or f"recorded {name}" in text
        for name in changed
    )
    assert bool(text) == bool(changed)
    chat = tonnage.size(**asked, spread="chat")
    assert chat.sensitivity is not None
    assert [other.spread for other in chat.sensitivity.spreads] == ["exact", "20%"]
    assert chat.sensitivity.spreads[1].answer.systems == plan.sensitivity.systems
    assert lengths_text(chat) == "800 tokens in, 150 out (lengths as spread as recorded chat)"
    exact = tonnage.size(**asked, spread="exact")
    assert exact.sensitivity is not None
    assert exact.sensitivity.spreads == ()
