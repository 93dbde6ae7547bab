"""Prompts of exact lengths, and those that share pieces."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.bench.parts import words_tokenizer
from tests.bench.recorded import write
from tonnage.bench.prompts import (
    PLAIN_WORDS,
    FilePrompts,
    Prompts,
    TokenizerFile,
    length_of,
    prompts,
    read_prompts,
    share_gpt,
)
from tonnage.errors import InputError
from tonnage.formats.sessions import read_sessions


@pytest.mark.parametrize("exact", [False, True])
def test_two_prompts_are_equal_as_far_as_their_pieces_are(exact: bool, tmp_path: Path) -> None:
    contents = read_sessions(write(tmp_path / "s.jsonl", pause=0.1), "sessions").contents
    recorded = read_sessions(str(tmp_path / "s.jsonl"), "sessions")
    tokenizer = tmp_path / "tokenizer.json"
    if exact:
        words_tokenizer(tokenizer)
    made = prompts(seed=3, tokenizer=tokenizer if exact else None)
    rows = [list(zip(*contents.of(row), strict=True)) for row in range(len(contents))]
    texts = [made.of_pieces(row, int(isl)) for row, isl in zip(rows, recorded.isl, strict=True)]
    for one in range(len(rows)):
        assert (made.counter.count(texts[one]) if exact else len(texts[one]) / 4) == recorded.isl[
            one
        ]
        for other in range(one):
            shared = 0
            for (piece, until), (theirs, reaches) in zip(rows[one], rows[other], strict=False):
                if piece != theirs:
                    break
                shared = min(until, reaches, int(recorded.isl[one]), int(recorded.isl[other]))
                if until != reaches:
                    break
            units = [
                text.split() if exact else [text[at : at + 4] for at in range(0, len(text), 4)]
                for text in (texts[one], texts[other])
            ]
            found = next(
                (
                    place
                    for place, pair in enumerate(zip(*units, strict=False))
                    if pair[0] != pair[1]
                ),
                len(units[1]),
            )
            assert shared <= found <= shared + 2, "as much as was recorded, and hardly more"


def test_prompts_have_exactly_the_tokens_asked_for_and_beginnings_of_their_own(
    tmp_path: Path,
) -> None:
    path = words_tokenizer(tmp_path / "tokenizer.json")
    counter = Tokenizer.from_file(str(path))
    for shared in (0, 30):
        made = prompts(seed=3, tokenizer=path, shared_tokens=shared)
        assert made.exact
        assert made.additive
        texts = [made.text(number, 64) for number in range(50)]
        assert {len(counter.encode(text).ids) for text in texts} == {64}
        assert len(set(texts)) == 50
        assert texts[7] == prompts(seed=3, tokenizer=path, shared_tokens=shared).text(7, 64)
        assert [len(counter.encode(made.text(1, n)).ids) for n in (40, 500, 2_000)] == [
            40,
            500,
            2_000,
        ]
        lead = len(made.shared)
        assert len({text[lead : lead + 40] for text in texts}) == 50
        assert {text[:lead] for text in texts} == {made.shared}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"text": "ab"}'], [("ab", 1, 0)]),
        (
            ['{"prompt": "abcd", "output_length": 3}', "", '{"input": "a"}'],
            [("abcd", 2, 3), ("a", 1, 0)],
        ),
        (['{"text_input": "abc", "max_tokens": 4, "osl": 9}'], [("abc", 2, 4)]),
        (['{"text": 5, "prompt": "ab", "output_length": null, "osl": 6}'], [("ab", 1, 6)]),
        (
            ['{"messages": [{"content": "ab"}, {"content": 3}, 7, {"content": "c"}]}'],
            [("ab\nc", 2, 0)],
        ),
        (['{"text": "ab", "osl": 9999999}'], [("ab", 1, 9_999_999)]),
    ],
)
def test_prompts_of_lines(
    lines: list[str], expected: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    texts, isl, osl = zip(*expected, strict=True)
    made = read_prompts(file, counter=None, characters=2)
    assert made == FilePrompts(
        texts=texts, isl=isl, osl=osl, counter=None, characters=2, source="p.jsonl"
    )
    assert not made.exact


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[1]", "p.jsonl:2: is not an object"),
        ("{", "p.jsonl:2: is not JSON"),
        ('{"text": ""}', "has no prompt"),
        ('{"messages": "a"}', "has no prompt"),
        ('{"text": "a", "osl": -1}', "is not a number of tokens"),
        ('{"text": "a", "osl": true}', "is not a number of tokens"),
        ('{"text": "a", "osl": 10000000}', "is not a number of tokens"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(line: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'{{"text": "a"}}\n{line}', encoding="utf-8")
    with pytest.raises(InputError, match=words):
        read_prompts(file, counter=None, characters=4)


def test_the_lengths_of_an_answer_and_of_a_text(tmp_path: Path) -> None:
    talks = [{"from": "user", "value": "abcdef"}, {"from": "gpt", "value": "abcdefgh"}]
    file = tmp_path / "p.json"
    file.write_text(json.dumps([{"conversations": talks}, 3, {}]), encoding="utf-8")
    made = read_prompts(file, counter=None, characters=2)
    assert (made.texts, made.isl, made.osl) == (("abcdef",), (3,), (4,))
    assert [length_of("a" * n, None, 4) for n in (0, 1, 7, 10)] == [1, 1, 2, 2]
    for text in ("[]", "{}", '[{"conversations": null}]'):
        assert list(share_gpt(text, "w")) == []
    with pytest.raises(InputError, match="w is not JSON"):
        list(share_gpt("{", "w"))


def test_prompts_of_characters_begin_with_words_of_their_own() -> None:
    """Twelve drawn words, then the ring; cut to the length, and filled up with x."""
    made = prompts(seed=3, tokenizer=None, characters=3)
    assert (made.exact, made.additive, made.shared, made.shared_tokens, made.salt) == (
        *(False, False, "", 0, 0),
    )
    assert (made.words, len(made.ring)) == (PLAIN_WORDS, 65_536)
    assert [len(made.text(1, n)) for n in (0, 1, 10, 700)] == [1, 3, 30, 2_100]
    words = made.text(1, 300).split()
    start = next(
        place for place in range(65_536) if made.ring[place : place + 20] == tuple(words[12:32])
    )
    assert tuple(words[12:100]) == made.ring[start : start + 88]
    assert made.text(1, 40) == made.text(1, 40)
    assert made.text(1, 40) != made.text(2, 40)
    assert made.text(1, 40) != prompts(seed=4, tokenizer=None, characters=3).text(1, 40)
    short = Prompts(words=("a",), ring=("b", "c"), seed=0)
    assert short.text(1, 2) == "a a a ax"
    assert Prompts(words=("a",), ring=("b",), seed=0)._draw(1, 15) == ["a"] * 12 + ["b"] * 3
    shared = prompts(seed=3, tokenizer=None, characters=3, shared_tokens=10)
    assert (len(shared.shared), shared.shared_tokens) == (30, 10)
    assert shared.text(1, 40).startswith(f"{shared.shared} ")
    assert len(shared.text(1, 40)) == 120


class Vocabulary:
    """A tokenizer of these words, each a token behind a space; the last so many are two tokens at
    the beginning of a text."""

    def __init__(self, words: list[str], late: int = 0) -> None:
        self.known, self.late = words, set(words[len(words) - late :])

    def get_vocab_size(self) -> int:
        return len(self.known)

    def decode(self, identities: list[int]) -> str:
        return f" {self.known[identities[0]]}"

    def encode(self, text: str, *, add_special_tokens: bool) -> object:
        assert not add_special_tokens
        words = text.split()
        extra = bool(words and words[0] in self.late)
        return type("Encoded", (), {"ids": [0] * (len(words) + extra)})


def vocabulary(words: list[str], late: int = 0) -> TokenizerFile:
    made = object.__new__(TokenizerFile)
    made.tokenizer = Vocabulary(words, late)  # type: ignore[assignment]
    return made


def test_words_of_a_vocabulary_are_whole_plain_ones_and_sixteen_at_least() -> None:
    letters = [f"w{chr(97 + k)}" for k in range(20)]
    odd = ["a", "longerthan", "UP", "\u00e4\u00f6", "a1", "", "wa"]
    assert vocabulary([*odd, *letters]).words() == letters
    assert vocabulary([*letters, "ninechars"]).words()[-1] == "ninechars"
    assert vocabulary(letters[:16]).words() == letters[:16]
    with pytest.raises(InputError, match="too few whole words"):
        vocabulary(letters[:15]).words()
    # words that begin a text as one token are taken alone where there are sixteen of them
    assert vocabulary(letters, late=4).words() == letters[:16]
    assert vocabulary(letters, late=5).words() == letters
    assert vocabulary(letters).words(most_words=5) == letters[:5]
    with pytest.raises(
        InputError, match="too few"
    ):  # no more than four times as many are looked at
        vocabulary(letters).words(most_words=3)


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        TokenizerFile(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer.json is not a tokenizer.json"):
        TokenizerFile(tmp_path)
    words_tokenizer(tmp_path / "tokenizer.json")
    assert TokenizerFile(tmp_path).count("time people") == 2


def test_words_that_do_not_add_up_make_no_prompt() -> None:
    """Each prompt counts a token more than its words, and its prefix."""
    counter = vocabulary(["wa"] * 30, late=30)
    made = Prompts(words=("wa",), ring=("wa",), seed=0, counter=counter)
    assert made.exact
    assert made.text(1, 5) == "wa wa wa wa"
    with pytest.raises(InputError, match="no prompt of exactly 1 tokens"):
        made.text(1, 1)
    with pytest.raises(InputError, match="do not add up"):
        made.of_pieces([(1, 5)], 5)
    shared = Prompts(
        words=("wa",), ring=("wa",), seed=0, counter=counter, shared="wa wa", shared_tokens=2
    )
    assert shared.text(1, 6) == "wa wa wa wa wa"
    exact = Prompts(words=("wa",), ring=("wa",), seed=0, counter=vocabulary(["wa"]), additive=True)
    assert exact.of_pieces([(1, 2), (2, 2), (3, 9)], 5) == "wa wa wa wa wa"
    assert exact.text(1, 3) == "wa wa wa"
    assert replace(exact, shared="wa wa", shared_tokens=2).text(1, 3) == "wa wa wa"
    with pytest.raises(InputError, match="no prompt of exactly 2 tokens"):
        replace(exact, shared="wa wa", shared_tokens=2).text(1, 2)  # none of its own


def spoken(*turns: tuple[str, object]) -> dict[str, object]:
    return {"conversations": [{"from": who, "value": words} for who, words in turns]}


@pytest.mark.parametrize(
    ("conversation", "pairs"),
    [
        (spoken(("human", "a"), ("gpt", "b"), ("user", "c"), ("x", "d")), [("a", "b"), ("c", "d")]),
        # what comes after a turn that is none counts no more
        (
            spoken(
                ("user", "a"), ("gpt", "b"), ("gpt", "c"), ("gpt", "d"), ("user", "e"), ("x", "f")
            ),
            [("a", "b")],
        ),
        (spoken(("user", "a"), ("gpt", "b"), ("user", " "), ("gpt", "d")), [("a", "b")]),
        (spoken(("user", "a"), ("gpt", "b"), ("user", "c"), ("gpt", 4)), [("a", "b")]),
        (spoken(("user", "a"), ("gpt", "b"), ("user", "c")), [("a", "b")]),
        (spoken(("gpt", "a"), ("user", "b")), None),
        (spoken(("user", "a"), ("gpt", "")), None),
        (spoken(("user", "a")), None),
    ],
)
def test_questions_with_their_answers_up_to_the_first_without(
    conversation: dict[str, object], pairs: list[tuple[str, str]] | None
) -> None:
    file = json.dumps([conversation, spoken(("user", "q"), ("gpt", "r"))])
    assert list(share_gpt(file, "w")) == [*([pairs] if pairs else []), [("q", "r")]]


def test_prompts_of_a_file_are_the_first_questions_from_the_beginning_again(tmp_path: Path) -> None:
    rows = [
        spoken(("user", "ab"), ("gpt", "abcd"), ("user", "abcdef"), ("gpt", "a")),
        spoken(("user", "abcdefgh"), ("gpt", "a")),
    ]
    file = tmp_path / "p.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    made = read_prompts(file, counter=vocabulary(["ab"]), characters=2)
    assert (made.texts, made.isl, made.osl) == (("ab", "abcdefgh"), (1, 1), (1, 1))
    assert (made.exact, made.characters, made.source) == (True, 2, "p.json")
    assert [made.text(number, 99) for number in range(-1, 4)] == [
        *("abcdefgh", "ab", "abcdefgh", "ab", "abcdefgh"),
    ]
    lines = tmp_path / "p.txt"
    lines.write_text(" ab \n\n  \nabcd\n", encoding="utf-8")
    plain = read_prompts(lines, counter=None, characters=2)
    assert (plain.texts, plain.isl, plain.osl) == (("ab", "abcd"), (1, 2), (0, 0))
    lines.write_text(" \n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no prompt; write one a line"):
        read_prompts(lines, counter=None, characters=2)


class Uneven(Vocabulary):
    """Words of which some are two tokens behind a word, or only where they are repeated."""

    def encode(self, text: str, *, add_special_tokens: bool) -> object:
        words = text.split()
        extra = sum(word.startswith("two") for word in words)
        extra += sum(word.startswith("rep") for word in words) // 2
        return type("Encoded", (), {"ids": [0] * (len(words) + extra)})


def test_words_that_are_not_one_token_each_are_left_out() -> None:
    letters = [f"w{chr(97 + k)}" for k in range(20)]
    made = vocabulary([])
    made.tokenizer = Uneven(["twoa", *letters[:10], "repb", "two", *letters[10:]])  # type: ignore[assignment]
    assert made.words() == letters


def test_as_many_words_are_looked_at_as_four_times_those_that_are_wanted() -> None:
    """Sixty-four of eighty; words that come twice count once, and the last ones are not reached."""
    letters = [f"{chr(97 + k // 26)}{chr(97 + k % 26)}" for k in range(80)]
    made = vocabulary(letters)
    assert made.words(most_words=16) == letters[:16]
    late = vocabulary(letters)
    late.tokenizer.late = set(letters[:60])  # type: ignore[attr-defined]
    # of the first 64 only four begin a text as one token, of all twenty
    assert late.words(most_words=16) == letters[:16]
    assert late.words(most_words=20) == letters[60:80]
    assert vocabulary([*letters[:20], *letters[:20]]).words() == letters[:20]


def test_a_prompt_is_drawn_by_its_seed_its_salt_and_its_number() -> None:
    """Twelve words that only it has, then slices of the ring until it is long enough."""
    words = tuple(f"w{k}" for k in range(50))
    made = Prompts(words=words, ring=tuple(f"r{k}" for k in range(7)), seed=3, salt=5)
    drawn = made._draw(2, 40)
    assert len(drawn) == 40
    assert all(word.startswith("w") for word in drawn[:12])
    assert all(word.startswith("r") for word in drawn[12:])
    places = [int(word[1:]) for word in drawn[12:]]
    assert all(after in (before + 1, *range(7)) for before, after in itertools.pairwise(places))
    breaks = [before for before, after in itertools.pairwise(places) if after != before + 1]
    assert set(breaks) == {6}  # a slice goes on to the ring's end
    others = [
        made._draw(3, 40),
        replace(made, seed=4)._draw(2, 40),
        replace(made, salt=6)._draw(2, 40),
        made._draw(-2, 40),
    ]
    assert len({tuple(words) for words in (drawn, *others)}) == 5
    assert made._draw(2, 40) == drawn == replace(made)._draw(2 + 2**40, 40)
    assert [len(made._draw(2, count)) for count in (0, 1, 11, 12, 13)] == [0, 1, 11, 12, 13]


def test_pieces_of_characters_meet_without_a_space_and_end_where_they_should() -> None:
    made = prompts(seed=3, tokenizer=None, characters=2.5)
    text = made.of_pieces([(1, 3), (2, 3), (3, 7), (4, 20)], 10)
    assert len(text) == 25
    assert text[:8] == made._of_characters(1, 8)  # 7.5, rounded to the even number
    assert text[8:18] == made._of_characters(3, 10)
    assert text[18:] == made._of_characters(4, 7)
    assert made.of_pieces([], 10) == made.of_pieces([(1, 0)], 10) == ""
