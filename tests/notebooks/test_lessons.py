"""The lessons: their form, before every commit; and in the tier of notebooks each of them executed from top to bottom."""

from __future__ import annotations

import ast
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tonnage.cli.main import run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "tonnage" / "notebooks"
LESSONS = sorted(FOLDER.glob("*.ipynb"))
PUBLIC = {"tonnage", "tonnage.api", "tonnage.api.bench", "tonnage.api.compare"}
SAID = {  # what each lesson prints, as regular expressions
    "00": (
        "/v1/health/ready 200",
        "llama-3.1-8b with a context of 131072 tokens",
        r"TTFT [\d.]+ ms, mean ITL [\d.]+ ms",
        "prompt tokens per second",
    ),
    "01": (r"static +190 ", r"in-flight +267\.33 ", r"in-flight, chunked +310 ", r"one prefill, chunked +360 "),
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
    "05": (r"prefix-aware +found in the cache", r"5 tool calls", r"conversations of 6 turns +\d+ GPUs"),
    "06": (r"as predicted +0\.\d+ → 1 ×", r"calibrated +1\.\d+ → 2 ×"),
}


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_a_lesson_holds_no_output_uses_the_public_names_alone_and_has_folded_solutions() -> None:
    for path in LESSONS:
        for cell in cells(path, "code"):
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
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
        folded = [cell for cell in cells(path, "code") if cell["metadata"].get("jupyter", {}).get("source_hidden")]
        assert re.findall(r"^Solution of (\d):", words, re.MULTILINE) == exercises
        assert len(folded) == len(exercises) >= 2
        assert all("hide-cell" in cell["metadata"]["tags"] for cell in folded)


def test_the_measured_points_are_those_of_the_example() -> None:
    def rows(path: Path) -> list[dict[str, str]]:
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))

    example = rows(ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv")
    assert [row for row in rows(FOLDER / "nim-llama-3-8b-h100.csv") if row["precision"] == "fp8"] == example


def test_learn_copies_them_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lessons"
    assert run(["learn", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in FOLDER.iterdir())
    assert f"jupyter lab {folder}" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["lessons"]
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
    NotebookClient(lesson, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(copied)}}).execute()
    outputs = [output for cell in lesson.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert [one for one in SAID[path.name[:2]] if not re.search(one, printed, re.MULTILINE)] == [], printed
    shown = [output.data["text/html"] for output in outputs if output.output_type == "execute_result"]
    assert all(html.startswith('<div class="tonnage">') for html in shown)
    assert len(shown) >= 1
