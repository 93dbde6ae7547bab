"""What no candidate could answer is refused, and which knobs are free."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.questions import SMALL, question
from tonnage.errors import InputError
from tonnage.sizing.question import Question


@pytest.fixture(scope="module")
def small() -> Question:
    return question(**SMALL)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"gpus": ()}, "gpu: nothing given; name at least one"),
        ({"precisions": ()}, "precision: nothing given; name at least one"),
        ({"tps": ()}, "tp: nothing given; name at least one"),
        ({"engines": ()}, "engine: nothing given; name at least one"),
        ({"spare": -1}, "spare: -1 is negative"),
        ({"tps": (1, 3)}, "tp: 3 is not a degree that divides an 8-GPU system"),
        ({"pps": (1, 5)}, "pp: 5 is not a number of pipeline stages"),
        ({"step_factor": 0.0}, "step_factor: 0 is not a factor"),
        ({"step_factor": -1.5}, "step_factor: -1.5 is not a factor"),
        ({"step_factor": math.inf}, "step_factor: inf is not a factor"),
        ({"step_factor": math.nan}, "step_factor: nan is not a factor"),
    ],
)
def test_a_question_without_an_answer_is_refused(
    small: Question, changed: dict[str, Any], words: str
) -> None:
    small.check()
    replace(small, spare=0, step_factor=1e-9).check()
    with pytest.raises(InputError) as refused:
        replace(small, **changed).check()
    assert (
        str(refused.value)
        .replace("--", "")
        .replace("-", "_")
        .startswith(words.replace("--", "").replace("-", "_"))
    )


@pytest.mark.parametrize(
    ("changed", "fixed"),
    [
        ({}, set()),
        ({"max_num_tokens": 512}, {"tokens"}),
        ({"max_batch_sizes": (8,)}, {"batch"}),
        ({"chunked_prefill": False}, {"chunk"}),
        ({"front_ends": 1}, {"front_ends"}),
        ({"max_num_tokens": 512, "chunked_prefill": True}, {"tokens", "chunk"}),
    ],
)
def test_the_knobs_that_were_not_set_are_free(
    small: Question, changed: dict[str, Any], fixed: set[str]
) -> None:
    free = replace(small, **changed).free_moves
    assert {"tokens", "batch", "chunk", "front_ends"} - set(free) == fixed
    assert list(free) == [move for move in small.free_moves if move not in fixed]


def test_a_drawn_stream_is_open_and_no_job(small: Question) -> None:
    assert small.drawn
    assert not small.offline
    assert not replace(small, load="closed").drawn
    job = replace(small, demand=replace(small.demand, offline_requests=1))
    assert job.offline
    assert not job.drawn
    assert small.sharing_behind("least-outstanding") is None
