"""What an engine refuses, in its words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.bodies import read
from tonnage.serve.dialect import DIALECTS, Refused


def test_errors_are_worded_as_each_engine_words_them() -> None:
    error = Refused("no", status=404, kind="NotFoundError", param="model")
    assert error.to_json(DIALECTS["vllm"]) == {
        "error": {"message": "no", "type": "NotFoundError", "param": "model", "code": 404}
    }
    for name in ("tensorrt-llm", "sglang"):
        flat = {
            "object": "error",
            "message": "no",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        }
        assert error.to_json(DIALECTS[name]) == flat


@pytest.mark.parametrize(
    "field",
    [
        {"logprobs": 3},
        {"response_format": {"type": "json_object"}},
        {"echo": True},
        {"structured_outputs": {"regex": "a"}},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_real_engine_refuses_what_it_does_not_heed(field: dict[str, Any]) -> None:
    body = {"prompt": "x", **field}
    assert read("completions", body).osl == 16
    with pytest.raises(Refused) as refused:
        read("completions", body, real=True)
    assert refused.value.param in field
