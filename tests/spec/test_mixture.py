"""Lengths of several kinds, mixed by their shares."""

from __future__ import annotations

import numpy as np
import pytest

import tonnage
from tonnage import api
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.spec.use_cases import PRESETS, mixture_of

PATTERNS = ("short-in-short-out", "short-in-long-out", "long-in-short-out", "long-in-long-out")


def test_the_four_patterns_are_presets_and_mix_by_their_shares() -> None:
    found = mixture_of(", ".join(f"{name} {share}" for name, share in zip(PATTERNS, (0.4, 0.3, 0.2, 0.1), strict=True)), "")
    pairs = list(zip(found.isl, found.osl, strict=True))
    for name, share in zip(PATTERNS, (0.4, 0.3, 0.2, 0.1), strict=True):
        preset = PRESETS[name]
        assert pairs.count((int(preset.isl), int(preset.osl))) == round(1000 * share)
    drawn = found.draw(50_000, np.random.default_rng(1))
    assert drawn[0].mean() == pytest.approx(0.7 * 128 + 0.3 * 2048, rel=0.02)
    assert np.corrcoef(*drawn)[0, 1] == pytest.approx(np.corrcoef(found.isl, found.osl)[0, 1], abs=0.02)


def test_shares_that_are_no_thousandths_still_make_a_thousand_pairs() -> None:
    found = mixture_of("chatbot 0.33333333, rag 0.33333333, 4000/300 0.33333334", "")
    assert len(found.isl) == 1000
    assert {found.isl.count(value) for value in (500, 3500, 4000)} <= {333, 334}


def test_shares_may_be_percentages() -> None:
    assert mixture_of("chatbot 70%, rag 30 %", "") == mixture_of("chatbot 0.7, rag 0.3", "")


def test_a_mixture_is_simulated_and_sized() -> None:
    record = tonnage.simulate(model="llama-3.1-8b", mixture="short-in-short-out 0.7, 4000/30 0.3", request_rate=3, requests=100).requests
    assert set(zip(record.isl.tolist(), record.osl.tolist(), strict=True)) == {(128, 128), (4000, 30)}
    question = api.ask(model="llama-3.1-8b", mixture="short-in-short-out 0.7, 4000/30 0.3", peak_rps=3, ttft="p95<=2s").questions[0]
    assert question.pairs is not None
    assert question.isl.mean == pytest.approx(0.7 * 128 + 0.3 * 4000)


def test_the_command_and_a_scenario_take_one(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["simulate", "--model", "llama-3.1-8b", "--request-rate", "3", "--requests", "50"]
    assert run([*flags, "--mixture", "short-in-short-out 0.5, long-in-short-out 0.5"]) == 0
    assert "mixture (mean" in capsys.readouterr().out
    assert run([*flags, "--mixture", "short-in-short-out 0.5, long-in-short-out 0.5", "--isl", "5"]) == 2
    scenario = {"model": "llama-3.1-8b", "lengths": {"mixture": "short-in-short-out 1"}}
    assert set(tonnage.simulate(scenario, request_rate=3, requests=20).requests.isl.tolist()) == {128}


@pytest.mark.parametrize(
    "text", ["short-in-short-out", "short 0.5, long 0.5", "rag 0.5, chatbot 0.4", "0/5 1", "100/200 -1", "rag 0, chatbot 1"]
)
def test_what_is_no_mixture_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="mixture"):
        mixture_of(text, "mixture")
