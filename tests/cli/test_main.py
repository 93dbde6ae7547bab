"""Verbs, and a word after one."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tonnage.cli.main import VERBS, run, with_bare_word


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


def test_bash_takes_the_completion_and_it_knows_every_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert [verb for verb in VERBS if verb not in script] == []
    bash = shutil.which("bash")
    assert bash is not None
    assert subprocess.run([bash, "-n"], input=script, text=True, check=False).returncode == 0
