"""The questions one by one, on a pseudo-terminal as a person would meet them."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tonnage.cli.size import ask, command, repetition
from tonnage.errors import InputError
from tonnage.spec.scenario import flat
from tonnage.spec.scenario_file import scenario_of

ANSWERS = [
    "llama-9",  # no such model: asked again
    "llama-3-8b",
    "9",  # no such form: asked again
    "tokens",
    "a page",  # no length: asked again
    "500",
    "50words",
    "much",  # no spread: asked again
    "exact",
    "calls",
    "",
    "",
    "",
    "1",
    "p95<=1",  # no unit: asked again
    "p95<=1s",
    "",
    "new",
    "h100",
    "0",
    "on-prem",
]
CHILD = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the pseudo-terminal the one that Ctrl-C is typed on, heard even where a job in the
background ignores it.

Then it becomes the command."""

PROMPT = re.compile(r"\]: $")


def on_terminal(answers: list[str], *arguments: str, seconds: float = 120) -> tuple[str, int]:
    """What a command shows and returns when a person answers each prompt."""
    terminal, end_of_child = pty.openpty()
    command_line = [
        sys.executable,
        "-P",
        "-c",
        CHILD,
        sys.executable,
        "-P",
        "-m",
        "tonnage",
        *arguments,
    ]
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "120", "NO_COLOR": "1"}
    child = subprocess.Popen(
        command_line,
        stdin=end_of_child,
        stdout=end_of_child,
        stderr=end_of_child,
        env=environment,
        start_new_session=True,
    )
    os.close(end_of_child)
    shown, left, end, again = "", list(answers), time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                read = os.read(terminal, 65536)
            except OSError:
                break
            if not read:
                break
            shown += read.decode(errors="replace")
        elif left and PROMPT.search(shown):
            answer = left.pop(0)
            os.write(terminal, (answer if answer == "\x03" else f"{answer}\n").encode())
            again = time.monotonic() + 2
        elif answers[-1] == "\x03" and not left and time.monotonic() > again:
            os.write(terminal, b"\x03")  # a person whose key went unheard presses it again
            again = time.monotonic() + 2
    try:
        code = child.wait(timeout=10)
    finally:
        child.kill()
        child.wait()
        os.close(terminal)
    return shown.replace("\r\n", "\n"), code


@pytest.mark.live
def test_six_questions_end_in_a_plan_and_in_what_repeats_it() -> None:
    shown, code = on_terminal(ANSWERS, "size")
    assert code == 0, shown
    assert "unknown model 'llama-9'" in shown
    assert "'9' is not one of them; write a number from 1 to 3" in shown
    assert "'a page' is not a length" in shown
    assert "'1' has no unit" in shown
    line = next(line for line in shown.splitlines() if line.startswith("./tonnage size "))
    assert (
        line == "./tonnage size --model llama-3-8b --isl 500 --osl 50words --spread exact"
        " --calls-per-year 30e6 --requests-per-call 30 --peak-factor 7 --ttft 'p95<=1s' --itl"
        " 'p99<=250ms' --mode streaming --gpu h100 --spare 0 --where on-prem"
    )
    written = shown.split("or as a file:")[1].split("\n\n")[1]
    assert scenario_of(yaml.safe_load(written), {}).demand.calls_per_year == 30e6
    assert "199.772 requests/s at the peak" in shown


def test_ctrl_c_leaves_cleanly() -> None:
    shown, code = on_terminal(["llama-3-8b", "\x03"], "size")
    assert code == 130
    assert "Traceback" not in shown


def asked(answers: list[str]) -> dict[str, object]:
    """The answers of a person who says nothing beyond these."""
    left = iter(answers)
    return ask(read=lambda: next(left, ""))


def test_silence_takes_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    answers = asked([])
    assert (answers["model"], answers["peak_rps"], answers["ttft"]) == (
        "llama-3.1-8b",
        "20",
        "p95<=500ms",
    )
    assert answers["spread"] == "chat"
    assert command(answers) in capsys.readouterr().out


@pytest.mark.parametrize("form", ["peak", "mean", "users", "calls", "job"])
@pytest.mark.parametrize("lengths", ["tokens", "parts"])
def test_every_form_makes_a_question(
    form: str, lengths: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tonnage import api

    answers = asked(["", lengths, *[""] * (6 if lengths == "parts" else 3), form])
    capsys.readouterr()
    (question,) = api.ask(None, **answers).questions
    assert (question.mode == "offline") == (form == "job")
    assert flat(yaml.safe_load(repetition(answers))).keys() == answers.keys()


def test_files_are_read_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text("isl,osl\n5,5\n")
    (tmp_path / "t.csv").write_text("timestamp\n0\n1\n3\n")
    answers = asked(
        [
            "",
            "file",
            "nowhere.csv",
            str(tmp_path / "p.csv"),
            "trace",
            str(tmp_path / "t.csv"),
            "sequential",
        ]
    )
    assert "nowhere.csv: cannot be read" in capsys.readouterr().out
    assert (answers["mode"], answers["e2e"]) == ("sequential", "p95<=10s")


def test_input_that_ends_early_is_an_input_error(capsys: pytest.CaptureFixture[str]) -> None:
    def nothing() -> str:
        raise EOFError

    with pytest.raises(InputError, match="ended before"):
        ask(read=nothing)
    assert "Traceback" not in capsys.readouterr().out
