"""Published scores of formats: whose they are, and what is said of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.errors import DataError
from tonnage.spec.catalog import accuracy, models
from tonnage.spec.catalog.accuracy import (
    accuracy_and_calibration,
    find_quality,
    published_loss,
    read_scores,
    trade_offs,
)
from tonnage.spec.precision import PRECISIONS, find_precision


def test_published_words() -> None:
    table = {one.name: one for name in PRECISIONS for one in trade_offs(PRECISIONS[name])}
    assert set(table) == {
        "fp8",
        "int8-sq",
        "int8-wo",
        "int4-wo",
        "awq",
        "gptq",
        "w4a8",
        "int4-g32",
        "mxfp8",
    }
    assert all(one.source and len(one.date) == 10 for one in table.values())
    assert accuracy_and_calibration(PRECISIONS["fp8"]) == ("very low", "minutes")
    assert accuracy_and_calibration(find_precision("awq+kv-fp8")) == ("low", "tens of minutes")
    assert accuracy_and_calibration(PRECISIONS["fp16"]) == ("", "")
    assert accuracy_and_calibration(PRECISIONS["fp8"], released="fp8") == ("none", "none")
    assert accuracy_and_calibration(PRECISIONS["fp8"], released="bf16") == ("very low", "minutes")
    assert accuracy_and_calibration(find_precision("awq+experts"), released="awq+experts") == (
        "none",
        "none",
    )
    assert (
        accuracy_and_calibration(PRECISIONS["fp16"], released="bf16")
        == accuracy_and_calibration(PRECISIONS["fp16"])
        == ("", "")
    )
    assert accuracy_and_calibration(find_precision("fp8+2:4")) == (
        "very low (fp8) and high (2:4)",
        "minutes (fp8) and fine-tuning (2:4)",
    )


def test_the_published_loss_of_the_model_nearest_in_size() -> None:
    assert published_loss(PRECISIONS["fp8"], 7e9) == ("llama-3.1-8b", 1.50)
    assert published_loss(PRECISIONS["awq"], 70e9) == ("llama-3.1-70b", 1.07)
    assert published_loss(PRECISIONS["w4a8"], 400e9) == ("llama-3.1-70b", 1.20)
    assert published_loss(PRECISIONS["int8-sq"], 200e9) == ("falcon-180b", 2.56)
    assert published_loss(PRECISIONS["nvfp4"], 7e9) is None
    assert published_loss(find_precision("fp8+2:4"), 7e9) is None
    assert published_loss(PRECISIONS["fp8"], 7e9, "GSM8K") is None


TABLES: list[dict[str, Any]] = yaml.safe_load(
    (Path(accuracy.__file__).parent / "accuracy.yaml").read_text(encoding="utf-8")
)
NAMES = {model.name for model in models()}
COURSE = "NVIDIA DLI course"


def test_every_score_belongs_to_a_model_and_has_source_and_date() -> None:
    assert {
        name for table in TABLES if COURSE not in table["source"] for name in table["scores"]
    } <= NAMES
    for name in NAMES:
        for score in find_quality(name):
            assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", score.date), name
            assert re.search(
                r"arXiv \d{4}\.\d{5}|\.com/|\.ai/|model card|" + COURSE, score.source
            ), score.source
            assert score.setting.startswith(
                ("base model", "instruction-tuned", "chat model", "high reasoning")
            ), name
            assert (
                score.benchmark in ("MMLU", "MMLU-Pro", "GSM8K", "HumanEval")
                or COURSE in score.source
            )
            assert 1 < score.score < 100


@pytest.mark.parametrize(
    ("change", "word"),
    [({"source": ""}, "no source"), ({"scores": {"phi-4": {"MMLU": 184.8}}}, "not between")],
)
def test_no_score_without_a_source(change: dict[str, Any], word: str) -> None:
    table = {
        "source": "a card",
        "date": "2024-12-12",
        "setting": "base model",
        "scores": {"phi-4": {"MMLU": 84.8}},
    }
    assert read_scores([table])["phi-4"][0].score == 84.8
    with pytest.raises(DataError, match=word):
        read_scores([table | change])
