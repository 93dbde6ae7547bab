"""The documentation against the product: every command in README.md and docs/ is run, and what it
shows must come out.

In a fenced ``console`` block, a line "$ ./tonnage …" is a command (a backslash at its end goes on)
and what follows is its output, with "…" alone where lines were left out; in a ``sh`` block every
line is a command, and so is "./tonnage …" in backticks in a table, where the bold texts behind it
must be parts of the output. Each line shown must be a line of the real output: the same words in
the same order, and the same numbers. README's commands and the first one of each page are run in
the core, the others by ./check --accuracy. Comments above a block:

    <!-- exit 3 -->                  the exit code, where it is not 0
    <!-- within 20 % -->             how far the numbers may be off: predictions move when the coefficients are fitted anew
    <!-- within 20 % or 2 -->        or by how much
    <!-- file: some/config.json -->  the block is a file that commands of the page may read
    <!-- run by: tests/test_x.py --> the block's commands are run there: they install something, or
    need a server
    <!-- tier: accuracy -->          the first command of the page too is run by ./check --accuracy, because it takes long

    PYTHONPATH=src python -m tests.test_docs          writes today's output and flags into the pages
    PYTHONPATH=src python -m tests.test_docs flags    writes the flags alone, within seconds
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.held_out import held_out_in_short
from tests.tolerance import NUMBER, Tolerance, distance, words_and_numbers
from tonnage.cli import main as command_line
from tonnage.report.numbers import number as rounded

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGES = [
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if p.name != "design.md"),
]
HOSTS = {"huggingface.co", "keepachangelog.com", "semver.org", "127.0.0.1:8000", "127.0.0.1:9090"}
COMMENT = re.compile(r"^<!-- (exit|within|run by:|tier:|file:)\s*(.*?) -->$")
WIDEST = 140
README, COURSE, ACCURACY, DESIGN = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("course", "accuracy", "design")),
)


@dataclass(kw_only=True)
class Example:
    """One command of a page, with the lines of output that the page shows."""

    page: Path
    line: int
    command: str
    comments: dict[str, str]
    shown: dict[int, str] = field(default_factory=dict)
    figures: tuple[str, ...] = ()  # parts of the output that the row of a table shows in bold

    @property
    def exit_code(self) -> int:
        return int(self.comments.get("exit", 0))

    @property
    def tolerance(self) -> Tolerance:
        """How far a number may be off, as the page says."""
        share, *absolute = re.findall(r"[\d.]+", self.comments.get("within", "0"))
        return Tolerance(share=float(share) / 100, absolute=float(absolute[0]) if absolute else 0.0)

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def examples_of(page: Path) -> Iterator[Example]:
    lines = page.read_text(encoding="utf-8").splitlines()
    kind, comments, current = "", dict[str, str](), None
    at = 0
    while at < len(lines):
        text, at = lines[at], at + 1
        if text.startswith("```"):
            kind = "" if kind else text.removeprefix("```").strip() or "text"
            current, comments = None, comments if kind else {}
            continue
        if not kind and (found := COMMENT.match(text)):
            comments[found[1].removesuffix(":")] = found[2]
        if not kind and text.startswith("|"):
            for command, rest in re.findall(r"`(\./tonnage [^`]*)`((?:(?!`\./tonnage ).)*)", text):
                figures = tuple(re.findall(r"\*\*(.+?)\*\*", rest))
                yield Example(
                    page=page, line=at, command=command, comments=comments, figures=figures
                )
        elif not kind and text and not COMMENT.match(text):
            comments = {}  # they are of the block or the table behind them
        starts = (
            text.startswith("$ ")
            if kind == "console"
            else kind == "sh" and text.strip() and not text.startswith("#")
        )
        if starts:
            number, command = at, text.removeprefix("$ ")
            while command.endswith("\\"):
                command, at = (
                    command[:-1].rstrip() + " " + lines[at].strip().removeprefix("> "),
                    at + 1,
                )
            current = Example(page=page, line=number, command=command, comments=comments)
            yield current
        elif kind == "console" and current is not None and text.strip() not in ("", "…"):
            current.shown[at - 1] = text


def files_of(page: Path) -> dict[str, str]:
    """The files that a page shows, by path: a block under a comment "file: PATH"."""
    return dict(
        re.findall(
            r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```",
            page.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    )


EXAMPLES = [example for page in PAGES for example in examples_of(page)]

FILES = {name: text for page in PAGES for name, text in files_of(page).items()}


@contextlib.contextmanager
def checkout(folder: Path) -> Iterator[None]:
    """A folder that looks like the checkout to a command, with nothing of its own to be
    overwritten."""
    here = folder / "main"
    here.mkdir(exist_ok=True)
    links = [(here / name, ROOT / name) for name in ("examples", "docs")]
    for link, target in [*links, (folder / "shared", DATA.parent)]:
        if target.exists() and not link.exists():
            link.symlink_to(target)
    for name, text in FILES.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setenv("COLUMNS", "110")  # notes are wrapped to the terminal
        yield


@functools.cache
def output_of(command: str) -> tuple[int, str]:
    """Exit code and everything that a command prints in a checkout of its own; pages that show the
    same command share a run."""
    from tonnage.cli.main import run

    program, *words = shlex.split(command)
    assert program == "./tonnage", (
        f"{command}: only ./tonnage is run here; name the test that runs it: <!-- run by:"
        " tests/… -->"
    )
    said = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        checkout(Path(folder)),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        code = run(words)
    return code, said.getvalue()


def _core() -> set[str]:
    """Where the examples stand that are run before every commit: all of README, and the first one
    of each page."""
    firsts = {
        example.page: example.where
        for example in reversed(EXAMPLES)
        if "run by" not in example.comments
    }
    return {
        example.where
        for example in EXAMPLES
        if example.page == README or example.where == firsts.get(example.page)
    }


def _runs() -> list[Any]:
    """The examples that are run here, each in its tier: ./check --accuracy takes what core has no
    time for, or the page says takes long."""
    core, here = _core(), [example for example in EXAMPLES if "run by" not in example.comments]
    return [
        pytest.param(
            e,
            id=e.where,
            marks=() if e.where in core and "tier" not in e.comments else pytest.mark.accuracy,
        )
        for e in here
    ]


@pytest.mark.usefixtures("plans_of_this_run")
@pytest.mark.parametrize("example", _runs())
def test_command_prints_what_the_page_shows(example: Example) -> None:
    if "../shared/data" in example.command and not DATA.is_dir():
        pytest.skip(f"{example.where} not run: ../shared/data is absent")
    code, printed = output_of(example.command)
    assert code == example.exit_code, printed
    real = [words_and_numbers(line) for line in printed.splitlines()]
    for number, line in example.shown.items():
        words, numbers = words_and_numbers(line)
        alike = [found for kind, found in real if kind == words]
        assert alike, (
            f"{example.page.name}:{number + 1}: no such line in the output: {line}\n{printed}"
        )
        closest = min(alike, key=lambda found: distance(numbers, found))
        assert any(example.tolerance.holds(numbers, found) for found in alike), (
            f"{example.page.name}:{number + 1}: {line}\nreal: {closest}"
        )
    whole = " ".join(printed.split())
    for figure in example.figures:
        words, numbers = words_and_numbers(figure)
        seen = [
            words_and_numbers(match[0])[1]
            for match in re.finditer(re.escape(words).replace(r"\#", NUMBER.pattern), whole)
        ]
        assert any(example.tolerance.holds(numbers, found) for found in seen), (
            f"{example.where}: no {figure}; {seen}\n{printed}"
        )


LEDGER = re.compile(
    r"^\| ([\d, –]+) \| ([^|]+) \| (works|partly|wrong|missing) \| (.+) \|$", re.MULTILINE
)


def numbers_of(items: str) -> Iterator[int]:
    """The items that a row of the ledger is about: "119–121" are three."""
    for part in items.split(", "):
        first, _, last = part.partition("–")
        yield from range(int(first), int(last or first) + 1)


def test_each_of_the_123_items_of_the_course_has_one_verdict_and_what_shows_it() -> None:
    rows = LEDGER.findall(COURSE.read_text(encoding="utf-8"))
    items = [number for numbers, *_ in rows for number in numbers_of(numbers)]
    assert sorted(items) == list(range(1, 124))
    assert {verdict for _, _, verdict, _ in rows} == {"works", "partly"}
    partly = [
        number
        for numbers, _, verdict, _ in rows
        if verdict == "partly"
        for number in numbers_of(numbers)
    ]
    assert len(partly) <= 8
    for numbers, _, verdict, answer in rows:
        commands = re.findall(r"`\./tonnage [^`]+`", answer)
        tests = re.findall(r"tests/[\w/]+(?:\.py)?", answer)
        assert all((ROOT / test).exists() for test in tests), numbers
        assert commands or tests or "](" in answer or "the same command" in answer, numbers
        assert verdict == "works" or len(answer.rpartition(":")[2].split()) > 4, numbers


def test_what_is_not_run_here_is_run_by_a_test() -> None:
    for example in EXAMPLES:
        test = example.comments.get("run by")
        program = shlex.split(example.command)[0].removeprefix("./")
        assert test is None or program in (ROOT / test).read_text(encoding="utf-8"), example.where
        assert example.comments.get("tier") in (None, "accuracy"), example.where
        assert example.page != README or "tier" not in example.comments, (
            "what README shows is run before every commit"
        )


PYTHON = [
    (page, block)
    for page in PAGES
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
]
LONG = ("autoscaling.md", "python.md")
"""Pages whose first block takes seconds; ./check --accuracy runs it."""


def _blocks() -> Iterator[Any]:
    for (page, block), before in zip(PYTHON, [None, *(page for page, _ in PYTHON)], strict=False):
        long = page.name in LONG and page != before
        yield pytest.param(page, block, id=page.name, marks=pytest.mark.accuracy if long else ())


@pytest.mark.parametrize(("page", "block"), list(_blocks()))
def test_python_runs(page: Path, block: str, tmp_path: Path) -> None:
    with checkout(tmp_path), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, page.name, "exec"), {})
    assert printed.getvalue()


def test_pages_name_the_json_keys() -> None:
    from tonnage.evidence.score import ScoreReport
    from tonnage.plan.candidate import Candidate, Pool
    from tonnage.plan.plan import Plan, Understood
    from tonnage.results.metrics import Summary

    renamed = {"concurrency": "mean_concurrency"}
    for page, kinds in (
        ("scenario.md", (Plan, Candidate, Pool, Understood)),
        ("simulate.md", (Summary,)),
        ("score.md", (ScoreReport,)),
    ):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        names = {
            renamed.get(field.name, field.name)
            for kind in kinds
            for field in fields(kind)
            if field.name != "by_request"
        }
        assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set(), page


ANSWER = re.compile(r"Answer +(\d+) × \S+ \(\d+ GPUs; ([\d.]+) systems exactly\)")
CAPACITY = re.compile(r"one instance carries ([\d.]+) requests/s")
FIGURE = re.compile(r"\*\*[\d.,]+\*\*")


def answers(examples: list[Example]) -> list[str]:
    """Requests/s per 8 GPUs, systems exactly and systems of the table in docs/course.md, in its
    order: the commands below it."""
    found = []
    for example in examples:
        if (
            example.page != COURSE
            or "--peak-rps 199.77" not in example.command
            or not example.shown
        ):
            continue
        shown = "\n".join(example.shown.values())
        systems, exactly = ANSWER.findall(shown)[0]
        # an instance has one GPU
        found += [rounded(8 * float(CAPACITY.findall(shown)[0])), exactly, systems]
    return [f"**{figure}**" for figure in found]


def test_figures_of_the_courses_table_are_those_of_its_commands() -> None:
    text = COURSE.read_text(encoding="utf-8")
    assert answers(EXAMPLES)
    assert FIGURE.findall(text) == answers(EXAMPLES)


def test_every_command_of_the_courses_items_shows_a_figure() -> None:
    items = [example for example in EXAMPLES if example.page == COURSE and not example.shown]
    assert len(items) > 45
    assert [example.command for example in items if not example.figures] == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize(
    "page", [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md"], ids=lambda p: p.name
)
def test_files_that_a_page_for_developers_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    later = (
        set(re.findall(r"`(\w+/)`", text[text.index("kept for later") :].split("|")[0]))
        if "kept for later" in text
        else set()
    )
    named = {name for name in re.findall(r"`(\w[\w.*-]*/[\w./*-]*)`", text) if name not in later}
    assert named
    assert {
        name
        for name in named
        if not list(ROOT.glob(name.rstrip("/")))
        and not list((ROOT / "src").rglob(name.rstrip("/")))
    } == set()


def test_each_test_that_the_page_on_security_names_is_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(named) >= 40
    for file, name in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"{file}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_place_of_ours_and_no_long_line(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://([^/\s)>]+)", text)) <= HOSTS
    assert not re.search(
        r"(?<![\w.])/(?:work|tmp|root|home|usr|var)/|pypi|artifactory|index.url|localhost",
        text,
        re.IGNORECASE,
    )
    # output is as wide as it is
    prose = re.sub(r"^```console\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    # and so are descriptions
    flags = re.sub(r"<!-- flags: \w+ -->.*?<!-- end of flags -->", "", prose, flags=re.DOTALL)
    if page != ACCURACY:  # which is generated
        assert [
            line for line in flags.splitlines() if len(line) > WIDEST and not line.startswith("|")
        ] == []  # a table's row cannot be folded


def flags_table(verb: str) -> list[str]:
    """The flags of a verb as Markdown, from its docstring and its defaults."""
    file = next((file for file, verbs in command_line.FILES.items() if verb in verbs), verb)
    function = getattr(
        importlib.import_module("tools.fit.command" if verb == "fit" else f"tonnage.cli.{file}"),
        verb,
    )
    described = inspect.getdoc(function)
    if verb == "fit":
        found = re.findall(
            r"^(\w+)\n((?:    .*\n?)+)", described.split("----------\n", 1)[1], re.MULTILINE
        )
    else:
        found = re.findall(
            r"^    (\w+): (.*\n?(?:        .*\n?)*)", described.split("Args:\n", 1)[1], re.MULTILINE
        )
    helps = {name: " ".join(words.split()) for name, words in found}
    rows = ["| flag | meaning | default |", "|---|---|---|"]
    for name, parameter in inspect.signature(function).parameters.items():
        positional = parameter.kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.VAR_POSITIONAL,
        )
        flag = name.upper() if positional else f"--{name.replace('_', '-')}"
        default = (
            ""
            if parameter.default in (None, False, "", inspect.Parameter.empty)
            else f"`{parameter.default}`"
        )
        default = f"on; off by `--no-{flag[2:]}`" if parameter.default is True else default
        rows.append(f"| `{flag}` | {helps[name].replace('|', '/')} | {default} |")
    return rows


def laws_table() -> list[str]:
    """The laws of tests/laws as Markdown, by the names of their tests."""
    names = {"api": "API", "gpu": "GPU", "gpus": "GPUs", "pue": "PUE", "littles": "Little's"}
    rows = ["| file | law |", "|---|---|"]
    for file in sorted((ROOT / "tests" / "laws").glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                law = " ".join(names.get(word, word) for word in node.name.split("_")[1:])
                rows.append(f"| `{file.name}` | {law[0].upper()}{law[1:]} |")
    return rows


def with_tables(text: str) -> str:
    """A page with the tables between its marks written anew."""

    def table(found: re.Match[str]) -> str:
        return "\n".join([found[1], *flags_table(found[2]), found[3]])

    text = re.sub(r"(<!-- flags: (\w+) -->)\n(?:.*\n)*?(<!-- end of flags -->)", table, text)
    laws = "\n".join(["<!-- laws -->", *laws_table(), "<!-- end of laws -->"])
    text = re.sub(r"<!-- laws -->\n(?:.*\n)*?<!-- end of laws -->", lambda _: laws, text)
    held_out = "\n".join(
        ["<!-- held out in short -->", *held_out_in_short(), "<!-- end of held out in short -->"]
    )
    return re.sub(
        r"<!-- held out in short -->\n(?:.*\n)*?<!-- end of held out in short -->",
        lambda _: held_out,
        text,
    )


@pytest.mark.parametrize(
    "verb",
    [
        "size",
        "simulate",
        "bench",
        "score",
        "memory",
        "catalog",
        "calibrate",
        "workload",
        "watch",
        "fit",
    ],
)
def test_page_has_the_flags_of_its_verb(verb: str) -> None:
    text = (ROOT / "docs" / f"{verb}.md").read_text(encoding="utf-8")
    assert f"<!-- flags: {verb} -->" in text
    assert text == with_tables(text)


@pytest.mark.parametrize("page", [README, ACCURACY], ids=lambda page: page.name)
def test_page_has_the_held_out_errors_of_the_shipped_fit(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- held out in short -->" in text
    assert text == with_tables(text)


def test_design_has_the_laws_that_tests_hold() -> None:
    text = DESIGN.read_text(encoding="utf-8")
    assert "<!-- laws -->" in text
    assert text == with_tables(text)


def test_readme_has_every_command() -> None:
    from tonnage.cli.main import VERBS

    table = "".join(
        line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("|")
    )
    assert [verb for verb in VERBS if f"[{verb}](" not in table] == []


def test_readme_can_be_read_in_five_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert all(len(example.shown) <= 15 for example in EXAMPLES if example.page == README)


def refresh_flags() -> None:
    """Write today's flags into the pages."""
    for page in [*PAGES, DESIGN]:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


def refresh() -> None:
    """Write today's output and flags into the pages; lines that no longer come out are named."""
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        for example in (
            e for e in EXAMPLES if e.page == page and e.shown and "run by" not in e.comments
        ):
            _, printed = output_of(example.command)
            for number, line in example.shown.items():
                words, numbers = words_and_numbers(line)
                alike = [
                    real for real in printed.splitlines() if words_and_numbers(real)[0] == words
                ]
                if alike:
                    lines[number] = min(
                        alike, key=lambda real: distance(numbers, words_and_numbers(real)[1])
                    ).rstrip()
                else:
                    print(
                        f"{page.name}:{number + 1}: not in the output of {example.command}: {line}",
                        file=sys.stderr,
                    )
        page.write_text(with_tables("\n".join(lines) + "\n"), encoding="utf-8")
    figures = iter(answers(list(examples_of(COURSE))))
    COURSE.write_text(
        FIGURE.sub(lambda _: next(figures), COURSE.read_text(encoding="utf-8")), encoding="utf-8"
    )


if __name__ == "__main__":
    refresh_flags() if sys.argv[1:] == ["flags"] else refresh()
