"""Text of tokens that come one after another; a character whose bytes are not all there yet is waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"
MORE = 3
"""Tokens, at most, that may follow the first byte of a character before it is whole, in a byte-level vocabulary."""


class Detokenizer:
    """Decodes the output of one request.

    A token's text depends on the one before it (a leading space), so that each step decodes from the last place where whole
    characters ended, and gives out what is new.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """No token has come yet.

        Args:
            decode: the text of some tokens.
        """
        self._decode = decode
        self._ids: list[int] = []
        self._begin = self._read = 0
        self._given = 0  # characters of the present window
        self._waited = -1  # tokens since a character was broken for the first time; -1 while none is

    def take(self, ids: Sequence[int], *, last: bool = False) -> str:
        """The text of further tokens.

        Args:
            ids: the tokens.
            last: whether none will follow, so that a broken character is given out as it is.
        """
        self._ids += ids
        before = self._decode(self._ids[self._begin : self._read]) if self._read > self._begin else ""
        text = self._decode(self._ids[self._begin :])[len(before) :] if len(self._ids) > self._begin else ""
        whole = text.rstrip(BROKEN)
        goes_on = len(whole) > self._given
        self._waited = 0 if goes_on or self._waited < 0 else self._waited + len(ids)
        if whole != text and not last and self._waited < MORE:
            piece, self._given = whole[self._given :], max(self._given, len(whole))
            return piece
        piece = text[self._given :]
        if text:
            self._begin, self._read, self._given, self._waited = self._read, len(self._ids), 0, -1
        return piece
