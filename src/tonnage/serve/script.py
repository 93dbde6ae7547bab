"""What a simulated model says, decided when its request comes: words that mean nothing, a value
that fits a grammar, calls of tools.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tonnage.serve.dialect import Refused
from tonnage.serve.request import Asked
from tonnage.serve.structure import json_grammar, value_of
from tonnage.serve.tokens import Prompt, Tokens, Word
from tonnage.simulator.router import draw
from tonnage.spec.lengths import Lengths

ENDLESS = 1 << 40
MOST_CALLS = 3
_MASK = (1 << 62) - 1

Part = Literal["content", "reasoning", "name", "arguments", "none"]
"""What a token belongs to: "none" for one that a client does not see, such as the marks around a
call."""


class Said(NamedTuple):
    """A token of an answer."""

    id: int  # of the token
    text: str  # what a client reads of it
    part: Part = "content"  # where it reads it
    call: int = -1  # of a call of a tool its place among them; -1 outside of calls


@dataclass(slots=True, eq=False, kw_only=True)
class Script:
    """One answer."""

    tokens: Tokens
    key: int  # what its words are drawn by
    head: Sequence[Said] = ()  # its first tokens, where they are not words
    words: int = 0  # how many words follow
    palette: Sequence[Word] = ()  # what these are drawn from
    endless: bool = False  # whether it does not end by itself, but for ever says what it ends with
    _known: list[Said] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Its tokens, the one that ends it among them."""
        return ENDLESS if self.endless else len(self.head) + self.words + 1

    def token(self, place: int) -> Said:
        """The token at a place, counted from 0."""
        while len(self._known) <= place:
            self._known.append(self._at(len(self._known)))
        return self._known[place]

    def _at(self, place: int) -> Said:
        if place < len(self.head):
            return self.head[place]
        if place - len(self.head) < self.words:
            word = self.palette[draw(self.key, place, 1) % len(self.palette)]
            return Said(word.id, word.text)
        return Said(self.tokens.end, "")


def script_of(
    wish: Asked, prompt: Prompt, choice: int, *, tokens: Tokens, lengths: Lengths, unseeded: int
) -> Script:
    """The answer: the same for the same prompt at temperature 0, or with the same seed;
    ``unseeded`` is a number for any other.
    """
    greedy, seed = wish.sampling.temperature == 0, wish.sampling.seed
    effective_seed = 0 if greedy else unseeded if seed is None else seed
    key = hash((prompt.ids, effective_seed, choice)) & _MASK
    head = _thought(wish, key, tokens, lengths)
    structured = _structured(wish, key, tokens)
    if structured is not None:
        return Script(
            tokens=tokens, key=key, head=[*head, *structured], endless=wish.sampling.ignore_eos
        )
    words = (
        ENDLESS
        if wish.sampling.ignore_eos
        else max(_drawn(lengths, key), wish.sampling.min_tokens - len(head))
    )
    return Script(
        tokens=tokens,
        key=key,
        head=head,
        words=words,
        palette=_palette(wish, tokens),
        endless=wish.sampling.ignore_eos,
    )


def _palette(wish: Asked, tokens: Tokens) -> Sequence[Word]:
    """The words that a request allows; all of them where it allows none."""
    words = tokens.words
    if wish.allowed:
        words = [
            Word(id=identifier, text=tokens.text([identifier]))
            for identifier in sorted(wish.allowed)
        ]
    if wish.banned or wish.bad_words:
        words = [
            word
            for word in words
            if word.id not in wish.banned and not any(bad in word.text for bad in wish.bad_words)
        ]
    return words or tokens.words


def _drawn(lengths: Lengths, key: int) -> int:
    import numpy as np

    return int(lengths.draw(1, np.random.default_rng(key))[0])


def _thought(wish: Asked, key: int, tokens: Tokens, lengths: Lengths) -> list[Said]:
    """Write the reasoning of a model before its answer."""
    if not wish.reasons:
        return []
    chosen = [
        tokens.words[draw(key, place, 2) % len(tokens.words)]
        for place in range(_drawn(lengths, key + 1))
    ]
    return [
        Said(word.id, word.text, "reasoning" if wish.shows_reasoning else "none") for word in chosen
    ]


def _structured(wish: Asked, key: int, tokens: Tokens) -> list[Said] | None:
    """Write a value that fits a grammar, or calls of tools; None for words."""
    if wish.tools and wish.tool_choice != "none":
        calls = _calls(wish, key, tokens)
        if wish.tool_choice != "auto" or len(calls) < wish.osl:
            return calls
    return _value(wish.grammar, key, tokens, wish.osl) if wish.grammar else None


def _value(grammar: str, key: int, tokens: Tokens, most_tokens: int) -> list[Said]:
    """Write a value as tokens; a short one where a longer one has no room."""
    words = tokens.pieces(value_of(grammar, key))
    if len(words) >= most_tokens:
        words = tokens.pieces(value_of(grammar, key, longest=0))
    return [Said(word.id, word.text) for word in words]


def _calls(wish: Asked, key: int, tokens: Tokens) -> list[Said]:
    """Calls of one tool or several, in the form that the Hermes models write and vLLM's parser of
    that name reads.
    """
    tools = list(wish.tools)
    count = (
        1
        if wish.named_tool or not wish.parallel_calls or len(tools) == 1
        else 1 + draw(key, 0, 3) % min(len(tools), MOST_CALLS)
    )
    first = draw(key, 0, 4) % len(tools)
    chosen = (
        [wish.named_tool]
        if wish.named_tool
        else [tools[(first + i) % len(tools)] for i in range(count)]
    )
    call_tokens: list[Said] = []
    for call, name in enumerate(chosen):
        begin = tokens.pieces(f'<tool_call>{{"name": {json.dumps(name)}, "arguments": ')
        call_tokens += [Said(word.id, "", "none", call) for word in begin[:-1]]
        call_tokens.append(Said(begin[-1].id, name, "name", call))
        value = _value(_arguments(wish.tools[name]), key + call, tokens, wish.osl)
        call_tokens += [token._replace(part="arguments", call=call) for token in value]
        call_tokens += [Said(word.id, "", "none", call) for word in tokens.pieces("}</tool_call>")]
    return call_tokens


def _arguments(schema: Any) -> str:
    """The grammar of a tool's arguments: those of any object where its schema cannot be read, which
    vLLM passes over.
    """
    try:
        return json_grammar(schema or {"type": "object"})
    except Refused:
        return json_grammar({"type": "object"})


def logprobs_of(
    chosen_token: int, key: int, place: int, count: int, tokens: Tokens
) -> list[tuple[int, float]]:
    """Made-up log probabilities of a token and of ``count`` alternatives, the token's own first,
    which is the most likely one.
    """
    words, odds = tokens.words, [(chosen_token, -0.05 - draw(key, place, 5) / 2**32)]
    at, value = draw(key, place, 6), odds[0][1]
    while len(odds) <= count and len(odds) < len(words):
        at, value = at + 1, value - 0.3 - (draw(key, place, 7 + len(odds)) % 64) / 64
        alternative = words[at % len(words)].id
        if alternative not in (token for token, _ in odds):
            odds.append((alternative, value))
    return odds
