"""Loads that bench refuses before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.api.bench import bench, run_find_max
from tonnage.api.question.bench import prepare_bench
from tonnage.errors import InputError


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"concurrency": "1,2"}, "it caps the requests in flight; give one number"),
        (
            {
                "concurrency": 4,
                "conversation_num": 2,
                "conversation_turns": 2,
                "request_count": None,
            },
            "it caps single requests",
        ),
        (
            {"trace": "t.csv"},
            (
                "give one of them, such as a concurrency of 16, or a rate with the most requests in"
                " flight"
            ),
        ),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_loads_with_a_cap_that_cannot_be(load: dict[str, Any], words: str) -> None:
    question: dict[str, Any] = {
        "model": "m",
        "isl": 20,
        "osl": 5,
        "request_count": 4,
        "request_rate": 5,
        **load,
    }
    with pytest.raises(InputError, match=words):
        bench(url="http://127.0.0.1:9", selftest=False, **question)


def test_no_highest_rate_is_searched_below_a_cap() -> None:
    asked = prepare_bench(
        url="127.0.0.1:9",
        model="m",
        isl=20,
        osl=5,
        request_count=4,
        request_rate=5,
        concurrency=4,
        slo=("ttft p95<=1s",),
    )
    with pytest.raises(
        InputError,
        match="caps the requests in flight, so that a higher rate breaks no limit; leave it out",
    ):
        run_find_max(asked, output=None, selftest=False, provenance={})
