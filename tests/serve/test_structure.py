"""Texts that fit a grammar."""

from __future__ import annotations

import itertools

import pytest

from tonnage.serve.dialect import Refused
from tonnage.serve.structure import choice_grammar, regex_grammar, value_of


def test_a_grammar_that_would_take_a_gigabyte_is_refused_in_few_words() -> None:
    for build, text in ((regex_grammar, "a?" * 20_000), (choice_grammar, ["x" * 1_000] * 5_000)):
        with pytest.raises(Refused, match="too big") as refused:
            build(text)
        assert len(str(refused.value)) < 2_000
    assert value_of(regex_grammar("(a|b){3}"), 1) in {
        "".join(letters) for letters in itertools.product("ab", repeat=3)
    }
