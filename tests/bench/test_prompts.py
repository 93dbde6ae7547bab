"""Prompts of a file are sent as they stand, in order, with the output lengths that the file says or shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.bench.test_parts import words_tokenizer
from tonnage.api.bench import prepare_bench, run_bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.prompts import TokenizerFile, prompts, read_prompts
from tonnage.errors import InputError

SHARED = [
    {"conversations": [{"from": "human", "value": "time people water"}, {"from": "gpt", "value": "day part"}]},
    {"conversations": [{"from": "gpt", "value": "no question"}]},
    {"conversations": []},
]


LINES = [{"prompt": "time people", "max_tokens": 7}, {"messages": [{"role": "user", "content": "water day part"}], "osl": 3}]


def test_three_formats(tmp_path: Path) -> None:
    counter = TokenizerFile(words_tokenizer(tmp_path / "tokenizer.json"))
    (tmp_path / "a.json").write_text(json.dumps(SHARED))
    found = read_prompts(tmp_path / "a.json", counter=counter, characters=4)
    assert (found.texts, found.osl) == (("time people water",), (counter.count("day part"),))
    assert found.isl == (counter.count("time people water"),)
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(line) for line in LINES))
    found = read_prompts(tmp_path / "b.jsonl", counter=None, characters=4)
    assert (found.texts, found.osl, found.isl) == (("time people", "water day part"), (7, 3), (3, 4))
    (tmp_path / "c.txt").write_text("one\n\ntwo\n")
    found = read_prompts(tmp_path / "c.txt", counter=None, characters=4)
    assert (found.texts, found.osl) == (("one", "two"), (0, 0))
    assert [found.text(number, 99) for number in range(3)] == ["one", "two", "one"]


def test_a_file_is_sent_in_order_and_again_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps(line) for line in LINES))
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.001), seconds=60) as url:
        asked = prepare_bench(url=url, model="m", prompt_file=tmp_path / "b.jsonl", concurrency=1, request_count=5)
        found = run_bench(asked, output=None, selftest=False, provenance={})[0].requests
    assert list(found.isl) == [2, 3, 2, 3, 2]  # the server counts words
    assert list(found.osl) == [7, 3, 7, 3, 7]


BAD = {
    "a file that is not there": ("none.txt", None, {}, "cannot be read"),
    "an empty file": ("a.txt", "\n", {}, "no prompt"),
    "a line that is not JSON": ("a.jsonl", "{", {}, "a.jsonl:1"),
    "a line without a prompt": ("a.jsonl", '{"x": 1}', {}, "has no prompt"),
    "a length that is none": ("a.jsonl", '{"text": "a", "osl": "long"}', {}, "not a number of tokens"),
    "no output length": ("a.txt", "a", {}, "how long the outputs are"),
    "a prompt length beside the file": ("a.txt", "a", {"isl": 5, "osl": 5}, "have the length that they have"),
    "a shared prefix beside the file": ("a.txt", "a", {"osl": 5, "shared_prefix": 5}, "as they stand"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_sent_is_said(name: str, tmp_path: Path) -> None:
    file, text, further, part = BAD[name]
    if text is not None:
        (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=part):
        prepare_bench(url="127.0.0.1:9", model="m", prompt_file=tmp_path / file, concurrency=1, request_count=1, **further)


def test_prompts_have_exactly_the_tokens_asked_for_and_beginnings_of_their_own(tmp_path: Path) -> None:
    path = words_tokenizer(tmp_path / "tokenizer.json")
    counter = Tokenizer.from_file(str(path))
    for shared in (0, 30):
        made = prompts(seed=3, tokenizer=path, shared_tokens=shared)
        assert made.exact
        texts = [made.text(number, 64) for number in range(50)]
        assert {len(counter.encode(text).ids) for text in texts} == {64}
        assert len(set(texts)) == 50
        assert texts[7] == prompts(seed=3, tokenizer=path, shared_tokens=shared).text(7, 64)
        assert [len(counter.encode(made.text(1, n)).ids) for n in (40, 500, 2_000)] == [40, 500, 2_000]
        lead = len(made.shared)
        assert len({text[lead : lead + 40] for text in texts}) == 50
        assert {text[:lead] for text in texts} == {made.shared}


def test_prompts_without_a_tokenizer_are_characters_and_say_so() -> None:
    made = prompts(seed=1, tokenizer=None, characters=4.0)
    assert not made.exact
    assert [len(made.text(n, 25)) for n in range(5)] == [100] * 5


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="is not a tokenizer"):
        prompts(seed=0, tokenizer=tmp_path)


def test_two_loads_of_one_seed_send_other_words_and_share_only_what_they_should() -> None:
    """A server's prefix cache would answer the second load sooner if it had seen the prompts of the first."""
    made = prompts(seed=3, tokenizer=None, shared_tokens=8)
    first, second = (replace(made, salt=salt).text(0, 60) for salt in (1, 2))
    assert first.startswith(made.shared)
    assert second.startswith(made.shared)
    assert first[len(made.shared) :].split()[:4] != second[len(made.shared) :].split()[:4]
    assert replace(made, salt=1).text(0, 60) == first
