"""Variables are called by what they hold, and comments and pages name only what is there."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.house import UNSPOKEN, stored, trees, unspoken

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tonnage"

MOST_UNSPOKEN = 130
"""Variables and arguments named by pronouns or participles (``./benchmark house --names``); it may only fall."""

DOTTED = re.compile(r"``?([a-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?``?")
OF_A_FILE = re.compile(r"\.(?:cc|cfg|cpp|csv|html|jsonl?|js|md|parquet|pbtxt|py|toml|txt|yaml)$")
PATH = re.compile(r"(?<![\w/.~*-])((?:[\w-]+/)+[\w.-]+\.(?:py|yaml|json))\b")
SECTION = re.compile(r"\b[A-Z]{4,}(?:\.md)? §|§ ?\d")

BETWEEN_LINES = re.compile(r"[\"']\s*\n\s*[rf]*[\"']")
"""What parts a string that goes on in the next line: a file that names nothing is not parsed."""

NAMING_COMMENT = re.compile(r"#.*[`/§]")
"""Only files with such a line may have a comment that names something: the others are not read
token by token."""

KEYS_OF_OTHERS = ("gen_ai.", "attention_dp_config.", "aiconfigurator_core.")
"""What names in backquotes begin with that are other projects' keys and modules."""
FILES_OF_OTHERS = {"serve/openai_server.py", "src/transformers/utils/quantization_config.py"}


def test_variables_named_by_pronouns_and_participles_only_become_fewer() -> None:
    names = Counter(name for _, tree in trees() for name in stored(tree))
    assert names.total() > 20_000
    assert sum(names[name] for name in UNSPOKEN) <= MOST_UNSPOKEN, (
        "name a variable by what it holds"
    )


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("one = 1", 1),
        ("rates = [one.rate for one in runs]", 1),
        ("for found, other in pairs: pass", 2),
        ("if (left := room()): pass", 1),
        ("def f(one): return one", 1),
        ("run.found = 1", 0),
        ("row = given", 0),
    ],
)
def test_what_is_stored_is_counted_and_what_is_read_is_not(source: str, count: int) -> None:
    assert sum(unspoken(ast.parse(source)).values()) == count


@cache
def names_of(file: Path) -> frozenset[str]:
    """Every name in a file: of functions, classes, variables, attributes, arguments and imports."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return frozenset(names)


@cache
def modules() -> dict[tuple[str, ...], list[Path]]:
    """The modules of the package by every end of their dotted name: ``step`` and ``perf.step``."""
    by_end: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        for begin in range(len(parts)):
            by_end[parts[begin:]].append(file)
    return dict(by_end)


def is_there(dotted: str, file: Path) -> bool:
    """Whether a dotted name is a module of ours, a name in one, of the file itself, or installed."""
    parts = tuple(dotted.removeprefix("tonnage.").split("."))
    if (
        OF_A_FILE.search(dotted) is not None
        or parts[0] in names_of(file)
        or parts in modules()
        or dotted.startswith(KEYS_OF_OTHERS)
    ):
        return True
    for length in range(len(parts) - 1, 0, -1):
        for module in modules().get(parts[:length], ()):
            if set(parts[length:]) <= names_of(module):
                return True
    return parts[0] in sys.stdlib_module_names or importlib.util.find_spec(parts[0]) is not None


def texts(file: Path) -> Iterator[str]:
    """The strings and comments of a source."""
    source = file.read_text(encoding="utf-8")
    joined = BETWEEN_LINES.sub("", source)
    if not any(form.search(joined) for form in (DOTTED, PATH, SECTION)):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    if NAMING_COMMENT.search(source) is None:
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def is_file(path: str) -> bool:
    """Whether a path below a folder of ours is there; others are other projects'."""
    top = path.partition("/")[0]
    ours = top in {"src", "tests", "tools", "benchmarks"} or (PACKAGE / top).is_dir()
    places = (ROOT / path, PACKAGE / path, ROOT / "src" / path)
    return not ours or path in FILES_OF_OTHERS or any(place.exists() for place in places)


def dangling(text: str, file: Path) -> list[str]:
    """What a text names that is not there."""
    names = [match[1] for match in DOTTED.finditer(text) if not is_there(match[1], file)]
    paths = [match[1] for match in PATH.finditer(text) if not is_file(match[1])]
    return [*names, *paths, *SECTION.findall(text)]


def test_comments_and_docstrings_name_only_what_is_there() -> None:
    faults = {
        file.relative_to(ROOT).as_posix(): [
            fault for text in texts(file) for fault in dangling(text, file)
        ]
        for file in sorted(PACKAGE.rglob("*.py"))
    }
    assert len(faults) > 300
    assert {file: of_file for file, of_file in faults.items() if of_file} == {}


def test_pages_name_only_files_and_names_of_the_package_that_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    faults = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        faults += [(page.name, match[1]) for match in PATH.finditer(text) if not is_file(match[1])]
        dotted = (match[1] for match in DOTTED.finditer(text) if match[1].startswith("tonnage."))
        faults += [
            (page.name, name) for name in dotted if not is_there(name, PACKAGE / "__init__.py")
        ]
    assert len(pages) > 30
    assert faults == []


@pytest.mark.parametrize(
    "text",
    [
        "by the names that ``validation.predict`` uses",
        "weighed apart (``calibration.rows``)",
        "tried by `trials.splits_of`",
        "as the gateway does (gateway/core.py)",
        "The form is that of DESIGN §5",
        "see ``perf.step.no_such_function``",
    ],
)
def test_a_reference_that_leads_nowhere_is_found(text: str) -> None:
    assert dangling(text, PACKAGE / "errors.py")


@pytest.mark.parametrize(
    "text",
    [
        "as ``perf.step.step_seconds`` says",
        "of ``tonnage.spec.precision``",
        "like ``numpy.percentile`` and ``json.dumps``",
        "the folder's ``config.json``",
        "see tests/test_names.py and perf/step.py",
        "``gen_ai.usage.input_tokens`` of OpenTelemetry",
    ],
)
def test_a_reference_to_what_is_there_passes(text: str) -> None:
    assert dangling(text, PACKAGE / "errors.py") == []
