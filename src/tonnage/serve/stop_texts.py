"""Ends a text where a stop text begins, and gives out nothing that might still be the beginning of one."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Takes a text piece by piece.

    Attributes:
        found: the stop text that has come, "" before; what follows is not given out.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Nothing has come yet.

        Args:
            stops: texts that are not empty; none of them is given out.
        """
        self._stops = tuple(stops)
        self._held = ""
        self.found = ""

    def take(self, piece: str) -> str:
        """Take a further piece; what can be given out now."""
        if self.found:
            return ""
        if not self._stops:
            return piece
        text = self._held + piece
        places = [(place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            place, self.found = min(places)
            self._held = ""
            return text[:place]
        kept = self._may_begin(text)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return held

    def _may_begin(self, text: str) -> int:
        """The length of the longest end of a text with which a stop text begins."""
        longest = min(len(text), max(map(len, self._stops)) - 1)
        return next((size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in self._stops)), 0)
