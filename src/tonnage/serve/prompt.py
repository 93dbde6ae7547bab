"""What a client sent, as an engine gets it: its number of tokens, and, for a real engine, the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Count = Callable[[str], int]
"""Tokens of a text."""

PER_MESSAGE = 4
"""Tokens that a chat template adds to each message, roughly those of ChatML (role, two markers, a line break)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a chat: who says it, and its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt.

    Attributes:
        tokens: how many there are, 1 or more.
        ids: the tokens; empty for an engine that is simulated and needs their number alone.
    """

    tokens: int
    ids: tuple[int, ...] = ()


class Reader(Protocol):
    """Makes prompts of what clients send."""

    def text(self, text: str) -> Prompt:
        """Of a text."""

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """Of a chat, with the model's template."""

    def ids(self, ids: Sequence[int]) -> Prompt:
        """Of token ids.

        Raises:
            Refused: ids that the model does not have.
        """


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts prompts for a simulated engine.

    Attributes:
        count: tokens of a text.
    """

    count: Count

    def text(self, text: str) -> Prompt:
        """A text has one token at least."""
        return Prompt(tokens=max(self.count(text), 1))

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """The texts, and what a template adds to each of them."""
        return Prompt(tokens=sum(PER_MESSAGE + self.count(message.text) for message in messages))

    def ids(self, ids: Sequence[int]) -> Prompt:
        """As many tokens as ids."""
        return Prompt(tokens=len(ids))
