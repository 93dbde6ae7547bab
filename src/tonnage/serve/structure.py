"""Texts that fit a grammar: JSON by a schema, a regular expression, one of several texts.

llguidance, one of the libraries that vLLM keeps outputs to a grammar with, says at each character
which ones may follow; here one of them is drawn instead of computed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tonnage.serve.dialect import Refused

if TYPE_CHECKING:
    import llguidance

MOST_QUOTED = 1_000  # Characters of the library's error, which repeats the grammar
LEXER_FUEL = 100_000  # A tenth of the library's own, with which a text of 60 kB took 800 MB
LONGEST = 20_000  # Bytes of a value, after which a grammar that does not end is given up

_CLOSING, _QUOTE, _COMMA, _FREE = b"]}", ord('"'), ord(","), b"abcdefghijklmnopqrstuvwxyz"
_DIGITS, _JOINTS, _WORDS = b"0123456789", b"@:./-", 8


def json_grammar(schema: Any) -> str:
    """The grammar of a JSON Schema."""
    import llguidance

    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        json.loads(text)
    except ValueError:
        raise Refused("Invalid JSON grammar specification.") from None
    return _compiled(
        llguidance.LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": False})
    )


def regex_grammar(expression: str) -> str:
    """The grammar of a regular expression."""
    import llguidance

    return _compiled(llguidance.LLMatcher.grammar_from_regex(expression))


def written_grammar(text: str) -> str:
    """A grammar in Lark's form, or in the one of llama.cpp (GBNF), as vLLM takes both."""
    import llguidance
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return _compiled(llguidance.LLMatcher.grammar_from_lark(any_to_lark(text)))
    except Exception as error:  # the library raises its own, which is a plain Exception
        raise Refused(
            "Invalid grammar specification: Failed to convert the grammar from GBNF to Lark:"
            f" {str(error)[:MOST_QUOTED]}"
        ) from None


def choice_grammar(choices: list[str]) -> str:
    """The grammar of one of several texts."""
    return written_grammar(f"start: {' | '.join(json.dumps(choice) for choice in choices)}")


def _compiled(grammar: str) -> str:
    """Compile a grammar. Raises Refused: it cannot be."""
    error = _matcher(grammar).get_error()
    if error:
        raise Refused(f"Grammar error: {error.strip()[:MOST_QUOTED]}")
    return grammar


@lru_cache(maxsize=1)
def _bytes() -> llguidance.LLTokenizer:
    import llguidance

    return llguidance.LLTokenizer("byte")


@lru_cache(maxsize=256)
def _matcher(grammar: str) -> llguidance.LLMatcher:
    """A matcher at its beginning; it is copied before it is used."""
    import llguidance

    limits = llguidance.LLParserLimits(initial_lexer_fuel=LEXER_FUEL)
    return llguidance.LLMatcher(_bytes(), grammar, limits=limits)


def value_of(grammar: str, seed: int, longest: int = 400) -> str:
    """A text that fits a grammar, the same for a seed; after ``longest`` bytes all is closed soon.
    Raises Refused: none ends.
    """
    import llguidance.numpy
    import numpy as np

    rng = random.Random(seed)
    matcher, mask = (
        _matcher(grammar).deep_copy(),
        llguidance.numpy.allocate_token_bitmask(1, _bytes().vocab_size),
    )
    output, run = bytearray(), 0
    while not matcher.is_stopped() and len(output) < LONGEST:
        forced = matcher.compute_ff_tokens()
        if forced:
            matcher.consume_tokens(forced)
            output += bytes(token for token in forced if token < 256)
            run = 0
            continue
        if matcher.is_accepting():
            break
        llguidance.numpy.fill_next_token_bitmask(matcher, mask)
        allowed = np.flatnonzero(
            np.unpackbits(mask.view(np.uint8), bitorder="little")[:256]
        ).tolist()
        if not allowed:
            break
        chosen, run = _chosen(allowed, run, len(output), longest, rng)
        matcher.consume_token(chosen)
        output.append(chosen)
    if not matcher.is_accepting():
        raise Refused("the grammar has no text that ends; give one that does")
    return output.decode("utf-8", "replace")


def _chosen(
    allowed: list[int], run: int, length: int, longest: int, rng: random.Random
) -> tuple[int, int]:
    """The next byte, and how many free ones there were in a row: short words and numbers, and
    everything closed in the end.
    """
    there = set(allowed)
    letters, digits = (
        [byte for byte in _FREE if byte in there],
        [byte for byte in _DIGITS if byte in there],
    )
    closing = [byte for byte in _CLOSING if byte in there]
    ends: list[int] = []
    if len(letters) > 20:  # within a text
        joints = [_QUOTE] if _QUOTE in there else [byte for byte in _JOINTS if byte in there]
        long = length > longest or run >= _WORDS
        ends = (
            joints[:1]
            if joints and run >= 3 and (long or (joints[0] == _QUOTE and rng.random() < 0.3))
            else []
        )
        free = letters
    elif closing and (length > longest or rng.random() < 0.5):
        ends, free = closing[:1], closing
    elif len(digits) > 1:
        separators = [byte for byte in (_COMMA, *closing) if byte in there]
        ends, free = separators if run >= 2 or rng.random() < 0.5 else [], digits
    else:
        ends = [byte for byte in (_QUOTE, *closing, _COMMA) if byte in there][:1]
        free = letters or digits or [byte for byte in allowed if 32 < byte < 127] or allowed
    return (rng.choice(ends), 0) if ends else (rng.choice(free), run + 1)


def schema_of(form: Mapping[str, Any]) -> Any:
    """The schema of a ``response_format``: that of any object for ``json_object``; None for
    text.
    """
    if form.get("type") == "json_object":
        return {"type": "object"}
    return (
        (form.get("json_schema") or {}).get("schema") or {}
        if form.get("type") == "json_schema"
        else None
    )
