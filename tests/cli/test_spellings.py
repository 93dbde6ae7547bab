"""Options as other tools spell them, and values that cannot be read: the line says what to type,
and that is understood."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.spelled import KNOWN
from tonnage import api
from tonnage.cli.main import ELSEWHERE, app


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
