"""The engine's flags, without those that a target sets by itself."""

from __future__ import annotations

from collections.abc import Sequence


def without(words: Sequence[str], *left_out: str) -> list[str]:
    """The words of a command without some flags and the values behind them.

    Args:
        words: flags and values.
        left_out: flags with a value.
    """
    found: list[str] = []
    place = 0
    while place < len(words):
        if words[place] in left_out:
            place += 2
            continue
        found.append(words[place])
        place += 1
    return found
