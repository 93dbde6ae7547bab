"""Flags that are declared once, as the leaves of a scenario or as the fields of a dataclass, and
given to a verb.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Sequence as SequenceKind
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter

from tonnage.errors import InputError, option
from tonnage.spec.scenario import Leaf, takes
from tonnage.spec.typed_values import about

TITLES = {
    "": "The question",
    "lengths": "Lengths",
    "sessions": "Conversations, agents and shared prefixes",
    "demand": "Demand (one form of it)",
    "limits": "Limits",
    "search": "The deployment (size tries every combination)",
    "simulate": "Load, further knobs and fleet",
    "choice": "What is chosen",
    "standby": "What stands by for failures",
    "scaling": "How the fleet is scaled over its hours",
    "buying": "Buying and renting over months",
}
GROUPS = {
    branch: Group(title, sort_key=place) for place, (branch, title) in enumerate(TITLES.items())
}
OUTPUT = Group("Output", sort_key=len(TITLES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag: its name in Python, what it takes, and how its help describes it. None is its
    default.
    """

    # name, kind, about, group: as above
    name: str
    kind: Any
    about: str
    group: Group | None = None
    negative: bool = False  # whether a switch can be turned off by ``--no-…`` too
    several: bool = False  # whether it takes all the values that follow it
    # reads what was typed; None to leave that to cyclopts
    read: Callable[[Any, Sequence[Any]], Any] | None = None
    aliases: tuple[str, ...] = ()  # further names in Python that mean the same

    @property
    def parameter(self) -> inspect.Parameter:
        """The flag as a keyword of a verb."""
        negative = None if self.negative else ()
        options: dict[str, Any] = {
            "help": self.about,
            "negative": negative,
            "consume_multiple": self.several,
            "converter": self.read,
        }
        options["alias"] = tuple(
            f"-{alias}" if len(alias) == 1 else f"--{alias.replace('_', '-')}"
            for alias in self.aliases
        )
        parameter = (
            Parameter(**options) if self.group is None else Parameter(**options, group=self.group)
        )
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[self.kind, parameter],
        )


def flags_of(declared: type, group: Group | None = None) -> tuple[Flag, ...]:
    """A flag for each field that a dataclass adds to its base by ``about``."""
    kinds, declared_names = get_type_hints(declared), vars(declared)["__annotations__"]
    return tuple(
        _flag(field.name, kinds[field.name], field.metadata, group)
        for field in fields(declared)
        if field.name in declared_names
    )


def _flag(name: str, kind: Any, facts: Mapping[str, Any], group: Group | None) -> Flag:
    """A flag that takes several values as a list, and a text where Python takes more kinds."""
    several = next(
        (
            part
            for part in (kind, *get_args(kind))
            if get_origin(part) in (SequenceKind, tuple, list)
        ),
        None,
    )
    listed = several is not None
    flag_type = list[get_args(several)[0]] if listed else str if takes(kind, str) else kind  # type: ignore[misc]
    return Flag(
        name=name,
        kind=flag_type | None,
        group=group,
        **{**facts, "negative": facts["negative"] and not listed},
    )


def leaf_flags(leaves: Iterable[Leaf]) -> tuple[Flag, ...]:
    """A flag for each leaf of a scenario, with the same name and the same words."""
    return tuple(
        Flag(
            name=leaf.name,
            kind=_kind(leaf),
            about=leaf.about,
            group=GROUPS[leaf.path[0] if len(leaf.path) > 1 else ""],
            negative=leaf.path[0] in ("search", "simulate"),
            read=None if leaf.number is None else _reader(leaf),
            aliases=leaf.aliases,
        )
        for leaf in leaves
    )


def _reader(leaf: Leaf) -> Callable[[Any, Sequence[Any]], float]:
    """The converter of a leaf's number, in all the forms in which a scenario may write it."""

    def read(_: Any, tokens: Sequence[Any]) -> float:
        text = tokens[0].value
        number = leaf.read(text)
        if number is None:
            kind = "a whole number" if leaf.number is int else "a number"
            raise InputError(f"{option(leaf.name)}: '{text}' is not {kind}; {leaf.about}")
        return number

    return read


_OF_ARGS = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)


def with_flags(*flags: Flag) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A verb with these flags in addition to its own, which it gets as ``**asked``; its docstring
    then describes all of them.

    Its own arguments are described under ``Args`` there; help folds each text at the width of the
    terminal alone.
    """

    def widened(verb: Callable[..., Any]) -> Callable[..., Any]:
        words, _, section = (inspect.getdoc(verb) or "").partition("\n\nArgs:\n")
        texts = {name: " ".join(text.split()) for name, text in _OF_ARGS.findall(section)}
        signature = inspect.signature(verb, eval_str=True)
        parameters = [
            (
                part.replace(
                    annotation=Annotated[part.annotation, Parameter(help=texts[part.name])]
                )
                if part.name in texts
                else part
            )
            for part in signature.parameters.values()
            if part.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        keywords = [part for part in parameters if part.kind is inspect.Parameter.KEYWORD_ONLY]
        first = [part for part in parameters if part not in keywords]
        needed = [part for part in keywords if part.default is inspect.Parameter.empty]
        more = [flag.parameter for flag in flags if flag.name not in signature.parameters]
        extended_signature = signature.replace(
            parameters=[*first, *needed, *more, *(part for part in keywords if part not in needed)]
        )
        setattr(verb, "__signature__", extended_signature)  # noqa: B010 — a function's type does not declare it
        helps = (
            (name, part.annotation.__metadata__[-1].help)
            for name, part in extended_signature.parameters.items()
        )
        verb.__doc__ = "\n".join(
            [f"{words}\n\nArgs:", *(f"    {name}: {text}" for name, text in helps)]
        )
        verb.__annotations__ = {
            name: part.annotation for name, part in extended_signature.parameters.items()
        }
        return verb

    return widened


def refuse(flags: Mapping[str, Any], why: str) -> None:
    """Refuse flags that were given where they say nothing. Raises InputError: naming the first."""
    for name, value in flags.items():
        if value not in (None, False):
            raise InputError(f"{option(name)}: {why}")


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given."""
    return {name: value for name, value in flags.items() if value is not None}


def _kind(leaf: Leaf) -> Any:
    """The type of a flag: a choice, a number, a switch, several texts for limits, else one text."""
    choices = next((part for part in get_args(leaf.kind) if get_origin(part) is Literal), None)
    if choices is not None:
        return choices | None
    if leaf.path[0] == "limits" or leaf.name == "classes":
        return list[str] | None
    if takes(leaf.kind, str):
        return str | None
    return next(kind for kind in (bool, int, float) if takes(leaf.kind, kind)) | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The deployment and the lengths of a benchmark."""

    model: str | None = about("Model that was measured, where the files do not say it.")
    layout: str | None = about(
        "Architecture as which a config.json is read whose own leaves something open, such as"
        " LlamaForCausalLM."
    )
    gpu: str | None = about(
        "GPU that was measured, where the files do not say it; a catalog id, or a YAML file that"
        " describes your own."
    )
    precision: str | None = about(
        "Number format, such as fp16, fp8 or awq, where the files do not say it."
    )
    tp: int | None = about("Tensor-parallel degree, where the files do not say it.")
    engine: str | None = about("Engine preset, where the files do not say it.")
    isl: int | None = about("Prompt tokens, where the files do not say them.")
    osl: int | None = about("Output tokens, where the files do not say them.")
    concurrency: int | None = about(
        "Clients of the closed loop, where the files do not say the load; with a rate the most"
        " requests in flight."
    )
    request_rate: float | None = about(
        "Requests per second that were sent, where the files do not say the load."
    )
    include_invalid: bool | None = about(
        "Take run folders that their own client called INVALID; they are left out otherwise.",
        negative=False,
    )
    allow_errors: bool | None = about(
        "Take runs of which more than 1% of the requests failed; they are left out otherwise.",
        negative=False,
    )
