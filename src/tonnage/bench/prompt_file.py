"""Prompts of a file, sent as they stand: plain lines, JSON lines, or ShareGPT's conversations.

- ``.txt``: one prompt a line;
- ``.jsonl``: one object a line with ``text``, ``prompt``, ``text_input`` or ``messages``, and, where it has one, the output's
  length as ``output_length``, ``max_tokens`` or ``osl``;
- ``.json``: ShareGPT's list of ``conversations``: the first question is the prompt, the answer to it gives the output's length.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tonnage.bench.prompts import TokenizerFile
from tonnage.errors import InputError, option

MOST_BYTES = 2_000_000_000
_TEXTS = ("text", "prompt", "text_input", "input")
_LENGTHS = ("output_length", "max_tokens", "osl")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrompts:
    """Prompts in the order of their file, from the beginning again where there are more requests.

    Attributes:
        texts: the prompts.
        isl: how long each is: tokens of the tokenizer, or characters over ``characters``.
        osl: the output's length of each, where the file says it or shows an answer; 0 otherwise.
        counter: counts tokens; None where lengths are characters.
        characters: characters per token, where there is no counter.
        source: the name of the file.
    """

    texts: tuple[str, ...]
    isl: tuple[int, ...]
    osl: tuple[int, ...]
    counter: TokenizerFile | None
    characters: float
    source: str

    @property
    def exact(self) -> bool:
        """Whether lengths are tokens of the model."""
        return self.counter is not None

    def text(self, number: int, tokens: int) -> str:
        """The prompt of a request; its length is what it is."""
        return self.texts[number % len(self.texts)]


def read_prompts(path: Path, *, counter: TokenizerFile | None, characters: float) -> FilePrompts:
    """The prompts of a file.

    Raises:
        InputError: the file cannot be read as one of the formats above; the first bad line is named.
    """
    where = option("prompt_file")
    text = text_of_file(path, where)
    kind = path.suffix.lower()
    if kind == ".json":
        found = _conversations(text, path, where)
    elif kind == ".jsonl":
        found = [_line(line, f"{where}: {path}:{at}") for at, line in enumerate(text.splitlines(), start=1) if line.strip()]
    else:
        found = [(line.strip(), 0, "") for line in text.splitlines() if line.strip()]
    if not found:
        raise InputError(f"{where}: {path} holds no prompt; write one a line")

    def length(text: str) -> int:
        return counter.count(text) if counter is not None else max(1, round(len(text) / characters))

    return FilePrompts(
        texts=tuple(prompt for prompt, _, _ in found),
        isl=tuple(length(prompt) for prompt, _, _ in found),
        osl=tuple(asked or (length(answer) if answer else 0) for _, asked, answer in found),
        counter=counter,
        characters=characters,
        source=path.name,
    )


Found = tuple[str, int, str]
"""A prompt, the output's length where it is said, and the answer where there is one."""


def _line(line: str, where: str) -> Found:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: is not JSON; write one object with a text a line") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: is not an object; write one with a text a line")
    prompt = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if prompt is None and isinstance(row.get("messages"), list):
        prompt = "\n".join(m["content"] for m in row["messages"] if isinstance(m, dict) and isinstance(m.get("content"), str))
    if not prompt:
        raise InputError(f"{where}: has no prompt; it needs one of {', '.join(_TEXTS)} or messages")
    asked = next((row[name] for name in _LENGTHS if row.get(name) is not None), 0)
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked < 10**7:
        raise InputError(f"{where}: its output length is not a number of tokens")
    return prompt, asked, ""


def _conversations(text: str, path: Path, where: str) -> list[Found]:
    """The first question and answer of each conversation; those that do not begin with a question are left out."""
    try:
        rows: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: {path} is not JSON; give a list of conversations, or lines in a .jsonl") from None
    found = []
    for row in rows if isinstance(rows, list) else ():
        turns = row.get("conversations") if isinstance(row, dict) else None
        values = [turn.get("value") for turn in turns or () if isinstance(turn, dict)]
        asks = isinstance(turns, list) and len(values) > 1 and isinstance(turns[0], dict) and turns[0].get("from") in ("human", "user")
        if asks and all(isinstance(value, str) and value.strip() for value in values[:2]):
            found.append((str(values[0]), 0, str(values[1])))
    return found


def text_of_file(path: Path, where: str) -> str:
    """The whole text of a file of prompts or conversations.

    Args:
        path: of the file.
        where: what named it, for messages.

    Raises:
        InputError: it cannot be read, is no UTF-8 text, or is larger than ``MOST_BYTES``.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{where}: {path} is larger than {MOST_BYTES // 10**9} GB; give a part of it")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: {path} cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'})") from None
