"""Lengths in words, in every form that a question knows."""

from __future__ import annotations

import pytest

from tonnage.report.wording.lengths import as_written, in_tokens, length_text


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


@pytest.mark.parametrize(("written", "text"), [("200", "200"), ("100000", "100,000"), ("uniform:500-3500", "uniform:500-3500"), ("", "")])
def test_plain_numbers_have_their_thousands_separated(written: str, text: str) -> None:
    assert as_written(written) == text


@pytest.mark.parametrize(("written", "text"), [("8000chars", "2,000 (8000chars)"), ("200", "200"), ("1500words", "2,000 (1500words)")])
def test_what_is_not_written_in_tokens_is_shown_in_them(written: str, text: str) -> None:
    assert in_tokens(written, 2000.0) == text
