from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.chatbot import BASE, asked
from tests.strategies import examples
from tonnage import api
from tonnage.errors import InputError, InputErrors
from tonnage.report.plans.notes import note_text
from tonnage.sizing.question import Question
from tonnage.spec.scenario import Leaf, leaves, takes

ROOT = Path(__file__).parents[2]


def test_flags_alone_ask_what_they_always_asked() -> None:
    question = asked(gpu="h100,l40s", tp=(1, 2), ttft="p95<=1s", engine=["vllm"])
    assert [gpu.name for gpu in question.gpus] == ["h100-sxm-80gb", "l40s"]
    assert (question.tps, question.demand.peak_requests_per_second, str(question.isl)) == (
        (1, 2),
        5,
        "2000+-20%",
    )
    assert [str(limit) for limit in question.slo] == ["TTFT p95 ≤ 1 s"]
    assert question.mode == "streaming"
    assert [note_text(note).startswith("Lengths vary by ±20%") for note in question.remarks] == [
        True
    ]
    assert asked(isl="exact:2000", osl="exact:200").remarks == ()


@pytest.mark.parametrize(
    ("model", "gpu", "formats"),
    [
        ("llama-3.1-8b", "h100", ["fp16", "fp8"]),
        ("gpt-oss-120b", "h100,a100-sxm-80gb", ["mxfp4"]),
        ("deepseek-r1", "h200", ["fp8"]),
        ("deepseek-r1", "h200,a100-sxm-80gb", ["fp8", "fp16"]),
    ],
)
def test_a_model_is_tried_in_the_format_that_it_is_published_in(
    model: str, gpu: str, formats: list[str]
) -> None:
    assert [each.name for each in asked(model=model, gpu=gpu).precisions] == formats
    assert [each.name for each in asked(model=model, gpu=gpu, precision="fp16").precisions] == [
        "fp16"
    ]


def test_systems_that_exist_are_a_question_by_themselves_and_beside_other_gpus() -> None:
    """Without lengths, those and the limits of a chat, which the plan says."""
    (alone,) = api.ask(None, model="llama-3.1-70b", have="2xdgx-h100").questions
    assert alone.demand.of_existing
    assert (str(alone.isl), str(alone.osl)) == ("lognormal:500,480", "lognormal:200,154")
    assert [str(limit) for limit in alone.slo] == ["TTFT p95 ≤ 1 s", "ITL p99 ≤ 250 ms"]
    assert [note_text(note).split(":")[0][:25] for note in alone.remarks] == [
        "The use case chatbot sets",
        "Lengths are log-normal, a",
    ]
    (own,) = api.ask(
        None, model="llama-3.1-70b", have="2xdgx-h100", isl="exact:100", osl="exact:50"
    ).questions
    assert (str(own.isl), own.slo, own.remarks) == ("exact:100", (), ())
    question = asked(have="2xdgx-h100", gpu="l40s")
    assert [gpu.name for gpu in question.gpus] == ["l40s", "h100-sxm-80gb"]


@pytest.mark.parametrize("beside", [{"growth": "5%/month"}, {"benchmarks": "x.csv"}])
def test_what_needs_the_load_of_today_is_refused_without_it(beside: dict[str, str]) -> None:
    with pytest.raises(
        InputErrors,
        match=rf"{next(iter(beside))}: needs today's load beside have; add for example peak_rps 20",
    ):
        api.ask(None, model="llama-3.1-70b", have="2xdgx-h100", **beside)


def test_parts_of_a_prompt_are_added_up_said_and_checked_against_the_context() -> None:
    question = asked(
        isl="75words", osl="exact:200", system_prompt=500, retrieved="5x400", history="3x300words"
    )
    assert question.isl.mean == pytest.approx(100 + 500 + 2000 + 1200)
    assert tuple(map(note_text, question.remarks)) == (
        (
            "Every prompt is 3,700 tokens longer than what is asked: 500 system prompt + 5 × 400"
            " retrieved passages + 3 × 400 chat history."
        ),
        "ISL of 75words is 100 tokens at 0.75 words a token (English).",
        (
            "Lengths vary by ±20% around the ISL given, which is assumed; give the real spread, or"
            " exact: before a number for requests that are equal."
        ),
    )
    with pytest.raises(
        InputErrors, match=r"8,700 tokens exceed the context of llama-3-8b, 8,192 tokens"
    ):
        asked(model="llama-3-8b", isl=100, osl=200, retrieved="7x1200")
    with pytest.raises(InputErrors, match=r"5,200 tokens on average and up to 8,290 tokens exceed"):
        asked(model="llama-3-8b", isl="5000+-1000", osl=200)
    assert asked(model="llama-3-8b", isl="uniform:4000-7900").isl.longest == 7900


def test_a_trace_is_replayed_with_its_lengths_or_others(tmp_path: Path) -> None:
    question = asked(
        isl=None, osl=None, peak_rps=None, trace=str(ROOT / "examples" / "code-completion.csv")
    )
    assert question.recording is not None
    assert question.replays_lengths
    assert question.pairs is not None
    assert question.demand.bursty
    question = asked(
        peak_rps=None, mean_rps=26, trace=str(ROOT / "examples" / "code-completion.csv")
    )
    assert not question.replays_lengths
    assert question.pairs is None
    assert question.demand.sizing_requests_per_second == pytest.approx(26)
    assert question.recording.mean_rps == pytest.approx(26)
    (tmp_path / "t.csv").write_text("timestamp\n0\n1\n3\n")
    trace = str(tmp_path / "t.csv")
    with pytest.raises(InputErrors, match="has no lengths"):
        asked(isl=None, osl=None, peak_rps=None, trace=trace)
    assert asked(peak_rps=None, trace=trace).recording is not None


def test_prices_of_flags_stand_over_those_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(
        "systems: {dgx-h100: 1000}\nhosting_usd_per_system_year: 7\n"
    )
    found = api.ask(
        None,
        **BASE,
        prices=str(tmp_path / "prices.yaml"),
        price=["systems.dgx-h100=2000", "pue=1.2"],
    )
    assert found.scenario.prices == {
        "systems": {"dgx-h100": 2000},
        "hosting_usd_per_system_year": 7,
        "pue": 1.2,
    }
    price = api.prices_of(found.scenario).system_usd("dgx-h100")
    assert price.value == 2000


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem
)
def test_examples_are_understood(path: Path) -> None:
    assert api.ask(path).questions


ODD = (
    *(
        "",
        "0",
        "-1",
        "3",
        "nan",
        "inf",
        "1e400",
        "1e308",
        "5x400",
        "p95<=1s",
        "llama-3-8b",
        "3xdgx-h100",
        "5%/month",
        "99999%/year",
        "8h",
    ),
    *(
        "0s",
        "words",
        "1words",
        "histogram:1:1e308,2:1e308",
        "lognormal:1,1e300",
        "lognormal:1e-3,5+3",
        "uniform:1-1e7",
        "\x00",
        "/dev/null",
    ),
    *(
        "/",
        "examples/lengths.csv",
        "examples/code-completion.csv",
        "1e308words",
        "on-prem",
        "{}",
        "pue=1",
        "9" * 30,
    ),
)
WORDS = st.text(max_size=6) | st.sampled_from(ODD)


def values_of(leaf: Leaf) -> st.SearchStrategy[Any]:
    """What a person, or a program, might put at a leaf."""
    kinds: list[st.SearchStrategy[Any]] = [WORDS]
    if takes(leaf.kind, float):
        kinds.append(st.floats())
    if takes(leaf.kind, int):
        kinds.append(st.integers())
    if "list" in str(leaf.kind):
        kinds.append(st.lists(WORDS, max_size=3))
    if "dict" in str(leaf.kind):
        kinds.append(
            st.dictionaries(
                st.sampled_from(["systems", "pue", "api"]),
                st.none() | st.floats() | st.lists(WORDS, max_size=2),
                max_size=2,
            )
        )
    if "Literal" in str(leaf.kind):
        kinds = [st.sampled_from(re.findall(r"'([^']+)'", str(leaf.kind)))]
    return st.one_of(kinds)


LEAVES = {leaf.name: leaf for leaf in leaves()}


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(LEAVES)), max_size=3, unique=True))
    return {name: draw(values_of(LEAVES[name])) for name in names}


@examples(3.0)
@given(answers())
def test_any_answers_are_a_question_or_input_errors(given_: dict[str, Any]) -> None:
    demand = (
        {}
        if {"mean_rps", "users", "calls_per_year", "trace", "requests"} & given_.keys()
        else {"peak_rps": 5}
    )
    messages: list[str] = []
    questions: tuple[Question, ...] = ()
    try:
        questions = api.ask(
            None, **{"model": "llama-3.1-8b", "isl": "100", "osl": "10", **demand, **given_}
        ).questions
    except InputError as error:
        messages = str(error).splitlines()
    assert bool(messages) != bool(questions)
    for question in questions:
        assert question.demand.sizing_requests_per_second > 0
        assert question.isl.draw(5, np.random.default_rng(0)).min() >= 1


def test_what_engines_call_a_setting_is_taken_by_name_and_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "question.yaml"
    question = "model: llama-3.1-8b\nlengths: {isl: 2000, osl: 200}\ndemand: {peak_rps: 5}\n"
    file.write_text(f"{question}search: {{max_num_seqs: 64, max_seq_len: 4096}}\n")
    (written,) = api.ask(str(file)).questions
    assert (written.max_batch_sizes, written.max_model_len, written.model.max_context) == (
        (64,),
        4_096,
        4_096,
    )
    (other,) = api.ask(str(file), max_batch_size=32, context_length=8_192).questions  # type: ignore[call-arg]
    assert (other.max_batch_sizes, other.max_model_len) == ((32,), 8_192)
    assert (
        asked(max_num_batched_tokens=4_096).max_num_tokens
        == asked(chunked_prefill_size="4096").max_num_tokens
        == (4_096,)
    )
    with pytest.raises(InputError, match="max_num_seqs and max_batch_size: are the same setting"):
        asked(max_num_seqs=5, max_batch_size=6)
    file.write_text(f"{question}search: {{max_num_seqs: 64, max_batch_size: 6}}\n")
    with pytest.raises(InputError, match="max_num_seqs and max_batch_size: are the same setting"):
        api.ask(str(file))
