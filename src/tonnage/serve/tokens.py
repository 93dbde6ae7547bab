"""Tokens of a simulated engine: by a ``tokenizer.json``, or four characters each; and the words
that it answers with.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from tonnage.bench.prompts import TokenizerFile
from tonnage.serve.dialect import Refused

# What vLLM says of half a character
NO_TEXT = "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"

CHARACTERS = 4  # Of a token, where no tokenizer is given

# Each is one token of four characters, with the space before it, so that an answer that comes back
# in a later prompt has the same tokens.
_WORDS = """
day way man eye job air war sea sun car dog cat art law tax oil bed box map key sky age ear arm boy son cup egg ice ink leg lip net pan
pen pie pin pot row run salt set tea tie toy wax web win wit yes you for and the was his her had but not all can out one two ten six new
old big red hot dry far low few own let see ask try put get use pay say
"""  # noqa: E501
WORDS = tuple(word for word in _WORDS.split() if len(word) == CHARACTERS - 1)
END = 2  # The token that ends an answer, where no tokenizer names one
# Tokens that no text makes, among them the end of an answer and the marks of a message
RESERVED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A token that answers are made of."""

    id: int
    text: str


class Tokens(Protocol):
    """Texts as tokens, and back."""

    @property
    def words(self) -> Sequence[Word]:
        """The tokens that answers are made of."""

    @property
    def size(self) -> int:
        """The size of the vocabulary."""

    @property
    def end(self) -> int:
        """The token that ends an answer."""

    def ids(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text; with ``special`` also the tokens that begin a prompt."""

    def text(self, ids: Sequence[int]) -> str:
        """Text of tokens."""

    def pieces(self, text: str) -> list[Word]:
        """Split a text into tokens, each with its part of the text."""


class Fours:
    """Four characters are a token; a token that no text has made reads as a word."""

    end = END

    def __init__(self, size: int) -> None:
        self.size = max(size, 4 * RESERVED)  # of the vocabulary
        self._number: dict[str, int] = {}
        self._part: dict[int, str] = {}

    @cached_property
    def words(self) -> Sequence[Word]:
        """Words of three letters, each with the space before it."""
        return tuple(self.pieces("".join(f" {word}" for word in WORDS)))

    def ids(self, text: str, *, special: bool = True) -> list[int]:
        """A token for every four characters."""
        numbers = self._number
        parts = [text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS)]
        return [numbers.get(part) or self._new(part) for part in parts]

    def text(self, ids: Sequence[int]) -> str:
        """Text of tokens."""
        return "".join(
            self._part.get(identifier) or self.words[identifier % len(WORDS)].text
            for identifier in ids
            if identifier != END
        )

    def pieces(self, text: str) -> list[Word]:
        """Split a text into tokens."""
        return [
            Word(id=identifier, text=text[CHARACTERS * i : CHARACTERS * (i + 1)])
            for i, identifier in enumerate(self.ids(text))
        ]

    def _new(self, part: str) -> int:
        """A number for characters, the same in every process but where two parts would have the
        same.
        """
        span = self.size - RESERVED
        at = zlib.crc32(part.encode("utf-8", "surrogatepass")) % span
        tries = 0
        while RESERVED + at in self._part and tries < 64:
            at, tries = (at + 1) % span, tries + 1
        number = RESERVED + at
        self._number.pop(self._part.get(number, ""), None)
        self._number[part], self._part[number] = number, part
        return number


class FileTokens:
    """Tokens by a local ``tokenizer.json``."""

    def __init__(self, file: TokenizerFile) -> None:
        self._file, self._tokenizer = file, file.tokenizer
        self.size: int = self._tokenizer.get_vocab_size()  # of the vocabulary
        # the token that ends an answer
        self.end: int = next(
            (
                identifier
                for name in _ENDS
                if (identifier := self._tokenizer.token_to_id(name)) is not None
            ),
            END,
        )

    @cached_property
    def words(self) -> Sequence[Word]:
        """Words that are one token each."""
        return tuple(
            word
            for text in self._file.words(256)
            for word in self.pieces(f" {text}"[:64])
            if word.text.strip()
        )

    def ids(self, text: str, *, special: bool = True) -> list[int]:
        """Tokens of a text."""
        identifiers: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return identifiers

    def text(self, ids: Sequence[int]) -> str:
        """Text of tokens."""
        decoded: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return decoded

    def pieces(self, text: str) -> list[Word]:
        """A text as tokens; of a character that takes several tokens the first has it."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        words, done = [], 0
        for identifier, (_, end) in zip(encoded.ids, encoded.offsets, strict=True):
            words.append(Word(id=identifier, text=text[done : max(end, done)]))
            done = max(end, done)
        return words


_ENDS = (
    "</s>",
    "<|eot_id|>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "[EOS]",
)


PER_MESSAGE, PER_CHAT = 4, 2
"""Tokens that a chat template adds to each message and to the whole, roughly those of ChatML (role,
two markers, a line break)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a chat: who says it, and its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt."""

    ids: tuple[int, ...]  # its tokens, one or more
    text: str = ""  # as the client sent it; "" where that was tokens

    @property
    def tokens(self) -> int:
        """The number of prompt tokens."""
        return len(self.ids)


class Reader(Protocol):
    """Makes prompts of what clients send."""

    def text(self, text: str, *, special: bool = True) -> Prompt:
        """Encode a text; with ``special`` the model's own tokens go before it."""

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """Encode a chat by the model's template."""

    def ids(self, ids: Sequence[int]) -> Prompt:
        """Accept token ids as they are. Raises Refused: ids that the model does not have."""


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Makes prompts for a simulated engine."""

    tokens: Tokens

    def text(self, text: str, *, special: bool = True) -> Prompt:
        """A text has one token at least."""
        return Prompt(
            ids=tuple(self.tokens.ids(_whole(text), special=special) or self.tokens.ids(" ")),
            text=text,
        )

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """Each text between two tokens before and two after it, so that a chat that goes on begins
        with the tokens of the chat before.
        """
        identifiers: list[int] = []
        for message in messages:
            role = _role(message.role)
            identifiers += [1, role, *self.tokens.ids(_whole(message.text), special=False), 0, role]
        return Prompt(ids=(*identifiers, 1, _role("assistant")))

    def ids(self, ids: Sequence[int]) -> Prompt:
        """Return the ids unchanged where the vocabulary has them."""
        beyond = next(
            (identifier for identifier in ids if not 0 <= identifier < self.tokens.size), None
        )
        if beyond is not None:
            raise Refused(f"Token id {beyond} is out of vocabulary")
        return Prompt(ids=tuple(ids))


def _whole(text: str) -> str:
    """Return a text without the half of a character at its end."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(NO_TEXT) from None
    return text


def _role(name: str) -> int:
    return 3 + sum(name.encode()) % 64
