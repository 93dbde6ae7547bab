"""Lengths in words, in every form that a question knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.example_plan import full
from tonnage.plan.note import LengthsVary
from tonnage.report.plans.question import in_tokens, length_text, lengths_text, short_length


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("2000", "2,000 tokens"),
        ("1e3", "1e3 tokens"),
        ("2000+-500", "2,000 ± 500 tokens (normal)"),
        ("normal:250,80", "250 ± 80 tokens (normal)"),
        ("lognormal:600,400", "600 ± 400 tokens (lognormal)"),
        ("uniform:20-120", "20 to 120 tokens"),
        ("lengths.csv", "lengths.csv tokens"),
        ("8000chars", "8,000 characters"),
        ("3500words", "3,500 words"),
    ],
)
def test_length_text(written: str, said: str) -> None:
    assert length_text(written) == said


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("200", "200"),
        ("100000", "100,000"),
        ("uniform:500-3500", "500 to 3,500"),
        ("normal:250,80", "250 ± 80 (normal)"),
        ("a.csv", "a.csv"),
    ],
)
def test_a_short_length_leaves_out_its_unit(written: str, text: str) -> None:
    assert short_length(written) == in_tokens(written, 2000.0) == text


@pytest.mark.parametrize(("written", "text"), [("8000chars", "2,000 (8,000 characters)"), ("1500words", "2,000 (1,500 words)")])
def test_what_is_not_written_in_tokens_is_shown_in_them(written: str, text: str) -> None:
    assert in_tokens(written, 2000.0) == text


def test_a_spread_that_is_assumed_is_said_once() -> None:
    asked = replace(full().scenario, isl="2000+-20%", osl="200+-20%")
    both, one = (LengthsVary(which=which, share=0.2) for which in (("isl", "osl"), ("osl",)))
    assert lengths_text(replace(full(), scenario=asked, notes=(both,))) == "2,000 tokens in, 200 out (lengths within ±20%, assumed)"
    assert lengths_text(replace(full(), scenario=asked, notes=(one,))) == "2,000 ± 20% tokens in, 200 out (answers within ±20%, assumed)"
    assert lengths_text(replace(full(), scenario=asked, notes=())) == "2,000 ± 20% tokens in, 200 ± 20% out"
