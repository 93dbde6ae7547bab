"""Prompts of a file are sent as they stand, in order, with the output lengths that the file says or shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.test_parts import words_tokenizer
from tonnage.api.bench import prepare_bench, run_bench
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.bench.prompts import TokenizerFile, read_prompts
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
