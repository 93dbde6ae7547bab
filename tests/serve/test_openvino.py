from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tonnage.serve.openvino import BROKEN, Detokenizer


def decode(ids: Sequence[int]) -> str:
    """A vocabulary of single bytes."""
    return bytes(ids).decode("utf-8", "replace")


@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 3), max_size=60))
def test_characters_come_whole_however_their_bytes_come(text: str, cuts: list[int]) -> None:
    ids, detokenizer, pieces = list(text.encode()), Detokenizer(decode), []
    for size in [*cuts, len(ids) or 1]:
        taken, ids = ids[:size], ids[size:]
        pieces.append(detokenizer.take(taken))
        assert BROKEN not in pieces[-1] or BROKEN in text
    pieces.append(detokenizer.take([], last=True))
    assert "".join(pieces) == text


@given(ids=st.lists(st.integers(0, 255), max_size=40))
def test_bytes_that_are_no_text_are_given_out_in_the_end(ids: list[int]) -> None:
    detokenizer = Detokenizer(decode)
    pieces = [detokenizer.take([one]) for one in ids]
    pieces.append(detokenizer.take([], last=True))
    assert len("".join(pieces)) > 0 or not ids
    assert set("".join(pieces)) - {BROKEN} <= set(decode(ids)) | {
        chr(one) for one in ids if one < 128
    }


def test_a_leading_space_depends_on_the_token_before() -> None:
    words = {1: "the", 2: "fox", 3: "runs"}
    detokenizer = Detokenizer(lambda ids: " ".join(words[one] for one in ids))
    assert [detokenizer.take([one]) for one in (1, 2, 3)] == ["the", " fox", " runs"]
