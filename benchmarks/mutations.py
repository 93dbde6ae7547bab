"""Changes one place of the source at a time, in a copy of this checkout, and prints which of them no test notices.

    ./benchmark mutations --seed 7 --sample 100

    ./benchmark mutations --seed 7 --sample 150 --calls calls.json --output mutants.jsonl

Cosmic Ray's operators make the changes. Each line of ROOMS (or of what --in names) that holds
something to change is as likely; one of its places is drawn, then one of the operators for it.
Types, and the bits of whole numbers, are left as they are. Test files that name the changed
function are tried first, with the quickest tests that call it (--calls notes once, in half an hour,
which functions each test calls); then further files that name it, further tests that call it, and
the nearest by imports, until a test fails or --budget CPU seconds are spent. What no test notices
is printed as a difference: a reader judges whether it changes any answer. --output keeps each
result at once, and a further run goes on from there. A change takes 5 to 60 CPU seconds; one of what
numba compiles 15 to 40 more, since all tests of it share one compilation.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import suppress
from difflib import unified_diff
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/tonnage/"
ROOMS = ("sizing", "simulator", "perf", "results", "cost", "bench", "gateway", "evidence")
BITS = re.compile(r"_(?:BitOr|BitAnd|BitXor|LShift|RShift)$")
"""Operators that make a TypeError of what is not a whole number, which any test notices."""

WARM = "from tonnage.simulator.kernel import warm_up; warm_up(); warm_up(shares=True)"
FIRST, FILES = 6, 40
"""Test files of a change that are tried at first, and at most."""

CORE = "not (browser or docker_compose or promtool or live or accuracy or claims or install or notebooks or compress or engines or fuzz)"
"""The tests that CI runs, without those of other programs."""

TRACED = [
    f"tests/{name}"
    for name in (
        "laws",
        "cost",
        "results",
        "perf",
        "evidence",
        "bench",
        "gateway",
        "simulator",
        "sizing",
        "cli",
    )
]
"""The tests whose calls are noted where --calls names a file that is absent, which takes half an hour."""

NAMED = 3
"""Files that name the changed function, of those that are tried at first where callers are known."""

FIRST_S = 6
"""Seconds of the tests that are tried at first."""

SLOWEST_S = 900
"""Wall time after which tests are taken not to end."""


class Budget:
    """A plugin of pytest: the files in the order of the command, and no test after so many CPU seconds."""

    def __init__(self, files: list[str], budget_s: float) -> None:
        self.places = {name: place for place, name in enumerate(files)}
        self.budget_s = budget_s

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Undo the order of a whole run; of a file of which tests are named, leave out the others."""
        places = [
            (
                min(
                    self.places.get(name, len(self.places))
                    for name in (item.nodeid, item.nodeid.partition("::")[0])
                ),
                item,
            )
            for item in items
        ]
        items[:] = [
            item
            for place, item in sorted(places, key=lambda pair: pair[0])
            if place < len(self.places)
        ]

    def pytest_runtest_logfinish(self) -> None:
        """Stop as if it were the end."""
        if sum(os.times()[:4]) > self.budget_s:
            pytest.exit("the budget is spent", returncode=0)


class Calls:
    """A plugin of pytest: the functions of the package that each test calls, and its seconds, of which those of a file's fixtures are no part."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.codes: dict[int, CodeType] = {}
        self.tests: dict[str, tuple[float, list[str]]] = {}
        self.fixtures: dict[str, set[str]] = defaultdict(set)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Keep the code that begins; the interpreter calls this."""
        if event == "call":
            self.codes[id(frame.f_code)] = frame.f_code

    def called(self) -> set[str]:
        """The functions since the last call of this."""
        sys.setprofile(None)
        codes, self.codes = self.codes, {}
        return {name_of(code) for code in codes.values() if SOURCE in code.co_filename}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """What fixtures call counts for each test of the file, as others may have made them."""
        sys.setprofile(self.note)
        try:
            return (yield)
        finally:
            self.fixtures[item.nodeid.partition("::")[0]] |= self.called()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Functions and seconds of a test."""
        began = time.process_time()
        sys.setprofile(self.note)
        try:
            return (yield)
        finally:
            self.tests[item.nodeid] = (time.process_time() - began, sorted(self.called()))

    def pytest_sessionfinish(self) -> None:
        """Write the tests of each function, the quickest first."""
        tests = defaultdict(list)
        for name, (seconds, functions) in sorted(self.tests.items(), key=lambda pair: pair[1][0]):
            for function in {*functions, *self.fixtures[name.partition("::")[0]]}:
                tests[function].append((name, round(seconds, 3)))
        self.path.write_text(json.dumps(tests))


def name_of(code: CodeType) -> str:
    """File and name of a function; what is inside of its comprehensions and lambdas is its own."""
    return (
        f"{code.co_filename.rpartition(SOURCE)[2]}:{code.co_qualname.partition('.<locals>.<')[0]}"
    )


def function_of(path: Path, line: int) -> str:
    """File and name of the innermost function of a line, "" outside of all."""
    name, codes = "", [compile(path.read_text(), str(path), "exec")]
    for code in codes:
        if code.co_flags & CO_OPTIMIZED and line in {number for *_, number in code.co_lines()} | {
            code.co_firstlineno
        }:
            name = name_of(code)
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return name


def places(text: str, line: int) -> dict[tuple[int, str], list[tuple[Any, int]]]:
    """What can be changed in a line: of each column and kind of operator, the operators with the occurrence of the place."""
    import parso
    from cosmic_ray.ast import ast_nodes
    from cosmic_ray.operators.provider import OperatorProvider

    nodes = list(ast_nodes(parso.parse(text)))
    near = [
        place for place, node in enumerate(nodes) if node.start_pos[0] <= line <= node.end_pos[0]
    ]
    found = defaultdict(list)
    provider = OperatorProvider()
    for operator in (
        provider[name]
        for name in provider
        if not provider[name].arguments() and not BITS.search(name)
    ):
        made = operator()
        for place in near:
            for index, (start, _) in enumerate(made.mutation_positions(nodes[place])):
                if start[0] == line:
                    before = sum(1 for node in nodes[:place] for _ in made.mutation_positions(node))
                    found[start[1], operator.__module__].append((operator, before + index))
    return found


def untyped(text: str) -> str:
    """The program without the types of arguments, results and variables, and what is imported for them."""
    tree = ast.parse(text)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    for node in ast.walk(tree):
        for name in {"annotation", "returns"} & set(node._fields):
            setattr(node, name, None)
    return ast.dump(tree)


def drawn(seed: int, sample: int, rooms: list[str]) -> Iterator[tuple[str, int, str, str]]:
    """So many changes: the file, the line, the name of the operator and the new text of the file."""
    from cosmic_ray.mutating import mutate_code

    inside = [ROOT / SOURCE / room for room in rooms]
    files = sorted(
        file for path in inside for file in ([path] if path.is_file() else path.rglob("*.py"))
    )
    lines = [(file, line) for file in files for line in range(1, file.read_text().count("\n") + 1)]
    chance = random.Random(seed)
    chance.shuffle(lines)
    for file, line in lines:
        if not sample:
            return
        text = file.read_text()
        if found := places(text, line):
            operator, occurrence = chance.choice(found[chance.choice(sorted(found))])
            with suppress(SyntaxError):
                new = mutate_code(text, operator(), occurrence)
                if new is not None and untyped(new) != untyped(text):
                    sample -= 1
                    yield file.relative_to(ROOT / SOURCE).as_posix(), line, operator.__name__, new


@functools.cache
def imported(path: Path) -> set[str]:
    """The modules that a file imports from, and the names in them; of no file none."""
    nodes = ast.walk(ast.parse(path.read_text())) if path.is_file() else ()
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {
        name
        for node in froms
        for name in [str(node.module), *(f"{node.module}.{each.name}" for each in node.names)]
    }


def concerned(graph: Any, file: str, line: int) -> list[str]:
    """The test files of a changed line: those that name what it is in, then the nearest of its room, then the nearest by imports.

    What begins with an underscore counts as named where a function of the file that uses it is.
    Of the kernel and its reference, the one that compares them comes before all others, some of which run what is not compiled yet plain.
    """
    module = f"tonnage.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
    steps = {module: 0, module.rpartition(".")[0]: 1}  # a policy is found by its name in the folder
    reached = list(steps)
    for each in reached:
        for name in sorted(graph.find_modules_that_directly_import(each) - steps.keys()):
            steps[name] = steps[each] + 1
            reached.append(name)
    program = ast.parse((ROOT / SOURCE / file).read_text())
    named = {
        name
        for node in program.body
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or 0)
        for name in map(ast.unparse, node.targets)
    }
    blocks = [
        node
        for node in ast.walk(program)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    named |= {node.name for node in blocks if node.lineno <= line <= (node.end_lineno or 0)}
    for _ in range(3):
        private = re.compile(
            "|".join([rf"\b{name}\b" for name in named if name.startswith("_")] or ["$^"])
        )
        named |= {node.name for node in blocks if private.search(ast.unparse(node))}
    ranked = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        names = imported(path)
        names |= {
            name
            for each in names
            if each.startswith("tests.")
            for name in imported(ROOT / f"{each.replace('.', '/')}.py")
        }
        if near := [steps[name] for name in names & steps.keys()]:
            name = path.relative_to(ROOT).as_posix()
            other = not name.startswith(f"tests/{file.partition('/')[0]}/")
            ranked.append(
                (
                    -len(named & set(re.findall(r"\w+", text))),
                    min(near) > 0,
                    other,
                    min(near),
                    len(text),
                    name,
                )
            )
    compared = (
        "tests/simulator/kernel/test_run.py"
        if file.startswith(("simulator/kernel/", "simulator/reference/"))
        else ""
    )
    return [
        name for *_, name in sorted(ranked, key=lambda each: (each[-1] != compared, *each))[:FILES]
    ]


def copied(folder: Path) -> Path:
    """The files of this checkout as they are, with a compiled simulator, beside the measured files."""
    copy = folder / "checkout"
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in done.stdout.split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    subprocess.run([sys.executable, "-c", WARM], cwd=copy, check=True, env=environment(copy))
    return copy


def environment(copy: Path) -> dict[str, str]:
    """Of a process that tests the copy: hypothesis tries the same examples each time."""
    return {**os.environ, "PYTHONPATH": f"{copy}/src:{copy}", "CI": "1"}


def noticed(copy: Path, tests: list[str], budget_s: float) -> str:
    """The first of the tests, or tests of the files, that fails in the copy, "" where none does."""
    if not tests:
        return ""
    command = [
        sys.executable,
        "-P",
        str(copy / "benchmarks/mutations.py"),
        "--budget",
        str(budget_s),
        "--test",
        *tests,
    ]
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=SLOWEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"no end after {SLOWEST_S} s"
    failed = [row for row in output.splitlines() if row.startswith(("FAILED", "ERROR", "E  "))]
    nothing = process.returncode in (0, 5)  # 5: none of their tests is in the core
    return "" if nothing else (failed or output.splitlines() or ["no word"])[-1][:110]


def in_turns(
    graph: Any, file: str, line: int, calls: dict[str, list[tuple[str, float]]]
) -> tuple[list[str], list[str]]:
    """The tests of a changed line, those to try at first and the others.

    At first come the files that name its function, and tests that call it: laws and those of its
    room before others, and quick ones before slow ones.
    """
    near = ("tests/laws/", f"tests/{file.partition('/')[0]}/")
    callers = sorted(
        calls.get(function_of(ROOT / SOURCE / file, line), []),
        key=lambda test: (
            sum(test[1] > bound for bound in (0.2, 1.0, 5.0)),
            not test[0].startswith(near),
            test[0].partition("::")[0],
        ),
    )
    first, seconds = list[str](), 0.0
    for name, duration in callers:
        files = {name.partition("::")[0] for name in (*first, name)}
        if seconds < FIRST_S and len(files) <= FIRST:
            first.append(name)
            seconds += duration
    files = concerned(graph, file, line)
    near_files = files[: NAMED if first else FIRST]
    others = [name for name in files if name not in near_files]
    return near_files + first, others[:FIRST] + [
        name for name, _ in callers if name not in first
    ] + others[FIRST:]


def main() -> None:
    """Draw, change, test and print."""
    parser = argparse.ArgumentParser(
        prog="./benchmark mutations", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=100, help="number of changes")
    parser.add_argument(
        "--in",
        nargs="+",
        default=list(ROOMS),
        dest="rooms",
        help="folders and files of src/tonnage",
    )
    parser.add_argument(
        "--budget", type=float, default=60, help="CPU seconds after which the tests of a change end"
    )
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the sample to try")
    parser.add_argument(
        "--calls",
        type=Path,
        help="file of the functions that each test calls; written where it is absent",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="file to add the results to; changes that it has are not tried again",
    )
    parser.add_argument("--test", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--trace", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.test:
        sys.exit(
            pytest.main(
                [
                    "-x",
                    "-m",
                    CORE,
                    "-p",
                    "no:cacheprovider",
                    *{name.partition("::")[0]: 0 for name in options.test},
                ],
                plugins=[Budget(options.test, options.budget)],
            )
        )
    if options.trace is not None:
        sys.exit(
            pytest.main(
                ["-m", CORE, "-p", "no:cacheprovider", *options.trace],
                plugins=[Calls(options.calls)],
            )
        )
    from grimp import build_graph

    graph = build_graph("tonnage", cache_dir=None)
    results = (
        [json.loads(row) for row in options.output.read_text().splitlines()]
        if options.output and options.output.exists()
        else []
    )
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = copied(Path(folder))
        if options.calls and not options.calls.exists():
            traced = [
                sys.executable,
                "-P",
                str(copy / "benchmarks/mutations.py"),
                "--calls",
                str(options.calls.resolve()),
                "--trace",
                *TRACED,
            ]
            subprocess.run(traced, cwd=copy, env=environment(copy), check=False)
        calls = json.loads(options.calls.read_text()) if options.calls else {}
        for number, (file, line, operator, new) in enumerate(
            drawn(options.seed, options.sample, options.rooms)
        ):
            if (options.only and number not in options.only) or number in {
                result["number"] for result in results
            }:
                continue
            path = copy / SOURCE / file
            old = path.read_text()
            began = time.monotonic()
            path.write_text(new)
            first, others = in_turns(graph, file, line, calls)
            by = noticed(copy, first, options.budget / 2) or noticed(
                copy, others, options.budget / 2
            )
            path.write_text(old)
            changed = list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))[3:]
            results.append(
                {
                    "number": number,
                    "seconds": round(time.monotonic() - began),
                    "place": f"{file}:{line}",
                    "operator": operator,
                    "by": by,
                    "change": changed,
                }
            )
            if options.output:
                with options.output.open("a") as lines:
                    lines.write(json.dumps(results[-1]) + "\n")
            verdict = f"killed by {by}" if by else "ALIVE"
            print(
                f"{number:3} {results[-1]['seconds']:4} s  {file}:{line} {operator} {verdict}",
                flush=True,
            )
            if not by:
                print(*(f"      {row}" for row in changed), sep="\n", flush=True)
    print(f"{sum(result['by'] != '' for result in results)} of {len(results)} changes were noticed")


if __name__ == "__main__":
    main()
