"""Prompts of exact lengths, and those that share pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.bench.parts import words_tokenizer
from tests.bench.recorded import write
from tonnage.bench.prompts import prompts
from tonnage.formats.sessions import read_sessions


@pytest.mark.parametrize("exact", [False, True])
def test_two_prompts_are_equal_as_far_as_their_pieces_are(exact: bool, tmp_path: Path) -> None:
    contents = read_sessions(write(tmp_path / "s.jsonl", pause=0.1), "sessions").contents
    recorded = read_sessions(str(tmp_path / "s.jsonl"), "sessions")
    tokenizer = tmp_path / "tokenizer.json"
    if exact:
        words_tokenizer(tokenizer)
    made = prompts(seed=3, tokenizer=tokenizer if exact else None)
    rows = [list(zip(*contents.of(row), strict=True)) for row in range(len(contents))]
    texts = [made.of_pieces(row, int(isl)) for row, isl in zip(rows, recorded.isl, strict=True)]
    for one in range(len(rows)):
        assert (made.counter.count(texts[one]) if exact else len(texts[one]) / 4) == recorded.isl[
            one
        ]
        for other in range(one):
            shared = 0
            for (piece, until), (theirs, reaches) in zip(rows[one], rows[other], strict=False):
                if piece != theirs:
                    break
                shared = min(until, reaches, int(recorded.isl[one]), int(recorded.isl[other]))
                if until != reaches:
                    break
            units = [
                text.split() if exact else [text[at : at + 4] for at in range(0, len(text), 4)]
                for text in (texts[one], texts[other])
            ]
            found = next(
                (
                    place
                    for place, pair in enumerate(zip(*units, strict=False))
                    if pair[0] != pair[1]
                ),
                len(units[1]),
            )
            assert shared <= found <= shared + 2, "as much as was recorded, and hardly more"


def test_prompts_have_exactly_the_tokens_asked_for_and_beginnings_of_their_own(
    tmp_path: Path,
) -> None:
    path = words_tokenizer(tmp_path / "tokenizer.json")
    counter = Tokenizer.from_file(str(path))
    for shared in (0, 30):
        made = prompts(seed=3, tokenizer=path, shared_tokens=shared)
        assert made.exact
        texts = [made.text(number, 64) for number in range(50)]
        assert {len(counter.encode(text).ids) for text in texts} == {64}
        assert len(set(texts)) == 50
        assert texts[7] == prompts(seed=3, tokenizer=path, shared_tokens=shared).text(7, 64)
        assert [len(counter.encode(made.text(1, n)).ids) for n in (40, 500, 2_000)] == [
            40,
            500,
            2_000,
        ]
        lead = len(made.shared)
        assert len({text[lead : lead + 40] for text in texts}) == 50
        assert {text[:lead] for text in texts} == {made.shared}
