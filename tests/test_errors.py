"""A message names what was asked by its path; the edge that shows the message spells it."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from tonnage import api
from tonnage.cli.main import flag
from tonnage.errors import (
    DataErrors,
    InputError,
    InputErrors,
    TonnageError,
    UnknownName,
    keyword,
    option,
    spelled,
)

SOURCE = Path(__file__).parents[1] / "src" / "tonnage"
FLAG = re.compile(r"(?<![\w-])--[a-z{]|(?<![\w-])--$")
COMMAND = re.compile(r"(?:tonnage|vllm) (?:[a-z]+ )+--[a-z-]+")
"""A whole command that a message tells to run is one everywhere."""
EDGES = ("cli", "page", "report", "deploy", "watch")
"""Watch tells commands, and deploy writes them: those of engines and those of pages; its messages
hold options."""


def test_an_error_knows_the_path_and_python_spells_the_argument() -> None:
    error = InputError(f"{option('search', 'tp')}: 3 is too many;\nlower it or {option('ep')}")
    assert error.path == ("search", "tp")
    assert error.paths == (("search", "tp"), ("ep",))
    assert str(error) == "tp: 3 is too many; lower it or ep"
    assert error.reason == "3 is too many; lower it or ep"

    error = InputError(f"no such file; give {option('trace')}")
    assert (error.path, error.paths) == ((), (("trace",),))
    assert error.reason == str(error) == "no such file; give trace"


def test_several_errors_are_spelled_line_by_line_and_the_command_spells_flags() -> None:
    errors = InputErrors([f"{option('isl')}: a", f"{option('osl')}: b"])
    assert str(errors) == "isl: a\nosl: b"
    assert errors.messages == ("isl: a", "osl: b")
    assert [spelled(line, flag) for line in errors.lines] == ["--isl: a", "--osl: b"]
    assert keyword(errors.paths[1]) == "osl"


def test_what_came_from_a_file_is_named_by_its_key_and_what_stood_beside_it_by_its_argument(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "model: llama-3-8b\nlengths: {isl: 200, osl: 50}\ndemand: {peak_rps: 3}\nspare: -1\n",
        encoding="utf-8",
    )
    with pytest.raises(InputErrors) as caught:
        api.ask(path, ttft="soon")
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in caught.value.messages] == [
        "ttft",
        "spare",
    ]
    assert caught.value.paths == (("ttft",),)


@pytest.mark.parametrize(
    "error",
    [
        InputError(f"{option('tp')}: 3 is too many"),
        InputErrors([f"{option('isl')}: a", "b"]),
        DataErrors(["a", "b"]),
        UnknownName("model", "lama", ["llama"]),
    ],
)
def test_an_error_reaches_another_process_as_it_is(error: TonnageError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.marked, again.__dict__, again.paths) == (
        error.marked,
        error.__dict__,
        error.paths,
    )


ALONE = re.compile(r"--[a-z-]*")


def texts(path: Path) -> list[tuple[int, str]]:
    """Every text in a file that is no docstring, with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


@pytest.mark.parametrize(
    "room",
    sorted(path.name for path in SOURCE.iterdir() if path.name not in (*EDGES, "__pycache__")),
)
def test_only_the_edges_know_flags(room: str) -> None:
    """Below the edge a message holds ``option("peak_rps")``, not a flag; a flag alone is a word of
    a command that is run."""
    files = sorted((SOURCE / room).rglob("*.py")) if (SOURCE / room).is_dir() else [SOURCE / room]
    found = [
        f"{path}:{line}: {text}"
        for path in files
        if path.suffix == ".py" and FLAG.search(path.read_text(encoding="utf-8"))
        for line, text in texts(path)
        if FLAG.search(COMMAND.sub("", text)) and not ALONE.fullmatch(text)
    ]
    assert not found
