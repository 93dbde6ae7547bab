"""The house in figures: what a reader has to know, by the syntax trees of src/tonnage
(docs/design.md, "The house in figures").

./benchmark house                the table
./benchmark house --names        the names that say nothing of what they hold, by file
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]

PRONOUNS = ("one", "each", "most", "own", "other", "others", "some", "every")
PARTICIPLES = (
    "found",
    "asked",
    "said",
    "told",
    "made",
    "known",
    "kept",
    "given",
    "taken",
    "held",
    "seen",
    "wanted",
    "meant",
    "left",
)
UNSPOKEN = frozenset((*PRONOUNS, *PARTICIPLES))
"""As names they do not say what a variable holds."""


def trees(root: Path = ROOT) -> Iterator[tuple[Path, ast.Module]]:
    """Every file of the package."""
    for file in sorted((root / "src" / "tonnage").rglob("*.py")):
        yield file, ast.parse(file.read_text(encoding="utf-8"))


def blocks(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements below a node; expressions, which hold none, are not walked through."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from blocks(child)


def statements(tree: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Statements of a file, or below the line of a function; docstrings are not counted."""

    def is_string(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )

    return sum(not is_string(node) for node in blocks(tree))


def stored(tree: ast.Module) -> Iterator[str]:
    """The names of the variables that a file stores, once for each place, and of its arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def unspoken(tree: ast.Module) -> Counter[str]:
    """How often each of ``UNSPOKEN`` is a name."""
    return Counter(name for name in stored(tree) if name in UNSPOKEN)


def mirrored(root: Path = ROOT) -> tuple[int, int]:
    """Modules with a test file of their name in the folder of the same name, and all modules."""
    package = root / "src" / "tonnage"
    modules = [file for file in package.rglob("*.py") if file.name != "__init__.py"]
    places = [
        root / "tests" / file.relative_to(package).with_name(f"test_{file.name}")
        for file in modules
    ]
    return sum(place.exists() for place in places), len(modules)


QUESTION = (
    *("size", "--model", "llama-3.1-8b", "--gpu", "h100", "--isl", "2000", "--osl", "200"),
    *("--peak-rps", "300", "--ttft", "p95<=500ms", "--tpot", "p95<=50ms"),
)
"""README's question on one GPU."""


class _Reached(BaseException):
    """The first simulated step, with the frames that lead to it."""

    def __init__(self, frames: list[tuple[str, str]]) -> None:
        self.frames = frames
        super().__init__()


def way(tokens: Sequence[str] = QUESTION) -> list[tuple[str, str]]:
    """File and function of every frame of the package from a command to its first simulated step,
    through the thread that simulates; the run that loads the compiled loop is none of the question.
    """
    from tonnage.cli.main import run
    from tonnage.simulator.kernel.driven import drive

    asker, loop = threading.get_ident(), drive.enter.__code__

    def look(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code is not loop:  # numba tells of a compiled call as well
            return
        frames = _frames(sys._getframe(1))
        if threading.get_ident() != asker:
            frames = _frames(sys._current_frames()[asker]) + frames
        if "warm_up" not in [function for _, function in frames]:
            raise _Reached(frames)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        with redirect_stdout(io.StringIO()):
            run(tokens)
    except _Reached as reached:
        return reached.frames
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    raise RuntimeError("the command simulated nothing")


def _frames(frame: FrameType | None) -> list[tuple[str, str]]:
    """The package's frames down to this one, by file and function."""
    package, frames = ROOT / "src" / "tonnage", []
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(package):
            frames.append((str(file.relative_to(package)), frame.f_code.co_name))
        frame = frame.f_back
    return frames[::-1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--names", action="store_true")
    arguments = parser.parse_args()
    files = list(trees())
    count = sum(statements(tree) for _, tree in files)
    names = sum(sum(1 for _ in stored(tree)) for _, tree in files)
    silent = {file: unspoken(tree) for file, tree in files}
    ternaries = sum(isinstance(node, ast.IfExp) for _, tree in files for node in ast.walk(tree))
    tested, modules = mirrored()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    total = sum(sum(counter.values()) for counter in silent.values())
    print(f"statements of src, docstrings not counted: {count:,} in {len(files)} files")
    print(
        f"variables and arguments named by pronouns or participles: {total:,} of {names:,}, {total / names:.1%}"
    )
    print(f"ternaries per 1,000 statements: {1000 * ternaries / count:.1f}")
    print(f"modules with a test file of their name: {tested} of {modules}, {tested / modules:.0%}")
    print(f"pages: {len(pages)}, {words:,} words")
    frames = way()
    steps = f"{len(frames)} frames in {len(dict(frames))} files"
    print(f"from `tonnage size` to the first simulated step: {steps}")
    for file, counter in (
        sorted(silent.items(), key=lambda item: -sum(item[1].values())) if arguments.names else ()
    ):
        if counter:
            common = ", ".join(f"{name} {times}" for name, times in counter.most_common(6))
            print(f"{sum(counter.values()):>5} {file.relative_to(ROOT)}: {common}")


if __name__ == "__main__":
    main()
