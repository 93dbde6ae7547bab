"""Classes of traffic as people write them: one text for each, with keys of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tonnage.api import by_class, size, size_use_cases
from tonnage.api.question.classes import classes_of, named_classes
from tonnage.errors import InputError, InputErrors

CHAT = "chat:peak_rps=20,isl=lognormal:2000,500,osl=200,ttft=p95<=500ms,ttft=mean<=200ms"
BATCH = "batch:peak_rps=5/s,isl=4k,osl=300-500,e2e=p95<=2min,attain=95%: ttft<=5s & tpot<=50ms"
ASKED: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100", "tp": "1", "engine": "vllm"}


def test_each_class_is_a_use_case_with_the_rest_of_the_question() -> None:
    chat, batch = by_class(None, {**ASKED, "classes": [CHAT, BATCH], "spare": 1})
    assert chat | ASKED == chat
    assert (chat["title"], chat["priority"], batch["title"], batch["priority"]) == (
        "chat",
        0,
        "batch",
        1,
    )
    assert (chat["isl"], chat["peak_rps"], chat["ttft"]) == (
        "lognormal:2000,500",
        20.0,
        ["p95<=500ms", "mean<=200ms"],
    )
    assert batch["attain"] == ["95%: ttft<=5s & tpot<=50ms"]
    assert (batch["osl"], batch["spare"]) == ("300-500", 1)
    assert "peak_rps" not in by_class(None, ASKED)


def test_shares_divide_the_load_that_is_given_for_all() -> None:
    texts = ["chat:share=0.7,isl=500,osl=100", "batch:share=30%,isl=900,osl=100,priority=4"]
    chat, batch = by_class(None, {**ASKED, "peak_rps": 10, "classes": texts})
    assert (chat["peak_rps"], batch["peak_rps"]) == pytest.approx((7.0, 3.0))
    assert (chat["priority"], batch["priority"]) == (0, 4)
    hours = [1.0, 2.0] * 12
    chat, batch = by_class(None, {**ASKED, "profile": hours, "classes": texts})
    assert [sum(pair) for pair in zip(chat["profile"], batch["profile"], strict=True)] == hours
    with pytest.raises(InputError, match="a share of a load that is not given"):
        by_class(None, {**ASKED, "classes": texts})


def test_a_class_with_its_own_load_keeps_the_shape_of_the_profile() -> None:
    texts = ["chat:peak_rps=40,isl=500,osl=100", "batch:requests=1M,within=24h,isl=900,osl=100"]
    chat, batch = by_class(None, {**ASKED, "profile": [1.0] * 24, "mean_rps": 3, "classes": texts})
    assert (chat["peak_rps"], chat["profile"]) == (40.0, [1.0] * 24)
    assert "mean_rps" not in chat
    assert (batch["requests"], batch["within"]) == (1e6, "24h")
    assert "profile" not in batch
    limited = {**ASKED, "ttft": "p95<=1s", "classes": texts}
    chat, batch = by_class(None, limited)
    assert (chat["ttft"], "ttft" in batch) == ("p95<=1s", False)


def test_a_file_holds_the_classes_too(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    text = f"model: llama-3.1-8b\nsearch:\n  gpu: h100\n  class: ['{CHAT}', '{BATCH}']\n"
    path.write_text(text, encoding="utf-8")
    chat, batch = by_class(path, {"engine": "vllm"})
    assert (chat["title"], batch["title"], chat["engine"], chat["gpu"]) == (
        "chat",
        "batch",
        "vllm",
        "h100",
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["chat"], "is not a class; write a name"),
        (["chat:"], "is not a class; write a name"),
        ([":isl=3"], "is not a class; write a name"),
        (["chat:isl"], "is not a class; write a name"),
        (["chat:tokens=3,isl=3", BATCH], "chat has no key 'tokens'"),
        (["chat:gpu=h100", BATCH], "chat has no key 'gpu'"),
        (["chat:isl=3,isl=4", BATCH], "chat has isl twice"),
        ([CHAT, CHAT], "chat is given twice"),
        ([CHAT], "chat is the only class"),
        (["chat:peak_rps=many,isl=1,osl=1", BATCH], "'many' is not a number"),
        (["chat:share=1.5,isl=1,osl=1", BATCH], "'1.5' is not a share"),
        (["chat:share=x%,isl=1,osl=1", BATCH], "is not a share"),
    ],
)
def test_what_is_no_class_is_refused_with_what_to_type(texts: list[str], said: str) -> None:
    with pytest.raises((InputError, InputErrors), match=said):
        by_class(None, {**ASKED, "peak_rps": 1, "classes": texts})


def test_classes_of_a_simulation_are_named_either_way() -> None:
    old = classes_of("chat 0.7 ttft=1s, batch 0.3")
    assert classes_of(["chat:share=0.7,ttft=1s", "batch:share=0.3"]) == old
    assert [named.name for named in named_classes([CHAT, BATCH])] == ["chat", "batch"]
    spaced = "chat: peak_rps=6 isl=1500  ttft=p95<=1s mixture=short-in-short-out 0.7, long-in-long-out 0.3"
    assert named_classes([spaced, BATCH])[0].values == {
        "peak_rps": "6",
        "isl": "1500",
        "ttft": ["p95<=1s"],
        "mixture": "short-in-short-out 0.7, long-in-long-out 0.3",
    }
    with pytest.raises(InputError, match="a class of a simulation has share and one ttft"):
        classes_of(["chat:share=0.7,isl=3", "batch:share=0.3"])
    with pytest.raises(InputError, match="is for tonnage simulate"):
        by_class(None, {"classes": "chat 0.7 ttft=1s, batch 0.3"})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"engine": "tensorrt-llm"}, "serves no request by priority; sglang and vllm do"),
        ({"gpu": "h100,b200", "objective": "cost"}, "least cost on one type of GPU only"),
    ],
)
def test_what_classes_cannot_be_sized_with_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        size_use_cases([], classes=[CHAT, BATCH], **{**ASKED, **more})


def test_background_work_is_one_class_and_goes_last() -> None:
    job = "night:requests=1M,within=8h,isl=900,osl=100"
    for texts in ([job, CHAT], [CHAT, job, job.replace("night", "other")]):
        with pytest.raises(InputError, match="is one class, which goes last"):
            size_use_cases([], classes=texts, **ASKED)
    with pytest.raises(InputErrors, match="sized together"):
        size(None, classes=[CHAT, BATCH], isl=1, osl=1, peak_rps=1, **ASKED)
