"""Writes ``src/tonnage/api/question/typed_arguments.py``: the keyword arguments of ``tonnage.size``
and ``simulate``, from their leaves.

    python -m tools.typed_arguments

A test holds the file against what this writes, so that a new leaf is a new argument which editors
complete and mypy checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

from tonnage.spec.scenario import Scenario, SimulationAsked, simulated_leaves

TARGET = Path(__file__).parents[1] / "src" / "tonnage" / "api" / "question" / "typed_arguments.py"

HEAD = '''"""The keyword arguments of ``tonnage.size`` and ``tonnage.simulate``; ``spec/scenario.py`` says
what each of them means.

Written by ``python -m tools.typed_arguments`` from the leaves there; change a leaf and run it
again.
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
One = int | str | None
'''

WIDER = {
    "str | list[float] | None": "str | Iterable[float] | None",
    "str | float | list[float] | None": "str | float | Iterable[float] | None",
}
"""Where a file holds a list, Python takes anything that can be iterated."""

ONE = {"Texts": "Text", "Counts": "One"}
"""Where ``size`` tries several values, ``simulate`` takes one."""

SEVERAL = ("ttft", "tpot", "e2e", "concurrency")
"""Of which ``simulate`` takes several, too."""


def module() -> str:
    """The text of the module."""
    size = dict(_annotations(Scenario))
    simulated = {leaf.name for leaf in simulated_leaves() if leaf.path[0] != "simulate"}
    one = {
        name: kind if name in SEVERAL else ONE.get(kind, kind)
        for name, kind in size.items()
        if name in simulated
    }
    own = dict(_annotations(SimulationAsked))
    both = {name: kind for name, kind in one.items() if size[name] == kind and name not in own}
    own = {name: kind for name, kind in one.items() if name not in both} | own
    rest = {name: kind for name, kind in size.items() if name not in both} | {
        "price": "Iterable[str] | None"
    }
    parts = [
        _typed_dict("SharedArguments", "TypedDict", "What both take.", both),
        _typed_dict(
            "SizeArguments",
            "SharedArguments",
            "Everything that ``tonnage.size`` takes by name.",
            rest,
        ),
        _typed_dict(
            "SimulateArguments",
            "SharedArguments",
            "Everything that ``tonnage.simulate`` takes by name.",
            own,
        ),
    ]
    return "\n\n".join([HEAD, *parts])


def _typed_dict(name: str, base: str, about: str, keys: Mapping[str, str]) -> str:
    lines = "".join(f"    {key}: {kind}\n" for key, kind in keys.items())
    return f'class {name}({base}, total=False):\n    """{about}"""\n\n{lines}'


def _annotations(kind: type) -> Iterator[tuple[str, str]]:
    """Name and annotation of each leaf of a branch and of those below it."""
    hints = get_type_hints(kind)
    for part in fields(kind):
        if is_dataclass(hints[part.name]):
            yield from _annotations(hints[part.name])
            continue
        written = str(part.type).replace("'", '"')
        annotation = WIDER.get(written, written)
        if part.metadata["file"]:
            annotation = annotation.replace("Text", "str | None").replace(
                "str |", "str | Path |", 1
            )
        yield part.name, annotation


if __name__ == "__main__":
    TARGET.write_text(module(), encoding="utf-8")
