"""Answers piece by piece."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tonnage.serve.answer import StopTexts

LETTERS = st.text("ab", max_size=12)


@given(
    pieces=st.lists(LETTERS, max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_pieces_give_what_the_whole_text_gives(pieces: list[str], stops: list[str]) -> None:
    texts, given_out = StopTexts(stops), ""
    whole = "".join(pieces)
    for i, piece in enumerate(pieces):
        given_out += texts.take(piece)
        if texts.found:
            break
        # Nothing given out may have to be taken back, and no more is held than may begin a stop
        # text.
        assert whole.startswith(given_out)
        assert len("".join(pieces[: i + 1])) - len(given_out) < max(
            (len(stop) for stop in stops), default=1
        )
    given_out += texts.rest()
    # A stop text ends the text as soon as it is complete; of those that one piece completes, the
    # one that begins first counts.
    seen = ""
    expected = whole
    for piece in pieces:
        seen += piece
        begins = [place for stop in stops if (place := seen.find(stop)) >= 0]
        if begins:
            expected = seen[: min(begins)]
            break
    assert given_out == expected
