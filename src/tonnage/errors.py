"""Every error that Tonnage raises on purpose.

    TonnageError              something went wrong that Tonnage can name       exit code 1
    ├── InputError            what the user gave cannot be used                exit code 2
    │   ├── InputErrors       several things at once, one line each
    │   ├── UnknownName       no model, GPU, engine, … of that name
    │   ├── UnsupportedModel  a config.json of an architecture that is not supported
    │   └── DoesNotFit        the weights or the KV cache exceed the memory
    └── DataError             a file that Tonnage ships or wrote is damaged
        └── DataErrors        everything that is wrong with it, one line each

A message is one line and says what is wrong, where, and what would be right. Where it names an
argument, such as the tensor-parallel degree, it holds ``option("tp")``: the error knows the path
(``error.path``), and anyone who shows the message spells it, the command as ``--tp``, a scenario
file as ``search.tp``, Python as ``tp``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tonnage.scope import refused

# What a command's exit code says
DONE = 0
FAILED = 1  # something failed that is not the asker's fault
BAD_INPUT = 2  # what was given cannot be used
NO_ANSWER = 3  # what was given is valid, and there is no acceptable answer to it
INTERRUPTED = 130

Path = tuple[str, ...]
"""The place of an argument, such as ("search", "tp"), or its name alone where no other has it."""

_OPTION = re.compile("\ue000([^\ue000\ue001]*)\ue001")

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that steer a terminal, turn the direction of a line, end a line of YAML, or have no
UTF-8 (lone surrogates)."""


def visible(text: str) -> str:
    """A text from outside as it may be printed: hidden characters are written as their codes; tabs
    and line ends stay.
    """
    return HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def option(*path: str) -> str:
    """An argument by its path, as a message names it; the edge that shows the message spells it."""
    return f"\ue000{'.'.join(path)}\ue001"


def keyword(path: Path) -> str:
    """How Python spells it: the name of the argument, and a switch that is to be off with its
    value.
    """
    name = path[-1]
    return f"{name.removeprefix('no_')}=False" if name.startswith("no_") else name


def spelled(message: str, spell: Callable[[Path], str]) -> str:
    """A message with every option in it spelled by ``spell``."""
    return _OPTION.sub(lambda match: spell(tuple(match[1].split("."))), message)


def in_python(message: str) -> str:
    """A message as Python and JSON say it: options by the names of their arguments."""
    return spelled(message, keyword)


_SHORT = re.compile(
    r"cannot allocate memory|failed to map segment|can't start new thread|failed to launch worker"
    r" thread|bad_alloc|malloc of size",
    re.IGNORECASE,
)


def short_of_memory(error: BaseException) -> bool:
    """Whether an error, or one behind it, came up because this process gets no more memory, as the
    libraries word it.
    """
    chain: list[BaseException] = [error]
    while (
        before := chain[-1].__cause__ or chain[-1].__context__
    ) is not None and before not in chain:
        chain.append(before)
    return any(isinstance(part, MemoryError) or _SHORT.search(str(part)) for part in chain)


LONGEST_LINE = 4_000  # characters of a message, whatever it quotes


def _one_line(message: str) -> str:
    line = " ".join(visible(message).split())
    return (
        line
        if len(line) <= LONGEST_LINE
        else f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 4 :]}"
    )


class TonnageError(Exception):
    """Base of all errors raised on purpose; ``exit_code`` is what the command returns."""

    exit_code = FAILED

    @property
    def marked(self) -> str:
        """The message on one line, whatever the input that it quotes; options in it are not spelled
        yet.
        """
        return _one_line(super().__str__())

    def __str__(self) -> str:
        """The message as Python says it: options by the names of their arguments."""
        return spelled(self.marked, keyword)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error as it is, without its constructor: a process may send its errors to
        another.
        """
        return _restored, (type(self), self.args, self.__dict__)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The options that the message names, in order."""
        return tuple(tuple(match[1].split(".")) for match in _OPTION.finditer(self.marked))

    @property
    def path(self) -> Path:
        """The option that is wrong, with which the message begins; empty where it begins with
        none.
        """
        match = _OPTION.match(self.marked)
        return tuple(match[1].split(".")) if match else ()

    @property
    def reason(self) -> str:
        """The message without the option that it begins with, as Python says it."""
        match = re.match(f"{_OPTION.pattern}: ", self.marked)
        return spelled(self.marked[match.end() :], keyword) if match else str(self)


def _restored(
    kind: type[TonnageError], args: tuple[object, ...], state: dict[str, object]
) -> TonnageError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InputError(TonnageError):
    """What the user gave cannot be used; the message says where and what would be right."""

    exit_code = BAD_INPUT


class Several(TonnageError):
    """Several things at once, one line each.

    Attributes:
        lines: the messages; options in them are not spelled yet.
    """

    MOST = 40

    def __init__(self, messages: Iterable[str]) -> None:
        """Keep the messages apart; equal ones once, and beyond ``MOST`` only their number."""
        lines = list(map(_one_line, dict.fromkeys(messages)))
        if len(lines) > self.MOST:
            lines[self.MOST :] = [f"and {len(lines) - self.MOST:,} more errors like these"]
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)

    @property
    def marked(self) -> str:
        """The messages, one line each; options in them are not spelled yet."""
        return "\n".join(self.lines)

    @property
    def messages(self) -> tuple[str, ...]:
        """The messages as Python says them."""
        return tuple(spelled(line, keyword) for line in self.lines)

    @classmethod
    def raise_if(cls, messages: Sequence[str]) -> None:
        """Raise this error when there is anything to say."""
        if messages:
            raise cls(messages)


class InputErrors(Several, InputError):
    """Everything that is wrong with what the user gave, one line each."""


def _near(name: str, names: Sequence[str]) -> list[str]:
    """At most three names that ``name`` may have been meant for: names that begin with it, or else
    the most similar ones.
    """
    begun = [candidate for candidate in names if len(name) > 1 and candidate.startswith(name)]
    return begun[:3] or difflib.get_close_matches(name, names, n=3, cutoff=0.4)


class UnknownName(InputError):
    """A name that is not in the catalog."""

    def __init__(
        self,
        kind: str,
        name: str,
        known_names: Iterable[str],
        otherwise: str = "",
        reason: str = "",
    ) -> None:
        """Compose the message from the nearest of the known names.

        Args:
            kind: what was looked up, such as "model" or "GPU".
            name: what was requested.
            known_names: every name that would have been right.
            otherwise: what works too, such as "the path of a file".
            reason: why it was not found elsewhere, as a clause.
        """
        why = refused(kind, name)
        if why:
            super().__init__(f"{kind} '{name}' is not covered: {why}")
            self.kind, self.name = kind, name
            return
        names = sorted(known_names)
        near = _near(name.lower(), names)
        hint = (
            f"did you mean {', '.join(near)}?"
            if near
            else f"one of: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" * bool(names)
        )
        too = f" ({otherwise} works too)" if otherwise else ""
        super().__init__("; ".join(filter(None, (f"unknown {kind} '{name}'{too}", reason, hint))))
        self.kind = kind
        self.name = name


class UnsupportedModel(InputError):
    """A ``config.json`` of an architecture that the step model does not know."""


class DoesNotFit(InputError):
    """The deployment needs more memory than its GPUs have; the message holds the arithmetic."""


class DataError(TonnageError):
    """A file that Tonnage ships or wrote is damaged."""


class DataErrors(Several, DataError):
    """Everything that is wrong with such a file, one line each."""
