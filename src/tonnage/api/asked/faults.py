"""Collects what is wrong with a question, so that all of it is told at once, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from tonnage.errors import InputError, Path, option, spelled
from tonnage.spec.scenario import leaves

T = TypeVar("T")
P = ParamSpec("P")


class Faults:
    """A list of everything that is wrong, each with its place.

    What came from a file is named by its key there. What was given beside it stays an option in the message, for the
    command or Python to spell.

    Attributes:
        source: the file; empty where there is none.
        keys: the key in the file of every leaf that was not given beside it, by name.
        messages: one line each.
    """

    def __init__(self, source: str = "", flags: Mapping[str, object] | None = None) -> None:
        """Take the file's name and the arguments that were given beside it."""
        self.source = source
        given = {name for name, value in (flags or {}).items() if value is not None}
        self.keys = {leaf.name: leaf.key for leaf in leaves() if leaf.name not in given} if source else {}
        self.messages: list[str] = []

    def of(self, make: Callable[P, T], *values: P.args, **named: P.kwargs) -> T | None:
        """What ``make`` makes of the values; None and a line more for each reason where it cannot."""
        try:
            return make(*values, **named)
        except InputError as error:
            self.messages += [self._placed(line) for line in error.marked.splitlines()]
            return None

    def named(self, where: str, make: Callable[P, T], *values: P.args, **named: P.kwargs) -> T | None:
        """As ``of``, for a name that is looked up: an unknown name is told with its place."""
        before = len(self.messages)
        found = self.of(make, *values, **named)
        at = self._placed(f"{where}: ")
        self.messages[before:] = [line if where in line or at in line else f"{at}{line}" for line in self.messages[before:]]
        return found

    def say(self, message: str) -> None:
        """One more thing that is wrong."""
        self.messages.append(self._placed(message))

    def _placed(self, message: str) -> str:
        named = spelled(message, self._key)
        return f"{self.source}: {named}" if self.source and named != message else message

    def _key(self, path: Path) -> str:
        """How the file spells an option; unchanged where it does not stand there."""
        return self.keys.get(path[-1]) or option(*path)
