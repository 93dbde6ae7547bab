"""Durations and sizes as people write them."""

from __future__ import annotations

import math
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tolerance import FITTED, Tolerance, check_golden, words_and_numbers
from tonnage.cli.main import VERBS, flag
from tonnage.csv_file import csv_rows, named_rows, read_text, text_lines
from tonnage.errors import InputError
from tonnage.scope import REFUSED, refused
from tonnage.spec.catalog.entries import engine_shelf, gpu_shelf, model_shelf
from tonnage.spec.precision import ALIASES, PRECISIONS
from tonnage.spec.scenario import leaves
from tonnage.units import format_duration, parse_bytes, parse_duration, to_ps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300ms", 0.3),
        ("3s", 3.0),
        ("1.5 min", 90.0),
        ("200us", 2e-4),
        ("200µs", 2e-4),
        ("1_000ms", 1.0),
        ("2h", 7200.0),
        ("1e3ms", 1.0),
        ("8 hours", 28_800.0),
        ("1 day", 86_400.0),
    ],
)
def test_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "3", "ms", "-1s", "3 s s", "1,5s", "0x10s", "١s", "3 fortnights", "9" * 400 + "s"]
)
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--ttft: "):
        parse_duration(text, "--ttft")


@pytest.mark.parametrize(
    ("text", "size"), [("80GB", 80 * 10**9), ("64 GiB", 64 * 2**30), ("1.5kb", 1500)]
)
def test_bytes_are_decimal_unless_they_say_binary(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_one_clear_line(text: str) -> None:
    try:
        seconds, lines = parse_duration(text), 1
    except InputError as error:
        seconds, lines = 0.0, len(str(error).splitlines())
    assert math.isfinite(seconds)
    assert seconds >= 0
    assert lines == 1


@given(st.floats(1e-9, 1e5))
def test_picoseconds_are_within_half_a_picosecond(seconds: float) -> None:
    assert abs(to_ps(seconds) - seconds * 1e12) <= 0.5 + seconds * 1e-3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.6123, "612 ms"), (2.606, "2.61 s"), (4.2e-6, "4.2 µs"), (0.0, "0 s"), (3e-9, "3 ns")],
)
def test_duration_is_shown_with_three_digits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# One reader of CSV and text files: whatever is wrong is told with the file and the line.


def written(folder: Path, data: bytes) -> Path:
    path = folder / "x.csv"
    path.write_bytes(data)
    return path


def test_marks_line_ends_and_comments_are_fine(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf# mine\r\n\r\nISL, osl \r\n1,2\r\n# more\r\n3\r\n")
    assert list(named_rows(path, "w", ("isl",))) == [
        (4, {"isl": "1", "osl": "2"}),
        (6, {"isl": "3", "osl": ""}),
    ]
    assert text_lines(path) == ["# mine", "", "ISL, osl ", "1,2", "# more", "3", ""]


def test_cells_may_hold_commas_and_line_ends() -> None:
    assert list(csv_rows('a,"b,\nc"\n\n,\nd,e\n', "f")) == [(2, ["a", "b,\nc"]), (5, ["d", "e"])]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty; its first line names the columns isl"),
        (b"osl,x\n1,2\n", "has no column isl; it has osl, x"),
        (b"a secret\n1\n", "has no column isl, and its first line names no columns"),
        (b"isl,osl,ISL \n1,2,3\n", "has two columns isl; leave one of them out"),
        (b"isl,a:b,a:b\n1,2,3\n", "has two columns of one name; leave one of them out"),
        (b'isl\n"1\n', "line 2: not a CSV line"),
        (b"isl\n\xff\n", "not UTF-8 text at byte 4"),
        (b"isl\n\0\n", "holds binary data at character 4"),
    ],
)
def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path, data: bytes, says: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputError, match=says) as caught:
        list(named_rows(path, "pairs", ("isl",)))
    assert str(caught.value).startswith(f"pairs: {path}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^trace: .*nowhere\.csv: cannot be read \(No such file or directory\)"
    ):
        read_text(tmp_path / "nowhere.csv", "trace")
    with pytest.raises(InputError, match=r"^.*: cannot be read \(Is a directory\)"):
        read_text(tmp_path)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = written(tmp_path_factory.getbasetemp(), data)
    message = ""
    try:
        assert all(cells.keys() >= {"isl"} for _, cells in named_rows(path, "pairs", ("isl",)))
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert not message or message.startswith("pairs: ")


# What is refused on purpose names its reason, and nothing that is there is refused.


PAGE = (Path(__file__).parents[1] / "docs" / "scope.md").read_text(encoding="utf-8")
THERE = {
    "precision": [*PRECISIONS, *ALIASES],
    "GPU": [*gpu_shelf().by_name, *gpu_shelf().aliases],
    "engine": [*engine_shelf().by_name, *engine_shelf().aliases],
    "model": [*model_shelf().by_name, *model_shelf().aliases],
    "command": list(VERBS),
    "option": [flag(leaf.path) for leaf in leaves()],
}


@pytest.mark.parametrize("kind", THERE)
def test_nothing_that_is_there_is_refused(kind: str) -> None:
    assert [name for name in THERE[kind] if refused(kind, name)] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("precision", name) for name in ("fp64", "E5M2", "fp8_e5m2")),
        *(
            ("GPU", name)
            for name in (
                "H100 MIG 5g.10gb",
                "l40s-3g.24gb",
                "jetson-orin-nano",
                "NVIDIA Thor",
                "Ascend 910B",
                "trn2",
                "Groq LPU",
            )
        ),
        *(
            ("model", name)
            for name in (
                "google-bert/bert-base-uncased",
                "BAAI/bge-m3",
                "openai/whisper-large-v3",
                "stable-diffusion-xl",
            )
        ),
        *(
            ("option", name)
            for name in ("--cpu-offload-gb", "--swap-space", "--mig-profile", "--bls")
        ),
        *(("command", name) for name in ("train", "distill", "prune", "quantize")),
    ],
)
def test_what_is_asked_for_by_its_usual_names_is_refused(kind: str, name: str) -> None:
    assert refused(kind, name).endswith("(docs/scope.md)")


def test_the_page_shows_most_reasons_as_the_error_that_one_gets() -> None:
    shown = " ".join(re.findall(r"is not covered: (.*)", PAGE))
    reasons = {why for rows in REFUSED.values() for _, why in rows}
    assert len({why for why in reasons if why in shown}) >= 12


# The comparison that golden outputs and pages rest on must itself be able to fail.


KEPT = "Answer  1 × dgx-h100 (0.561 exactly)\n  TTFT p95 697 ms, 119k USD, TP 2\n"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    file = tmp_path / "answer.txt"
    file.write_text(KEPT, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "found",
    [
        KEPT,
        KEPT.replace("0.561", "0.570").replace("119k", "121k"),
        KEPT.replace("\n  TTFT", " TTFT"),
    ],
)
def test_small_moves_of_numbers_and_other_folds_are_let_pass(found: str, golden: Path) -> None:
    check_golden(found, golden)


@pytest.mark.parametrize(
    "found",
    [
        KEPT.replace("697", "800"),
        KEPT.replace("119k", "150k"),
        KEPT.replace("TP 2", "TP 4"),
        KEPT.replace("dgx-h100", "dgx-h200"),
        KEPT.replace("119k", "119M"),
        KEPT.replace(" exactly", ""),
        KEPT + "a line more\n",
        "",
    ],
)
def test_other_words_and_far_numbers_are_not(found: str, golden: Path) -> None:
    with pytest.raises(AssertionError, match=r"answer\.txt"):
        check_golden(found, golden)


def test_names_hold_no_numbers_and_numbers_keep_their_units() -> None:
    assert words_and_numbers("llama-3.1-8b at 1,000 req/s: 0.6 ms, 119k, -3 %") == (
        "llama-3.1-8b at # req/s: # ms, #k, # %",
        [1000, 0.6, 119, -3],
    )
    assert not FITTED.holds([1.0], [2.0])
    assert Tolerance(absolute=1.0).holds([1.0], [2.0])


def test_a_pipe_is_read_where_somebody_writes_and_what_never_ends_is_refused(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"pipe: cannot be read .a pipe that nothing writes to"):
        read_text(pipe)
    with subprocess.Popen(["sh", "-c", f"exec >{pipe}; echo one; sleep 0.3; echo two"]) as writer:
        descriptor = os.open(pipe, os.O_RDONLY)  # waits for the writer
        assert read_text(pipe) == "one\ntwo\n"
        os.close(descriptor)
        assert writer.wait() == 0
    with pytest.raises(InputError, match=r"/dev/zero: larger than 0.001 MB; give a part of it"):
        read_text("/dev/zero", most_bytes=1_000)
