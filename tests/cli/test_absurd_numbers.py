"""Numbers far outside of what anybody means: one clear line or an answer, within seconds, and never
a traceback."""

import time
from pathlib import Path

import pytest

from tests.in_turn import in_turn
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.formats import table
from tonnage.formats.measured_files import measurements
from tonnage.simulator.kernel import warm_up

SECONDS = 20.0
"""Most seconds of one command, on a machine that does other things too; most take less than one."""

ABSURD = ("9" * 30, "1e-320", "1e308", "nan", "-1")
ONE = {"--model": "llama-3.1-8b", "--gpu": "h100-sxm-80gb", "--isl": "50", "--osl": "10"}
SIMULATE = {**ONE, "--request-rate": "2", "--requests": "50"}
SIZE = {
    **ONE,
    "--precision": "fp8",
    "--tp": "1",
    "--engine": "vllm",
    "--peak-rps": "5",
    "--ttft": "p95<=1s",
}
EXPERTS = {"--model": "mixtral-8x7b"}

SIMULATED: dict[str, dict[str, str]] = {
    **{
        f: {}
        for f in ("--isl", "--osl", "--request-rate", "--requests", "--tp", "--seed", "--instances")
    },
    **{
        f: {}
        for f in (
            "--max-batch-size",
            "--max-num-tokens",
            "--stream-interval",
            "--graph-tokens",
            "--front-ends",
        )
    },
    "--concurrency": {"--request-rate": ""},
    "--window": {"--request-rate": "", "--requests": "", "--concurrency": "2", "--window": "{}s"},
    "--cv": {"--arrivals": "gamma"},
    "--dp": EXPERTS,
    "--ep": EXPERTS,
    "--receive-interval": {"--engine": "sglang"},
    "--batch-wait-steps": {"--batch-wait-ratio": "0.9"},
    "--batch-wait-ratio": {"--batch-wait-steps": "20"},
}
LESSON = (
    *(
        "--slots",
        "--prefill-ticks",
        "--itl-ticks",
        "--prefill-chunks",
        "--initial-batch",
        "--tick-rate",
        "--osl-mean",
        "--osl-std",
    ),
    *("--until", "--concurrency", "--seed"),
)
PEOPLE = {"--peak-rps": "", "--users": "200", "--requests-per-user-day": "20"}
SIZED: dict[str, dict[str, str]] = {
    **{
        f: {}
        for f in (
            "--isl",
            "--osl",
            "--peak-rps",
            "--spare",
            "--seed",
            "--system-prompt",
            "--tp",
            "--pp",
            "--dp",
            "--ep",
        )
    },
    **{
        f: {} for f in ("--max-batch-size", "--max-num-tokens", "--stream-interval", "--front-ends")
    },
    "--words-per-token": {"--isl": "350words"},
    "--retrieved": {"--retrieved": "5x{}"},
    "--history": {"--history": "{}x5"},
    "--mean-rps": {"--peak-rps": ""},
    "--peak-percentile": {"--peak-rps": "", "--mean-rps": "5"},
    "--peak-factor": {"--peak-rps": "", "--mean-rps": "5"},
    **{
        f: {**PEOPLE, f: "{}"}
        for f in ("--users", "--requests-per-user-day", "--working-hours", "--working-days")
    },
    "--calls-per-year": {"--peak-rps": ""},
    "--requests-per-call": {"--peak-rps": "", "--calls-per-year": "1000000"},
    "--profile": {"--peak-rps": "", "--profile": ",".join(["{}"] * 24)},
    "--requests": {"--peak-rps": "", "--ttft": "", "--within": "8h"},
    "--within": {"--peak-rps": "", "--ttft": "", "--requests": "1000", "--within": "{}s"},
    "--cv": {"--arrivals": "gamma"},
    "--ttft": {"--ttft": "p95<={}s"},
    "--growth": {"--have": "1xdgx-h100", "--growth": "{}%/year"},
    "--have": {"--have": "{}xdgx-h100"},
    "--price": {"--price": "systems.dgx-h100={}"},
}


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Have the simulator compiled before any command is timed."""
    warm_up()


def command(
    verb: str, fixed: dict[str, str], flag: str, beside: dict[str, str], value: str
) -> list[str]:
    """The command of a flag; a flag with an empty value is left out."""
    flags = {**fixed, flag: "{}", **beside}
    return [
        verb,
        *(
            word.replace("{}", value)
            for name, text in flags.items()
            if text
            for word in (name, text)
        ),
    ]


def check(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command and hold it to its contract."""
    begun = time.monotonic()
    code = run(words)
    assert time.monotonic() - begun < SECONDS
    assert code in (0, 2, 3)
    if code == 2:
        captured = capsys.readouterr()
        lines = [line for line in captured.err.splitlines() if "compiling" not in line]
        assert captured.out == ""
        assert lines
        assert all(line.startswith("tonnage: ") for line in lines)


@pytest.mark.parametrize(("flag", "value"), in_turn(tuple(SIMULATED), ABSURD))
def test_no_number_breaks_a_simulation(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(command("simulate", SIMULATE, flag, SIMULATED[flag], value), capsys)


@pytest.mark.parametrize(("flag", "value"), in_turn(LESSON, ABSURD))
def test_no_number_breaks_the_lesson(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(["simulate", "--ticks", flag, value], capsys)


@pytest.mark.parametrize(("flag", "value"), in_turn(tuple(SIZED), ABSURD))
def test_no_number_breaks_a_sizing(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(command("size", SIZE, flag, SIZED[flag], value), capsys)


def line_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "compiling" not in line]
    return line


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_price_of_400_digits_is_refused(sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of(
        command("size", SIZE, "--price", {"--price": "systems.dgx-h100={}"}, sign + "9" * 400),
        capsys,
    )
    assert line.endswith("holds a number of more than 40 digits; write a smaller one")


def test_a_window_beyond_simulated_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = command("simulate", SIMULATE, "--window", SIMULATED["--window"], "1e9")
    assert (
        line_of(words, capsys)
        == "tonnage: --window: '1e9s' is longer than a simulated run may be; write at most"
        " 9,000,000s (104 days)"
    )


@pytest.mark.parametrize(
    "place", ["a" * 400, "a" * 400 + ".csv", "folder/" + "a" * 5_000 + "/points.csv"]
)
def test_measurements_with_a_name_longer_than_files_have_are_refused(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = line_of(
        ["size", "--benchmarks", place, "--peak-rps", "10", "--ttft", "mean<=300ms"], capsys
    )
    assert "cannot be read (File name too long)" in line
    assert len(line) < 200


def test_a_folder_of_far_more_than_runs_is_not_walked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_FILES", 3)
    for name in "dcba":
        (tmp_path / name).write_text("x", encoding="utf-8")
    with pytest.raises(
        InputError, match="more than 3 files lie below it; give the folder that holds the runs"
    ):
        next(measurements(tmp_path))


SLOW = {
    "a thousand calls a year": (
        "--model llama-3.1-8b --gpu h100 --precision fp8 --tp 1 --isl 500 --osl 100 "
        "--calls-per-year 1000 --ttft p95<=1s"
    ),
    "a search down to a request a day": (
        "--model llama-3.1-405b --gpu h200 --precision fp8 --tp 8 --engine vllm --isl 3000 --osl"
        " 200 --peak-rps 0.874 --arrivals gamma --cv 2 --ttft p95<=1s"
    ),
}


@pytest.mark.parametrize(
    "question",
    [
        "a thousand calls a year",
        pytest.param("a search down to a request a day", marks=pytest.mark.accuracy),
    ],
)
def test_traffic_of_a_request_a_day_is_sized(
    question: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both overflowed simulated time."""
    assert run(["size", *SLOW[question].split()]) in (0, 3)
    assert "due times" not in capsys.readouterr().err


def test_a_simulation_that_lasts_for_years_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = line_of(command("simulate", SIMULATE, "--request-rate", {}, "1e-6"), capsys)
    assert line.startswith(
        "tonnage: --requests: 50 at 1e-06 a second come over more than 9,000,000 s (104 days)"
    )
