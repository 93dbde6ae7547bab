"""Flags, and what to type in place of another tool's."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from tests.cli.spelled import KNOWN
from tonnage.api.question.bench import prepare_bench
from tonnage.cli.flags import given
from tonnage.cli.main import ELSEWHERE, app, run

THEIRS = [(name, ours) for ours, names in ELSEWHERE.items() for name in names.split()]
FIRSTS = {names.split()[0] for names in ELSEWHERE.values()}

ASKED = [
    pytest.param(name, ours, id=name, marks=() if name in FIRSTS else pytest.mark.accuracy)
    for name, ours in THEIRS
]
"""One name for each line that is said; ./check --accuracy types the others too."""


def test_every_name_stands_once_and_every_example_is_an_option_of_some_verb() -> None:
    names = [name for name, _ in THEIRS]
    assert len(names) == len(set(names))
    for ours in ELSEWHERE:
        for example in ours:
            assert any(example.split()[0] in options for options in KNOWN.values()), example


@pytest.mark.parametrize(("name", "ours"), ASKED)
def test_size_says_what_to_type_for_the_option_of_another_tool(
    name: str, ours: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"--{name}" not in KNOWN["size"]
    example = next(one for one in ours if one.split()[0] in KNOWN["size"])
    assert run(["size", "--model", "llama-3.1-8b", f"--{name}", "5"]) == 2
    captured = capsys.readouterr()
    typed = (
        example
        if "(" in example
        else re.sub(r"^(\S+ (?:\d+\+-)?)[\d.]+(?= |$)", r"\g<1>5", example)
    )
    assert (captured.out, captured.err) == (
        "",
        f"tonnage: --{name}: unknown option; type {typed}\n",
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("size -isl 5", "-isl: unknown option; type --isl"),
        (
            "size --growth -5%/month",
            "--growth: '-5%/month' begins like an option; write --growth=-5%/month",
        ),
        (
            "simulate --max-concurrency 5",
            "--max-concurrency: unknown option; type --concurrency 5",
        ),
        ("simulate --qps=7.5", "--qps: unknown option; type --request-rate 7.5"),
        ("bench --num-requests 5", "--num-requests: unknown option; type --request-count 5"),
        ("size --dtype bf16", "--dtype: unknown option; type --precision bf16"),
        ("size --isl 900 --isl-std 30", "--isl-std: unknown option; type --isl 900+-30"),
        ("size --mem-fraction 0.8", "--mem-fraction: unknown option; type --gpu-memory-util"),
        ("size --documents 2M", "--documents: unknown option; type --requests 2M --within 8h"),
        ("import a.json", "--output: missing; The run folder to write"),
        ("simulate --ticks --plot", "--plot: needs a value; Write the figures of a sweep"),
        ("schema everything", "'everything': one word too many; schema --help says what"),
        ("simulate --requests ten", "--requests: 'ten' is not a whole number; Requests per point"),
        ("size --max-loras 5", '--max-loras: unknown option; type --lora "rank=16 adapters=8"'),
    ],
)
def test_other_lines_say_what_to_type(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(words)) == 2
    assert capsys.readouterr().err.startswith(f"tonnage: {says}")


@pytest.mark.parametrize(
    ("lengths", "isl", "osl"),
    [
        ("--synthetic-input-tokens-stddev 0 --output-tokens-stddev 0", (2000, 0), (200, 0)),
        ("--synthetic-input-tokens-stddev 300 --output-tokens-stddev 20", (2000, 300), (200, 20)),
        ("--isl-stddev 7.5", (2000, 7.5), (200, 0)),
    ],
)
def test_deviations_of_genai_perf_are_those_of_the_lengths(
    lengths: str, isl: tuple[float, float], osl: tuple[float, float]
) -> None:
    words = "-m llama -u 127.0.0.1:9 --num-prompts 90 --random-seed 7 --concurrency 2"
    means = "--synthetic-input-tokens-mean 2000 --output-tokens-mean 200"
    _, bound, _ = app.parse_args(["bench", *shlex.split(f"{words} {means} {lengths}")])
    (question,) = prepare_bench(**given(bound.kwargs)).questions
    assert (question.requests, question.seed) == (90, 7)
    drawn = np.random.default_rng(0)
    for length, (mean, deviation) in ((question.isl, isl), (question.osl, osl)):
        values = length.draw(4000, drawn)
        assert values.mean() == pytest.approx(mean, rel=0.02)
        assert values.std() == pytest.approx(deviation, rel=0.1, abs=0.1)


@pytest.mark.parametrize("verb", ["size", "simulate"])
def test_a_clock_of_nothing_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--peak-rps", "5", "--ttft", "p95<=1s"] if verb == "size" else ["--concurrency", "4"]
    assert (
        run(
            [
                verb,
                "llama-3-8b",
                "--gpu",
                "h100",
                "--isl",
                "1000",
                "--osl",
                "100",
                *load,
                "--gpu-clock",
                "0",
            ]
        )
        == 2
    )
    assert (
        capsys.readouterr().err
        == "tonnage: --gpu-clock: 0 is not a share that rates are known for; write 50% to 100%\n"
    )
