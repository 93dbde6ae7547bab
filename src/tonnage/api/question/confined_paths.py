"""Questions that come from elsewhere, such as a page or an agent: they name files of one folder
alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, option

_TOKENS = re.compile(r"[\s,=:@x×]+")
_LONGEST_NAME = 255


def check_inside(value: Any, folder: Path, where: str = "") -> None:
    """Refuse a value, nested ones too, that names a file outside of the folder, or a hidden one.
    Raises InputError: naming the leaf.
    """
    for leaf, text in _texts(value, where):
        if any(_leads_out(token, folder) for token in (text, *_TOKENS.split(text))):
            raise InputError(
                f"{option(leaf[:40])}: names a file outside of the folder that is served; put it"
                " there, and name it alone"
            )


def files_named(value: Any, folder: Path) -> set[Path]:
    """The files of the folder that a value, which ``check_inside`` let through, may name."""
    tokens = {
        token for _, text in _texts(value, "") for token in (text, *_TOKENS.split(text)) if token
    }
    return {
        folder / token
        for token in tokens
        if len(token) <= _LONGEST_NAME and (folder / token).is_file()
    }


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text of a value, each with the leaf that holds it."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(part, where or str(name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from _texts(part, where)
    elif isinstance(value, str):
        yield where, value


def _leads_out(token: str, folder: Path) -> bool:
    if token.startswith(("/", "~")) or ".." in token or "\\" in token or "\0" in token:
        return True
    if len(token) > _LONGEST_NAME:
        return False
    try:
        if not (folder / token).exists():
            return False
        real, hidden = (
            (folder / token).resolve(),
            any(part.startswith(".") for part in Path(token).parts),
        )
        return hidden or not real.is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return False
