"""From a written scenario to a question."""

from __future__ import annotations

import pytest

from tonnage.api.question.sizing import check_leaf, owned
from tonnage.errors import InputError

GOOD = {
    "model": "llama-3-8b,gpt-j-6b",
    "isl": "300words",
    "retrieved": "5x400",
    "users": "5",
    "ttft": "p95<=1s",
    "have": "3xdgx-h100",
    "within": "8h",
}

BAD = {
    "model": "llama-9",
    "isl": "x",
    "retrieved": "5y",
    "users": "many",
    "ttft": "fast",
    "have": "pigs",
    "within": "8",
    "trace": "nowhere.csv",
}
CONTEXT = {"within": {"requests": "5"}}


def test_an_answer_is_checked_by_itself() -> None:
    for name, text in GOOD.items():
        check_leaf(name, text, CONTEXT.get(name, {}))
    for name, text in BAD.items():
        with pytest.raises(InputError):
            check_leaf(name, text, CONTEXT.get(name, {}))


def test_servers_by_name() -> None:
    for text, held in [
        ("3xdgx-h100", [(3, "dgx-h100", 8)]),
        ("3x4xl40s", [(3, "4xl40s", 4)]),
        ("16xh100", [(2, "dgx-h100", 8)]),
        ("12xh100", [(1, "4xh100-sxm-80gb", 4), (1, "dgx-h100", 8)]),
        ("4x1xh100", [(4, "1xh100-sxm-80gb", 1)]),
        ("2xp5.48xlarge", [(2, "p5.48xlarge", 8)]),
        ("2 x a2-highgpu-1g", [(2, "a2-highgpu-1g", 1)]),
    ]:
        assert [(each.count, each.system.name, each.system.gpus) for each in owned(text)] == held
    for text in ["3xnothing", "0xdgx-h100", "h100", "3x99xl40s", "3x0xl40s"]:
        with pytest.raises(InputError, match=r"unknown system|is not a number of systems"):
            owned(text)
