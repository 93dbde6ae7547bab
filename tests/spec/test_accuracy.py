"""Every published score has a source and a date, belongs to a model of the catalog and stands there once."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage import api
from tonnage.errors import DataError
from tonnage.spec.catalog import accuracy, find_quality, models
from tonnage.spec.catalog.accuracy import find_score, listed_scores, read_scores

TABLES: list[dict[str, Any]] = yaml.safe_load((Path(accuracy.__file__).parent / "accuracy.yaml").read_text(encoding="utf-8"))
NAMES = {model.name for model in models()}
COURSE = "NVIDIA DLI course"
GATHERED = Path(__file__).parents[3] / "shared" / "data" / "course_quality.csv"


def test_every_score_belongs_to_a_model_and_has_source_and_date() -> None:
    assert {name for table in TABLES if COURSE not in table["source"] for name in table["scores"]} <= NAMES
    for name in NAMES:
        for score in find_quality(name):
            assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", score.date), name
            assert re.search(r"arXiv \d{4}\.\d{5}|\.com/|\.ai/|model card|" + COURSE, score.source), score.source
            assert score.setting.startswith(("base model", "instruction-tuned", "chat model", "high reasoning")), name
            assert score.benchmark in ("MMLU", "MMLU-Pro", "GSM8K", "HumanEval") or COURSE in score.source
            assert 1 < score.score < 100


def test_most_models_have_the_benchmark_that_is_shown() -> None:
    known = {name for name in NAMES if find_score(name)}
    of_2026 = {model.name for model in models() if model.date in ("2026-11-22", "2026-11-25")}
    assert NAMES - known - of_2026 == {
        *("falcon-180b", "gpt-43b", "gpt-j-6b", "llama-3.1-nemotron-70b", "mistral-7b-v0.3", "mistral-small-24b"),
        *("phi-3-mini", "phi-3-mini-4k", "kimi-k2.5", "minimax-m2.5"),
    }


@pytest.mark.parametrize(
    ("model", "benchmark", "score"),
    [
        ("Qwen/Qwen3-32B", "MMLU-Pro", 65.54),
        ("meta-llama/Llama-3.1-405B-Instruct", "MMLU", 88.6),
        ("deepseek-r1", "MMLU", 90.8),
        ("phi-4", "HumanEval", 82.6),
        ("llama-4-maverick", "MMLU-Pro", 80.5),
    ],
)
def test_scores_as_published(model: str, benchmark: str, score: float) -> None:
    found = find_score(model, benchmark)
    assert found is not None
    assert found.score == score


def test_larger_models_of_a_table_know_more() -> None:
    for family in (("qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"), ("llama-3.1-8b", "llama-3.1-405b")):
        scores = [score.score for name in family if (score := find_score(name))]
        assert len(scores) == len(family)
        assert scores == sorted(scores)


def test_models_without_published_quality_have_none(tmp_path: Path) -> None:
    assert find_quality("gpt-43b") == ()
    assert find_quality("no-such-model") == ()
    assert find_quality(str(tmp_path / "config.json")) == ()
    assert find_score("phi-4", "ARC") is None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"source": ""}, "no source"),
        ({"date": None}, "date: None is not a text"),
        ({"settings": "0-shot"}, "settings: unknown key; did you mean setting"),
        ({"setting": ""}, "no setting"),
        ({"scores": {"phi-4": {"MMLU": 184.8}}}, "not between"),
        ({"scores": {"phi-4": {"MMLU": 0}}}, "not between"),
    ],
)
def test_no_score_without_a_source(change: dict[str, Any], word: str) -> None:
    table = {"source": "a card", "date": "2024-12-12", "setting": "base model", "scores": {"phi-4": {"MMLU": 84.8}}}
    assert read_scores([table])["phi-4"][0].score == 84.8
    with pytest.raises(DataError, match=word):
        read_scores([table | change])


def test_two_scores_of_a_model_in_a_benchmark_are_refused() -> None:
    with pytest.raises(DataError, match="twice"):
        read_scores([TABLES[0], TABLES[0]])


def test_the_course_s_scores_stand_beside_the_others_and_take_no_one_s_place() -> None:
    scores = [score for score in find_quality("llama-2-70b") if score.benchmark == "MMLU"]
    assert [(score.score, COURSE in score.source) for score in scores] == [(69.7, False), (68.9, True)]
    shown = find_score("llama-2-70b")
    assert shown is not None
    assert shown.score == 69.7
    course = [score for score in listed_scores() if COURSE in score.source]
    assert len({score.benchmark for score in course}) >= 13
    listed = api.catalog("quality")["quality"]
    assert {"model": "falcon-40b", "benchmark": "TriviaQA", "score": 78.6}.items() <= next(
        score for score in listed if score["model"] == "falcon-40b" and score["benchmark"] == "TriviaQA"
    ).items()


@pytest.mark.skipif(not GATHERED.exists(), reason="the shared data lies beside a working copy only")
def test_every_row_of_the_course_s_tables_is_there() -> None:
    with GATHERED.open(encoding="utf-8", newline="") as file:
        rows = [(row["benchmark"], float(row["score"]), row["kind"] == "measured") for row in csv.DictReader(file)]
    course = [score for score in listed_scores() if COURSE in score.source]
    assert sorted((score.benchmark, score.score, "measured" in score.setting) for score in course) == sorted(rows)


def test_the_catalog_lists_published_quality() -> None:
    (model,) = api.catalog("qwen3-8b")["models"]
    assert model["quality"][0] == {
        "benchmark": "MMLU",
        "score": 76.89,
        "setting": "base model; MMLU and MMLU-Pro 5-shot, GSM8K 4-shot",
        "source": "Qwen3 Technical Report (arXiv 2505.09388), tables 3 to 8",
        "date": "2025-05-14",
    }
    assert api.catalog("gpt-43b")["models"][0]["quality"] == []
