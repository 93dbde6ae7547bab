"""Options as other tools spell them, and values that cannot be read: the line says what to type,
and that is understood."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

from tonnage import api
from tonnage.api.question.bench import prepare_bench
from tonnage.cli.flags import given
from tonnage.cli.main import ELSEWHERE, VERBS, _options, app, run, with_bare_word
from tonnage.errors import InputError

KNOWN = {verb: set(_options(app, verb)) for verb in VERBS}
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
    "ours",
    [
        ours[0]
        for ours in ELSEWHERE
        if "(" not in ours[0] and ";" not in ours[0] and "FILE" not in ours[0]
    ],
)
def test_what_is_to_be_typed_is_understood(ours: str) -> None:
    words = shlex.split(ours)
    known = {flag: name for flag in KNOWN["size"] if (name := flag[2:].replace("-", "_"))}
    asked: dict[str, object] = {"model": "llama-3.1-8b", "isl": 2000, "osl": 200}
    for place, word in enumerate(words):
        if not word.startswith("--") or word in ("--json", "--quiet"):
            continue
        value = (
            words[place + 1]
            if place + 1 < len(words) and not words[place + 1].startswith("--")
            else not word.startswith("--no-")
        )
        asked[known[word].removeprefix("no_")] = value
    needs = {
        "--turns 5": {},
        "--think-time 30s": {"turns": 3},
        "--shared-prefix 1000": {},
        "--working-hours 8": {"users": 5},
    }
    asked |= needs.get(ours, {})
    asked |= (
        {"requests_per_user_day": 5}
        if "users" in asked and "requests_per_user_day" not in asked
        else {}
    )
    asked |= (
        {}
        if {"peak_rps", "users", "requests", "have", "concurrency"} & set(asked)
        else {"peak_rps": 5}
    )
    if "dp" in asked or "ep" in asked:
        asked["model"] = "mixtral-8x7b"
    assert api.ask(None, **asked).questions  # type: ignore[arg-type]


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


def test_bench_takes_the_words_of_genai_perf() -> None:
    """``docs/tasks.md`` promises its flags for load and lengths."""
    words = [
        "-m",
        "llama",
        "-u",
        "127.0.0.1:9",
        "--synthetic-input-tokens-mean",
        "200",
        "--output-tokens-mean",
        "20",
        "--concurrency",
        "2",
    ]
    _, bound, _ = app.parse_args(["bench", *words])
    assert (
        bound.kwargs["model"],
        bound.kwargs["url"],
        bound.kwargs["isl"],
        bound.kwargs["osl"],
    ) == ("llama", "127.0.0.1:9", "200", "20")


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


def test_a_deviation_without_a_mean_says_what_to_type() -> None:
    asked = {"url": "127.0.0.1:9", "model": "llama", "concurrency": 1, "osl": 9}
    for isl in (None, "uniform:5-9"):
        with pytest.raises(InputError, match="goes with a mean alone; give isl a number"):
            prepare_bench(**asked, isl=isl, isl_stddev=5)


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("build", "tonnage deploy writes for triton has"),
        ("sparsify", "tonnage compress makes (format 2:4)"),
    ],
)
def test_a_verb_of_the_course_says_which_one_does_it(
    verb: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "llama-3.1-8b"]) == 2
    assert instead in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("memory llama-3.1-8b --tp 2", "memory --model llama-3.1-8b --tp 2"),
        ("size llama-3.1-8b --isl 1", "size --model llama-3.1-8b --isl 1"),
        ("simulate meta-llama/Llama-3.1-8B", "simulate --model meta-llama/Llama-3.1-8B"),
        ("serve ./llama", "serve --model ./llama"),
        ("bench http://x:8000 --quiet", "bench --url http://x:8000 --quiet"),
        ("gateway 127.0.0.1:8001", "gateway --backend 127.0.0.1:8001"),
    ],
)
def test_a_word_after_the_verb_is_what_the_verb_is_about(typed: str, meant: str) -> None:
    assert with_bare_word(typed.split()) == meant.split()


@pytest.mark.parametrize(
    "typed",
    [
        "bench selftest",
        "size chat.yaml",
        "simulate missing.yml",
        "serve --model llama-3.1-8b",
        "size x --model y",
    ],
)
def test_a_scenario_an_action_and_an_option_stay_as_they_are(typed: str) -> None:
    assert with_bare_word(typed.split()) == typed.split()


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
