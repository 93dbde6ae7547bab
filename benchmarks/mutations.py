"""Changes one place of the source at a time, in a copy of this checkout, and prints which of them no test notices.

    ./benchmark mutations --seed 7 --sample 100
    ./benchmark mutations --seed 7 --sample 150 --output mutants.jsonl

Cosmic Ray's operators make the changes. Each line of ROOMS (or of what --in names) that holds
something to change is as likely; one of its places is drawn, then one of the operators for it.
Types, and the bits of whole numbers, are left as they are.

One process imports the package and collects the core's tests once. All tests then run once with a
mark at each changed line, which says which tests reach it, and in how long (500 CPU seconds; --reach
keeps it). For each change inside of a function that process forks, gives the function its changed
code, and runs the tests that reach the line, the quickest first, until one fails or --budget CPU
seconds are spent: mostly under a second. What runs at import or is compiled by numba is changed in
the file, and the nearest test files run in a process of their own: 10 to 60 CPU seconds. What no
test notices is printed as a difference: a reader judges whether it changes any answer. --output keeps
each result at once, and a further run goes on from there. Commands that tests start as processes
have the source as it is.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import unified_diff
from inspect import CO_OPTIMIZED
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from grimp import build_graph

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/tonnage/"
ROOMS = ("sizing", "simulator", "perf", "results", "cost", "bench", "gateway", "evidence")
BITS = re.compile(r"_(?:BitOr|BitAnd|BitXor|LShift|RShift)$")
"""Operators that make a TypeError of what is not a whole number, which any test notices."""

WARM = "from tonnage.simulator.kernel import warm_up; warm_up(); warm_up(shares=True)"
FIRST, FILES = 7, 40
"""Test files of a change that are tried at first, and the most that are near it."""

CORE = "not (browser or docker_compose or promtool or live or accuracy or claims or install or notebooks or compress or engines or fuzz)"
"""The tests that CI runs, without those of other programs."""

SLOWEST_S = 900
"""Wall time after which tests are taken not to end."""

MOST_BYTES = 4 * 2**30
"""Memory that a changed package may ask for; a change of a loop's bound can ask for all there is."""

COMPILED = (
    "simulator/kernel/",
    "simulator/autoscaler.py",
    "simulator/request.py",
    "simulator/rules.py",
    "simulator/router.py",
    "perf/step.py",
    "perf/step_terms.py",
    "results/requests.py",
)
"""What numba compiles, by `simulator/kernel/driven.py`: a change of it in memory is none of the compiled."""


class Budget:
    """A plugin of pytest: the files in the order of the command, and no test after so many CPU seconds."""

    def __init__(self, files: list[str], budget_s: float) -> None:
        self.places = {name: place for place, name in enumerate(files)}
        self.budget_s = budget_s

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Undo the order of a whole run."""
        items.sort(key=lambda item: self.places[item.nodeid.partition("::")[0]])

    def pytest_runtest_logfinish(self) -> None:
        """Stop as if it were the end."""
        if sum(os.times()[:4]) > self.budget_s:
            pytest.exit("the budget is spent", returncode=0)


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
            with suppress(
                SyntaxError, AttributeError
            ):  # cosmic-ray: no dotted name of an exception
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
    Of the kernel and its reference, the one that compares them uncompiled comes before all others, some of which run what is not compiled yet plain.
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
            ranked.append(
                (
                    -len(named & set(re.findall(r"\w+", text))),
                    min(near) > 0,
                    not name.startswith(f"tests/{file.partition('/')[0]}/"),
                    min(near),
                    len(text),
                    name,
                )
            )
    kernel = file.startswith(("simulator/kernel/", "simulator/reference/"))
    ranked.sort(key=lambda each: (not (kernel and "/test_uncompiled" in each[-1]), *each))
    # that one reads the classes of all files
    return ["tests/test_values.py", *(name for *_, name in ranked[:FILES])]


def copied(folder: Path) -> Path:
    """The files of this checkout as they are, with a compiled simulator, beside the measured files.

    What numba has compiled of the same files is taken along: it goes by their times.
    """
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
    for path in (ROOT / "src").rglob("*.nb[ci]"):
        (copy / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copy2(path, copy / path.relative_to(ROOT))
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
    assert process.returncode != pytest.ExitCode.USAGE_ERROR, output  # no such file of tests
    failed = [row for row in output.splitlines() if row.startswith(("FAILED", "ERROR", "E  "))]
    # 5: none of their tests is in the core
    return (
        ""
        if process.returncode in (0, 5)
        else (failed or output.splitlines() or ["no word"])[-1][:110]
    )


class Change(NamedTuple):
    """A changed line: the new text of its file."""

    number: int
    file: str
    line: int
    operator: str
    new: str

    @property
    def module(self) -> str:
        """The module of the file."""
        return "tonnage." + self.file.removesuffix(".py").removesuffix("/__init__").replace(
            "/", "."
        )


def shape(code: CodeType) -> tuple[object, ...]:
    """What a code object does, without its lines; what it defines is compared by itself."""
    constants = [None if isinstance(part, CodeType) else repr(part) for part in code.co_consts]
    return (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_flags,
        *constants,
    )


def changed_codes(old: CodeType, new: CodeType) -> dict[tuple[str, int], CodeType] | None:
    """The functions of a file whose code differs, by name and first line, with their new code.

    None where more than functions differ: what runs at import, or how functions lie in each other.
    """
    codes: dict[tuple[str, int], CodeType] = {}
    pairs = [(old, new, False)]
    for before, after, inner in pairs:
        parts = [
            [part for part in code.co_consts if isinstance(part, CodeType)]
            for code in (before, after)
        ]
        if len(parts[0]) != len(parts[1]) or before.co_freevars != after.co_freevars:
            return None
        differs = shape(before) != shape(after)
        if not before.co_flags & CO_OPTIMIZED and differs:
            return None
        pairs += [(*pair, inner or differs) for pair in zip(*parts, strict=True)]
        if before.co_flags & CO_OPTIMIZED and before != after:
            codes[before.co_qualname, before.co_firstlineno] = after
    return codes


def statement_at(tree: ast.Module, line: int) -> tuple[list[ast.stmt], int] | None:
    """The block and the place in it of the innermost statement of a line; None outside of functions."""
    inside = [
        (statement.lineno, block, place)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        for field in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(node, field, None), list)
        for place, statement in enumerate(block)
        if statement.lineno <= line <= (statement.end_lineno or 0)
    ]
    return max(inside, key=lambda part: part[0])[1:] if inside else None


def marked(text: str, lines: dict[int, int]) -> ast.Module:
    """The program with a mark before the statement of each of these lines, by number, that is in a
    function.

    All other places stay what they were: the compiler's code of a module depends on them.
    """
    tree = ast.parse(text)
    for number, line in lines.items():
        if (statement := statement_at(tree, line)) is not None:
            block, place = statement
            mark = ast.parse(f"_mark_of_mutations({number})").body[0]
            for node in ast.walk(mark):
                ast.copy_location(node, block[place])
            block.insert(place, mark)
    return tree


class Session:
    """A plugin of pytest that runs the collected tests in forks, with changed functions."""

    def __init__(self, changes: list[Change], options: argparse.Namespace) -> None:
        self.changes, self.options = changes, options
        self.failed = ""
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self.unfreeze = gc.unfreeze  # the tests' own plugin takes it away

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def replace(self, file: str, codes: dict[tuple[str, int], CodeType]) -> None:
        """Give the live functions of a file their new code."""
        for (name, line), code in codes.items():
            for function in self.functions[file, name, line]:
                function.__code__ = code

    def codes(self, file: str, new: str | ast.Module) -> dict[tuple[str, int], CodeType] | None:
        """`changed_codes` of a file of this checkout."""
        path = ROOT / SOURCE / file
        with warnings.catch_warnings(action="ignore"):  # such as "is" with a literal
            trees = (ast.parse(path.read_text()), ast.parse(new) if isinstance(new, str) else new)
            codes = [compile(tree, str(path), "exec") for tree in trees]
        return changed_codes(*codes)

    def fork(self, work: Callable[[], None], cpu_s: float) -> int:
        """Do something in a fork, which is ended after so many CPU seconds; its exit status."""
        child = os.fork()
        if child:
            signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
            signal.alarm(SLOWEST_S)
            status = os.waitpid(child, 0)[1]
            signal.alarm(0)
            return status
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s)))
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)

    @staticmethod
    def run(item: pytest.Item, following: pytest.Item | None) -> None:
        """Run a test as pytest does."""
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)

    def reach(self, items: list[pytest.Item], to: Path) -> None:
        """Run all tests with the marks, and write for each its CPU seconds and the numbers of the
        changes that it reached.
        """
        marks = defaultdict[str, dict[int, int]](dict)
        for change in self.changes:
            if not change.file.startswith(COMPILED):
                marks[change.file][change.number] = change.line
        reached: set[int] = set()

        def work() -> None:
            vars(builtins)["_mark_of_mutations"] = reached.add
            for file, lines in marks.items():
                self.replace(
                    file, self.codes(file, marked((ROOT / SOURCE / file).read_text(), lines)) or {}
                )
            with to.open("a") as rows:
                for item, following in zip_longest(items, items[1:]):
                    reached.clear()
                    self.failed, began = "", time.process_time()
                    self.run(item, following)
                    seconds = round(time.process_time() - began, 3)
                    row = [item.nodeid, seconds, [] if self.failed else sorted(reached)]
                    rows.write(json.dumps(row) + "\n")
                    rows.flush()

        self.fork(work, 10_000)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Which tests reach what, and then every change."""
        self.unfreeze()
        for part in gc.get_objects():
            if isinstance(part, FunctionType) and SOURCE in part.__code__.co_filename:
                code = part.__code__
                file = code.co_filename.rpartition(SOURCE)[2]
                self.functions[file, code.co_qualname, code.co_firstlineno].append(part)
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        folders = defaultdict[str, list[pytest.Item]](list)
        for item in session.items:
            file = item.nodeid.partition("::")[0]
            folders[file.partition("/")[2].partition("/")[0]].append(item)
        to = self.options.reach or Path(tempfile.mkstemp()[1])
        rows = (
            [json.loads(row) for row in to.read_text().splitlines()] if to.exists() else list[Any]()
        )
        tried = {name for name, *_ in rows}
        for folder, part in folders.items():
            if part := [item for item in part if item.nodeid not in tried]:
                began = time.monotonic()
                self.reach(part, to)
                announce(
                    f"{len(part):,} tests of {folder} ran once in {time.monotonic() - began:.0f} s"
                )
        rows = [json.loads(row) for row in to.read_text().splitlines()]
        done = results_of(self.options)
        graph = build_graph("tonnage", cache_dir=None)
        for change in self.changes:
            if change.number not in {result["number"] for result in done}:
                began = time.monotonic()
                tests = sorted(
                    (seconds, name) for name, seconds, numbers in rows if change.number in numbers
                )
                codes = self.codes(change.file, change.new)
                tree = ast.parse((ROOT / SOURCE / change.file).read_text())
                if (
                    codes is None
                    or change.file.startswith(COMPILED)
                    or statement_at(tree, change.line) is None
                ):
                    by, how = self.in_file(graph, change), "in the file"
                else:
                    by, how = self.in_memory(
                        change, codes, [items[name] for _, name in tests if name in items]
                    )
                done.append(noted(self.options, change, by, how, time.monotonic() - began))
        announce(
            f"{sum(result['by'] != '' for result in done)} of {len(done)} changes were noticed"
        )
        return True

    def in_memory(
        self, change: Change, codes: dict[tuple[str, int], CodeType], items: list[pytest.Item]
    ) -> tuple[str, str]:
        """The first test that fails with the changed functions, "" where none does; and how many
        tests reach them.
        """
        failure_file = Path(tempfile.mkstemp()[1])

        def work() -> None:
            self.replace(change.file, codes)
            for item, following in zip_longest(items, items[1:]):
                self.failed = ""
                failure_file.write_text(f"no end of {item.nodeid}")
                self.run(item, following)
                failure_file.write_text(self.failed)
                if self.failed or sum(os.times()[:4]) > self.options.budget:
                    return

        status = self.fork(work, self.options.budget * 3) if items else 0
        by = failure_file.read_text()
        failure_file.unlink()
        return by or ("the process died" if status else ""), f"{len(items)} tests reach it"

    def in_file(self, graph: Any, change: Change) -> str:
        """The same of what runs at import or is compiled: in a process of its own."""
        path = ROOT / SOURCE / change.file
        old = path.read_text()
        path.write_text(change.new)
        files = concerned(graph, change.file, change.line)
        by = noticed(ROOT, files[:FIRST], self.options.budget / 2) or noticed(
            ROOT, files[FIRST:], self.options.budget / 2
        )
        path.write_text(old)
        return by


def results_of(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What was tried before."""
    if options.output is None or not options.output.exists():
        return []
    return [json.loads(row) for row in options.output.read_text().splitlines()]


def noted(
    options: argparse.Namespace, change: Change, by: str, how: str, seconds: float
) -> dict[str, Any]:
    """A result, which is printed and written."""
    old = (ROOT / SOURCE / change.file).read_text()
    lines = list(unified_diff(old.splitlines(), change.new.splitlines(), lineterm="", n=0))[3:]
    result = {
        "number": change.number,
        "seconds": round(seconds),
        "place": f"{change.file}:{change.line}",
        "operator": change.operator,
        "by": by,
        "how": how,
        "change": lines,
    }
    if options.output:
        with options.output.open("a") as rows:
            rows.write(json.dumps(result) + "\n")
    verdict = f"killed by {by}" if by else "ALIVE"
    announce(
        f"{change.number:3} {seconds:4.0f} s  {result['place']} {change.operator} ({how}) {verdict}"
    )
    if not by:
        announce("\n".join(f"      {row}" for row in lines))
    return result


def announce(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


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
        "--tests", nargs="+", default=["tests"], help="folders and files of tests that are run"
    )
    parser.add_argument(
        "--reach", type=Path, help="file of the changes that each test reaches; goes on from there"
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="file to add the results to; changes that it has are not tried again",
    )
    parser.add_argument("--test", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    arguments = ["-m", CORE, "-p", "no:cacheprovider"]
    if options.test:
        plugins: list[object] = [Budget(options.test, options.budget)]
        sys.exit(pytest.main(["-x", *arguments, *options.test], plugins=plugins))
    if options.inside:
        changes = [
            Change(number, *change)
            for number, change in enumerate(drawn(options.seed, options.sample, options.rooms))
            if not options.only or number in options.only
        ]
        sys.exit(
            pytest.main(
                ["-s", "-q", "--no-header", *arguments, *options.tests],
                plugins=[Session(changes, options)],
            )
        )
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = copied(Path(folder))
        command = [
            sys.executable,
            "-P",
            str(copy / "benchmarks/mutations.py"),
            *sys.argv[1:],
            "--inside",
        ]
        for name in ("reach", "output"):
            if path := getattr(options, name):
                command += [f"--{name}", str(path.resolve())]
        sys.exit(subprocess.run(command, cwd=copy, env=environment(copy), check=False).returncode)


if __name__ == "__main__":
    main()
