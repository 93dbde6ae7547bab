"""Writes ``src/tonnage/api/question/typed_arguments.py``: the keyword arguments of ``tonnage.size``, from the leaves of a scenario.

    python -m tools.typed_arguments

A test holds the file against what this writes, so that a new leaf is a new argument which editors complete and mypy checks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

from tonnage.spec.scenario import Scenario

TARGET = Path(__file__).parents[1] / "src" / "tonnage" / "api" / "question" / "typed_arguments.py"

HEAD = '''"""The keyword arguments of ``tonnage.size``: one for each leaf of a scenario, with the same name, kind and words.

Written by ``python -m tools.typed_arguments`` from ``spec/scenario.py``; change the leaf there and run it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from tonnage.spec.scenario import Mode, Objective, UseCase

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | Iterable[str] | None
Counts = int | str | Iterable[int] | None
'''

WIDER = {"str | list[float] | None": "str | Iterable[float] | None"}
"""Where a file holds a list, Python takes anything that can be iterated."""

WIDTH = 140


def module() -> str:
    """The text of the module."""
    hints = get_type_hints(Scenario)
    branches = {part.name: hints[part.name] for part in fields(Scenario) if is_dataclass(hints[part.name])}
    parts = [HEAD]
    for kind in (Scenario, *branches.values()):
        about = (kind.__doc__ or "").splitlines()[0]
        parts.append(f'\n\nclass {_name(kind)}(TypedDict, total=False):\n    """{about}"""\n\n' + "\n".join(_keys(kind, branches)) + "\n")
    bases = [*(_name(kind) for kind in (Scenario, *branches.values())), "total=False"]
    head = "class SizeArguments(\n" + "".join(f"    {base},\n" for base in bases) + "):"
    parts.append(
        f'\n\n{head}\n    """Everything that ``tonnage.size`` takes by name."""\n\n'
        '    price: Iterable[str] | None\n    """Single prices in place of the catalog\'s, such as ``["systems.dgx-h100=250000"]``."""\n'
    )
    return "".join(parts)


def _name(kind: type) -> str:
    return f"{kind.__name__.removesuffix('Asked')}Arguments"


def _keys(kind: type, branches: dict[str, type]) -> Iterator[str]:
    for part in fields(kind):
        if part.name in branches:
            continue
        written = str(part.type).replace("'", '"')
        annotation = WIDER.get(written, written)
        if part.metadata["file"]:
            annotation = annotation.replace("Text", "str | None").replace("str |", "str | Path |", 1)
        yield f"    {part.name}: {annotation}\n{_docstring(part.metadata['about'])}"


def _docstring(text: str) -> str:
    """The words of a leaf as a docstring; lines are broken where they would be too long."""
    quotes = 'r"""' if "\\" in text else '"""'
    one = f'    {quotes}{text}{" " * text.endswith(chr(34))}"""'
    if len(one) <= WIDTH:
        return one
    lines = textwrap.wrap(text, WIDTH - 4, initial_indent="       ", break_long_words=False, break_on_hyphens=False)
    body = "\n    ".join(line.strip() for line in lines)
    return f'    {quotes}{body}\n    """'


if __name__ == "__main__":
    TARGET.write_text(module(), encoding="utf-8")
