"""The lessons: their form and their shipped outputs, before every commit; in the tier of notebooks
each of them is executed.

``TONNAGE_GOLDEN=write ./check --notebooks -k top_to_bottom`` writes the outputs that they ship
with."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.tolerance import FITTED, words_and_numbers
from tonnage.cli.main import run

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "tonnage" / "notebooks"
LESSONS = sorted(FOLDER.glob("*.ipynb"))
PUBLIC = {"tonnage", "tonnage.api", "tonnage.api.bench", "tonnage.api.compare"}
# lessons that measure a live server: what they print is another number each time
MEASURED = ("00", "03", "06", "09")
SAID = {  # what each lesson prints, as regular expressions
    "00": (
        "/v1/health/ready 200",
        "llama-3.1-8b with a context of 131072 tokens",
        r"TTFT [\d.]+ ms, mean ITL [\d.]+ ms",
        "prompt tokens per second",
    ),
    "01": (
        r"static +190 ",
        r"in-flight +267\.33 ",
        r"in-flight, chunked +310 ",
        r"one prefill, chunked +360 ",
    ),
    "02": (
        r"199\.77 requests",
        r"300 ms:  4\.81 → 5 × dgx-h100",
        r"500 ms:  2\.82 → 3 ",
        r"35 ms: 29\.78 → 30 ",
        "FP16  TTFT FP8|TTFT FP16",
    ),
    "03": (
        r"^VALID$",
        r"^INVALID$",
        r"p99 was asked for and needs 459 completed requests, there were 10",
        r"GPUs: [\d.]+ systems of dgx-h100",
    ),
    "04": (
        r"119,000",
        r"4\.806 systems: 571,965 .* 0\.64",
        r"5 whole systems: 595,000 .* 0\.66",
        r"API: 2\.60",
        r"hybrid +[\d,]+ USD",
        "million requests a year",
    ),
    "05": (r"prefix-aware +cache hits", r"5 tool calls", r"conversations of 6 turns +\d+ GPUs"),
    "07": (
        r"64  fp8 +[\d,]+ +2,191 +1\.\d+ +1\.30$",
        r"^ +896 +1\.2\d +1\.[56]\d +1\.30$",
        r"llama-3\.1-405b: published 108 tokens/s, 1\.9 times",
        r"paged, 8 bits +222 requests at once",
        r"chunks of 512 +TTFT",
        r"^TP 8: TTFT",
        r"FP8 with 2:4, TP 2 +0\.\d+ → 1 ×",
    ),
    "08": (
        r"^least-outstanding +TTFT",
        r"^retry all +8 failures, worked 87\.\d%, again \d+, +lost +0,",
        r"^99\.9 % of the time 5 × dgx-h100",
        r"[12] to 4 instances at [\d.]+ requests",
        r"two pools 0\.\d+ systems \(5 prefill \+ 3 decode\)",
    ),
    "09": (
        r"^nim: README\.md.*nim-service\.yaml|nim-service\.yaml",
        r"^12 parts read, 0 faults$",
        r"no pod of this folder has the labels",
        r"^and as it was: 0$",
        r"^4 of 4 instances serve$",
        r"^\d+ of \d+ requests completed, \d+ lost$",
        r"ttft_ms mean: measured",
        r"^limits broken: none$",
        r"^open http://127\.0\.0\.1:\d+$",
        r"^502 ",
    ),
    "06": (r"as predicted +0\.\d+ → 1 ×", r"calibrated +1\.\d+ → 2 ×"),
}


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [
        cell
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == kind
    ]


def printed(path: Path) -> str:
    """What a lesson's cells print, as it is shipped."""
    return _printed([output for cell in cells(path, "code") for output in cell["outputs"]])


def _printed(outputs: list[Any]) -> str:
    return "".join(
        "".join(output["text"]) for output in outputs if output["output_type"] == "stream"
    )


def test_a_lesson_uses_the_public_names_alone_and_has_folded_solutions() -> None:
    for path in LESSONS:
        for cell in cells(path, "code"):
            for node in ast.walk(ast.parse("".join(cell["source"]))):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
                assert {name for name in names if name and name.startswith("tonnage")} <= PUBLIC
    for path in LESSONS:
        words = "\n".join("".join(cell["source"]) for cell in cells(path, "markdown"))
        exercises = re.findall(r"^(\d)\. ", words[words.index("## Exercises") :], re.MULTILINE)
        folded = [
            cell
            for cell in cells(path, "code")
            if cell["metadata"].get("jupyter", {}).get("source_hidden")
        ]
        assert (
            re.findall(
                r"^<details>\n<summary><b>Solution of (\d)</b></summary>\n\n\S", words, re.MULTILINE
            )
            == exercises
        )
        assert len(folded) == len(exercises) >= 2
        assert all("hide-cell" in cell["metadata"]["tags"] for cell in folded)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_ships_with_its_outputs(path: Path) -> None:
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert [
        line for line in SAID[path.name[:2]] if not re.search(line, printed(path), re.MULTILINE)
    ] == []
    assert [line for line in printed(path).splitlines() if len(line) > 80] == []
    for output in (output for cell in code for output in cell["outputs"]):
        assert output["output_type"] == "execute_result" or output["name"] == "stdout"
        html = "".join(output.get("data", {}).get("text/html", ""))
        assert html.startswith('<div class="tonnage">') or output["output_type"] == "stream"
        assert not re.search(r"/(tmp|home|root|Users)/", html + "".join(output.get("text", "")))


def test_the_first_token_of_a_long_prompt_comes_later_as_the_lesson_says() -> None:
    ttft = [
        float(value) for value in re.findall(r"tokens in: TTFT ([\d.]+) ms", printed(LESSONS[0]))
    ]
    assert ttft == sorted(ttft)
    assert ttft[-1] > 2 * ttft[0]


def test_the_measured_points_are_those_of_the_example() -> None:
    def rows(path: Path) -> list[dict[str, str]]:
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))

    example = rows(ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv")
    assert [
        row for row in rows(FOLDER / "nim-llama-3-8b-h100.csv") if row["precision"] == "fp8"
    ] == example


def test_learn_copies_them_once_and_says_how_to_open_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "the lessons"
    assert run(["learn", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in FOLDER.iterdir() if path.is_file() and path.name != "ruff.toml"
    )
    install, trust, opened = (line.strip() for line in capsys.readouterr().out.splitlines()[-3:])
    assert install.endswith(" -m pip install --quiet jupyterlab")
    assert trust.endswith(f" -m jupyter trust {shlex.quote(str(folder))}/*.ipynb")
    # what starts JupyterLab has Tonnage also elsewhere and in an empty environment
    start, lab, lessons = re.fullmatch(r"(.*) -m jupyter (lab.*) ('.*')", opened).groups()  # type: ignore[union-attr]
    assert (lab.split()[0], shlex.split(lessons)) == ("lab", [str(folder)])
    command = ["env", "-i", "sh", "-c", f"{start} -c 'import tonnage; print(tonnage.__file__)'"]
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        .stdout.strip()
        .endswith("__init__.py")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["the lessons"]
    assert run(["learn", str(folder)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["learn", str(tmp_path / "no" / "folder")]) == 2


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learn") / "lessons"
    assert run(["learn", str(folder)]) == 0
    return folder


@pytest.mark.notebooks
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_a_lesson_runs_from_top_to_bottom(path: Path, copied: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    lesson = nbformat.read(copied / path.name, as_version=4)
    shipped = lesson.metadata.copy()
    resources = {"metadata": {"path": str(copied)}}
    NotebookClient(
        lesson,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources=resources,
    ).execute()
    outputs = [output for cell in lesson.cells for output in cell.get("outputs", [])]
    assert [
        output
        for output in outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ] == []
    lines = _printed(outputs)
    assert [
        line for line in SAID[path.name[:2]] if not re.search(line, lines, re.MULTILINE)
    ] == [], lines
    shown = [
        output.data["text/html"] for output in outputs if output.output_type == "execute_result"
    ]
    assert all(html.startswith('<div class="tonnage">') for html in shown)
    assert len(shown) >= 1
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        lesson.metadata = shipped
        _ship(lesson, path)
    if path.name[:2] not in MEASURED:
        (words, numbers), (shipped_words, shipped_numbers) = (
            words_and_numbers(lines),
            words_and_numbers(printed(path)),
        )
        assert words == shipped_words
        assert FITTED.holds(numbers, shipped_numbers)


def _ship(lesson: NotebookNode, path: Path) -> None:
    """Write an executed lesson with what a reader sees: of a value that has HTML not its
    representation as code."""
    import nbformat

    for output in (output for cell in lesson.cells for output in cell.get("outputs", [])):
        if "text/html" in output.get("data", {}):
            del output.data["text/plain"]
    nbformat.write(lesson, path)
