"""Prompts of exact lengths, each with its own beginning so that no prefix cache finds it.

A prompt is joined from words that are one token each, whatever is before them. With a tokenizer the
words come from its vocabulary and the lengths are exact; without one a length in tokens is a number
of characters, and the run says so.

Prompts of a file are sent as they are:

- ``.txt``: one prompt a line;
- ``.jsonl``: one object a line with ``text``, ``prompt``, ``text_input`` or ``messages``, and,
  where it has one, the output's length as ``output_length``, ``max_tokens`` or ``osl``;
- ``.json``: ShareGPT's list of ``conversations``: the first question is the prompt, the answer to
  it gives the output's length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.bench.arguments import CHARACTERS_PER_TOKEN
from tonnage.csv_file import read_text
from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tokenizers import Tokenizer


# Words at the beginning of a prompt that are drawn for it alone; what follows is a slice of one
# long text
OWN_WORDS = 12

WORDS = 4_096
FEWEST_WORDS = 16
_RING = 65_536


class TokenizerFile:
    """A tokenizer of a local ``tokenizer.json``."""

    def __init__(self, path: Path) -> None:
        """Read the file, or the ``tokenizer.json`` of a folder. Raises InputError: no such file, or
        not a tokenizer.
        """
        from tokenizers import Tokenizer

        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError(
                f"{option('tokenizer')}: {file} is not a file; give the path of a tokenizer.json"
            )
        try:
            self.tokenizer: Tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise InputError(
                f"{option('tokenizer')}: {file} is not a tokenizer.json"
                f" ({' '.join(str(error).split())[:120]})"
            ) from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def count(self, text: str) -> int:
        """Tokens of a text, without any that mark beginning or end."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def words(self, most_words: int = WORDS) -> list[str]:
        """Words of lower-case letters that are one token each behind a space, ``most_words`` of
        them. Raises InputError: there are too few.
        """
        candidates = []
        for identity in range(self.tokenizer.get_vocab_size()):
            text = self.tokenizer.decode([identity]).strip()
            if 2 <= len(text) <= 9 and text.isascii() and text.isalpha() and text.islower():
                candidates.append(text)
                if len(candidates) == 4 * most_words:
                    break
        candidates = list(dict.fromkeys(candidates))
        base = self.count("a")
        single = [
            word
            for word in candidates
            if self.count(f"a {word}") == base + 1 and self.count(f"a {word} {word}") == base + 2
        ]
        starting = [word for word in single if self.count(word) == 1]
        vocabulary = starting if len(starting) >= FEWEST_WORDS else single
        if len(vocabulary) < FEWEST_WORDS:
            raise InputError(
                f"{option('tokenizer')}: its vocabulary has too few whole words to make prompts of;"
                " give another tokenizer.json"
            )
        return vocabulary[:most_words]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Makes prompts; the same seed, salt and number give the same prompt."""

    words: tuple[str, ...]  # one token each
    ring: tuple[str, ...]  # places in ``words``, a long text that every prompt takes a slice of
    seed: int  # of the draws
    counter: TokenizerFile | None = None  # counts tokens; None where lengths are characters
    characters: float = CHARACTERS_PER_TOKEN  # characters per token, where there is no counter
    # whether any n of the words, with spaces between, were found to be n tokens: then a prompt need
    # not be counted again
    additive: bool = False
    shared: str = ""  # a prefix in front of every prompt, in words
    shared_tokens: int = 0  # how long it is
    # of one run, so that a server that has seen the prompts of another run with this seed finds
    # none of them in its cache
    salt: int = 0

    @property
    def exact(self) -> bool:
        """Whether lengths are tokens of the model."""
        return self.counter is not None

    def text(self, number: int, tokens: int) -> str:
        """The prompt of a request, ``tokens`` long. Raises InputError: the tokenizer's words do not
        add up to this length.
        """
        if self.counter is None:
            return self._of_characters(number, max(1, round(tokens * self.characters)))
        count = max(tokens - self.shared_tokens, 1)
        for _ in range(6):
            prompt = " ".join(part for part in (self.shared, *self._draw(number, count)) if part)
            if self.additive and tokens > self.shared_tokens:
                return prompt
            off = self.counter.count(prompt) - tokens
            if not off:
                return prompt
            count = max(count - off, 1)
        raise InputError(
            f"{option('isl')}: no prompt of exactly {tokens} tokens can be made with this"
            " tokenizer; choose a longer one"
        )

    def of_pieces(self, pieces: Sequence[tuple[int, int]], tokens: int) -> str:
        """A prompt of numbered pieces, each up to a token: equal pieces are equal text. Raises
        InputError: words that do not add up.
        """
        if self.counter is not None and not self.additive:
            raise InputError(
                f"{option('tokenizer')}: its words do not add up to the tokens of their prompt;"
                " leave it out for sessions"
            )
        parts, begin = [], 0
        for piece, until in pieces:
            end = min(until, tokens)
            if end > begin and self.counter is None:
                parts.append(
                    self._of_characters(
                        piece, round(end * self.characters) - round(begin * self.characters)
                    )
                )
            elif end > begin:
                parts.append(" ".join(self._draw(piece, end - begin)))
            begin = max(begin, end)
        return ("" if self.counter is None else " ").join(parts)

    def _draw(self, number: int, count: int) -> list[str]:
        """``count`` words: some that only this request has, then a slice of the ring."""
        import random

        rng = random.Random((self.salt << 104) ^ (self.seed << 40) ^ (number & 0xFFFFFFFFFF))
        words = rng.choices(self.words, k=min(count, OWN_WORDS))
        remaining = count - len(words)
        while remaining > 0:
            start = rng.randrange(len(self.ring))
            part = self.ring[start : start + remaining]
            words.extend(part)
            remaining -= len(part)
        return words

    def _of_characters(self, number: int, characters: int) -> str:
        lead = f"{self.shared} " if self.shared else ""
        words = self._draw(number, characters // 3 + 2)
        return (lead + " ".join(words)).ljust(characters, "x")[:characters]


PLAIN_WORDS = tuple(
    """
    time people water day part sound place year live back give most very after thing our just name good sentence man think say
    great where help through much before line right too mean old any same tell boy follow came want show also around form three
    small set put end does another well large must big even such because turn here why ask went men read need land different home
    us move try kind hand picture again change off play spell air away animal house point page letter mother answer found study
    still learn should world
    """.split()  # noqa: E501, SIM905
)
"""Plain English words for prompts whose tokens are not counted."""


def prompts(
    *,
    seed: int,
    tokenizer: Path | None,
    characters: float = CHARACTERS_PER_TOKEN,
    shared_tokens: int = 0,
) -> Prompts:
    """A maker of prompts, by a tokenizer.json or so many ``characters`` a token, with one
    beginning. Raises InputError: no such file.
    """
    import random

    counter = TokenizerFile(tokenizer) if tokenizer is not None else None
    words = tuple(counter.words()) if counter is not None else PLAIN_WORDS
    ring = tuple(random.Random(seed).choices(words, k=_RING))
    additive = (
        counter is not None
        and counter.count(" ".join(ring)) == len(ring)
        and all(counter.count(word) == 1 for word in words)
    )
    prompts = Prompts(
        words=words, ring=ring, seed=seed, counter=counter, characters=characters, additive=additive
    )
    return (
        replace(prompts, shared=prompts.text(-1, shared_tokens), shared_tokens=shared_tokens)
        if shared_tokens
        else prompts
    )


def body_bytes(body: dict[str, object]) -> bytes:
    """A request's body as JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


MOST_BYTES = 2_000_000_000
_TEXTS = ("text", "prompt", "text_input", "input")
_LENGTHS = ("output_length", "max_tokens", "osl")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrompts:
    """Prompts in the order of their file, from the beginning again where there are more
    requests.
    """

    texts: tuple[str, ...]
    # how long each is: tokens of the tokenizer, or characters over ``characters``
    isl: tuple[int, ...]
    # the output's length of each, where the file says it or shows an answer; 0 otherwise
    osl: tuple[int, ...]
    counter: TokenizerFile | None  # counts tokens; None where lengths are characters
    characters: float  # characters per token, where there is no counter
    source: str  # the name of the file

    @property
    def exact(self) -> bool:
        """Whether lengths are tokens of the model."""
        return self.counter is not None

    def text(self, number: int, tokens: int) -> str:
        """The prompt of a request; its length is what it is."""
        return self.texts[number % len(self.texts)]


def read_prompts(path: Path, *, counter: TokenizerFile | None, characters: float) -> FilePrompts:
    """The prompts of a file. Raises InputError: the file cannot be read as one of the formats
    above; the first bad line is named.
    """
    where = option("prompt_file")
    text = read_text(path, where, most_bytes=MOST_BYTES)
    kind = path.suffix.lower()
    if kind == ".json":
        rows = [(*pairs[0], 0) for pairs in share_gpt(text, f"{where}: {path}")]
    elif kind == ".jsonl":
        rows = [
            _line(line, f"{where}: {path}:{at}")
            for at, line in enumerate(text.splitlines(), start=1)
            if line.strip()
        ]
    else:
        rows = [(line.strip(), "", 0) for line in text.splitlines() if line.strip()]
    if not rows:
        raise InputError(f"{where}: {path} holds no prompt; write one a line")

    return FilePrompts(
        texts=tuple(prompt for prompt, _, _ in rows),
        isl=tuple(length_of(prompt, counter, characters) for prompt, _, _ in rows),
        osl=tuple(
            osl or (length_of(answer, counter, characters) if answer else 0)
            for _, answer, osl in rows
        ),
        counter=counter,
        characters=characters,
        source=path.name,
    )


USERS = ("user", "human")
# A prompt, the answer where there is one, and the output's length where it is given
Found = tuple[str, str, int]


def _line(line: str, where: str) -> Found:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is not JSON; write one object with a text a line") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: is not an object; write one with a text a line")
    prompt = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if prompt is None and isinstance(row.get("messages"), list):
        prompt = "\n".join(
            m["content"]
            for m in row["messages"]
            if isinstance(m, dict) and isinstance(m.get("content"), str)
        )
    if not prompt:
        raise InputError(f"{where}: has no prompt; it needs one of {', '.join(_TEXTS)} or messages")
    osl = next((row[name] for name in _LENGTHS if row.get(name) is not None), 0)
    if isinstance(osl, bool) or not isinstance(osl, int) or not 0 <= osl < 10**7:
        raise InputError(f"{where}: its output length is not a number of tokens")
    return prompt, "", osl


def share_gpt(text: str, where: str) -> Iterator[list[tuple[str, str]]]:
    """The human's questions with their answers, up to the first without; conversations that do not
    begin with one are left out.
    """
    try:
        rows: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(
            f"{where} is not JSON; give a list of conversations, or lines in a .jsonl"
        ) from None
    for row in rows if isinstance(rows, list) else ():
        turns = [
            turn
            for turn in (row.get("conversations") or () if isinstance(row, dict) else ())
            if isinstance(turn, dict)
        ]
        pairs: list[tuple[str, str]] = []
        for ask, answer in zip(turns[::2], turns[1::2], strict=False):
            texts: Any = (ask.get("value"), answer.get("value"))
            if ask.get("from") not in USERS or not all(
                isinstance(turn_text, str) and turn_text.strip() for turn_text in texts
            ):
                break
            pairs.append(texts)
        if pairs:
            yield pairs


def length_of(text: str, counter: TokenizerFile | None, characters: float) -> int:
    """How long a text is: its tokens, or without a counter its characters over ``characters``, at
    least 1.
    """
    return counter.count(text) if counter is not None else max(1, round(len(text) / characters))
