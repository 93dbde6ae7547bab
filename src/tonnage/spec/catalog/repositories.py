"""Repositories by name: which model of the catalog each one is, or has the architecture of, and its
number format.

``checkpoints.yaml`` names the checkpoints of the catalog's models, ``repositories.yaml`` the models
that were trained from these or have their shapes, by architecture. What both leave out is read off
the name: a format by how its publishers mark it ("-FP8", "-GPTQ-Int4"), and, as a guess that is
marked, the architecture of a fine-tune whose name holds family, version and size
("Hermes-3-Llama-3.1-8B").
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from tonnage.errors import DataError, InputError
from tonnage.spec.catalog import entries
from tonnage.spec.catalog.entries import plain, shipped_yaml
from tonnage.spec.typed_values import read_as, strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tonnage.spec.model import Model

WHERE = "catalog/repositories.yaml"


@strict
class _Shape:
    """Repositories with the architecture of one model of the catalog."""

    model: str  # catalog id
    # with alternatives in braces: "Qwen/Qwen2-7B{,-Instruct}"; behind a blank the format that is
    # not bf16
    repositories: tuple[str, ...]
    # vocab, context: rows of their embedding and their longest context in tokens, where they are
    # not the model's
    vocab: int = 0
    context: int = 0
    text_only: bool = False  # they have an encoder of images or sound as well
    blocks: bool = False  # their FP8 has a scale for each block of 128 × 128


@strict
class _Table:
    """``repositories.yaml``."""

    source: str
    date: str
    # families: first words of the names that fine-tunes repeat; of ``versions`` only where a
    # version follows, as their sizes recur
    families: tuple[str, ...]
    versions: tuple[str, ...]
    # words of names whose model has another architecture than the rest of the name says
    others: tuple[str, ...]
    # number format by the endings of names that mean it, as patterns
    formats: dict[str, tuple[str, ...]]
    # formats that no engine here reads, by such an ending, each with who reads it
    foreign: dict[str, str]
    # weights of encoders in millions, by a pattern of the names of text_only repositories
    encoders: dict[str, int]
    shapes: tuple[_Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A checkpoint at the hub, or the name that it would have there."""

    name: str  # as published, "owner/name"
    model: Model  # with the format in which it is published
    gated: bool = False  # whether users must request access


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the file of repositories."""

    name: str
    form: str
    shape: _Shape
    blocks: bool = False  # its FP8 has a scale for each block
    gated: bool = False


@cache
def _table() -> _Table:
    return read_as(_Table, shipped_yaml("repositories.yaml"), WHERE)


@cache
def _listed() -> Mapping[str, _Line]:
    """Every repository of both files, by its whole name and by the part behind the owner, in lower
    case.

    Raises DataError: a model is not in the catalog, or a repository is given twice.
    """
    lines: list[_Line] = []
    for row in shipped_yaml("checkpoints.yaml"):
        shape = _Shape(model=row["name"], repositories=())
        for entry in row["checkpoints"]:
            blocks, gated = entry["method"] == "block-fp8", entry.get("gated", False)
            lines.append(_Line(entry["repository"], entry["format"], shape, blocks, gated))
    for shape in _table().shapes:
        if shape.model not in entries.model_shelf().by_name:
            raise DataError(f"{WHERE}: no model '{shape.model}' in the catalog")
        lines += [_Line(name, form, shape, shape.blocks) for name, form in _spread(shape)]
    listed = {plain(line.name): line for line in lines}
    if len(listed) < len(lines):
        twice = next(line.name for line in lines if listed[plain(line.name)] is not line)
        raise DataError(f"catalog: the repository '{twice}' is given twice")
    return {name.rpartition("/")[2]: line for name, line in reversed(listed.items())} | listed


def _spread(shape: _Shape) -> Iterator[tuple[str, str]]:
    """The names of a shape without braces, each with its format."""
    for written in shape.repositories:
        pattern, _, form = written.partition(" ")
        names = [""]
        for place, part in enumerate(re.split(r"\{([^{}]*)\}", pattern)):
            names = [
                name + word for name in names for word in (part.split(",") if place % 2 else [part])
            ]
        yield from ((name, form or "bf16") for name in names)


@cache
def _repository(line: _Line) -> Repository:
    shelf, shape = entries.model_shelf(), line.shape
    model = shelf.by_name[shape.model]
    if shape.repositories and not (
        shelf.find(line.name) == model and line.form in ("bf16", model.released)
    ):
        notes = f"Architecture of {model.name}."
        source = f"{line.name}: {_table().source}; {model.source}"
        model = replace(
            model,
            name=plain(line.name).rpartition("/")[2],
            notes=notes,
            source=source,
            date=_table().date,
        )
    context = shape.context or max(_named_context(line.name), model.max_context)
    model = replace(model, vocab=shape.vocab or model.vocab, max_context=context)
    if shape.text_only and not model.encoder_parameters and not model.reading:
        patterns = _table().encoders.items()
        millions = next((size for part, size in patterns if re.search(part, line.name)), 0)
        model = replace(model, encoder_parameters=millions * 1_000_000)
        model = model if millions else _read(model, "the weights of its encoder are left out")
    return Repository(
        name=line.name,
        model=replace(in_format(model, line.form, line.blocks), repository=line.name),
        gated=line.gated,
    )


def in_format(model: Model, form: str, blocks: bool) -> Model:
    """The model as published in a number format; ``blocks`` says that its FP8 has a scale for each
    block of 128 × 128.
    """
    return replace(model, released=form, block_fp8=blocks if form == "fp8" else model.block_fp8)


def listed_repositories() -> tuple[str, ...]:
    """The name of every repository that is known. Raises DataErrors: a data file is damaged."""
    return tuple({line.name: None for line in _listed().values()})


def find_repository(spelling: str) -> Repository | None:
    """The repository of that name, with or without its owner; None where it is in no table."""
    line = _listed().get(plain(spelling)) or _listed().get(plain(spelling).rpartition("/")[2])
    return None if line is None else _repository(line)


def by_format(spelling: str) -> Model | None:
    """The model whose name without the ending of a format is known, in that format; None where no
    ending is one.

    Raises InputError: the format is one that no engine here reads.
    """
    bare = KV_WORD.sub("", spelling)
    base, form = _without_format(bare)
    if not form:
        return None
    bases = (
        base,
        re.sub(r"[-_.](?:preview|experimental|exp|test)$", "", base, flags=re.IGNORECASE),
    )
    repository = next(filter(None, map(find_repository, bases)), None)
    model = repository.model if repository is not None else entries.model_shelf().find(base)
    model = model or by_words(base)
    if model is None:
        return None
    model = replace(
        in_format(model, form, model.block_fp8), repository=spelling if "/" in spelling else ""
    )
    how = f"format {form} by the ending of '{spelling}'"
    narrow = f"its KV cache counts in 16 bits unless the precision {form}+kv-fp8 is given"
    return _read(model, how if bare == spelling else f"{how}; {narrow}")


# Words of names that say the format of the KV cache
KV_WORD = re.compile(r"[-_.]kv(?:[-_]?cache)?[-_]?(?:fp|int)?[48]?(?=$|[-_.])", re.IGNORECASE)


def _without_format(spelling: str) -> tuple[str, str]:
    """A name without the endings that mark its number format, and that format; "" where there is
    none.
    """
    base, form = spelling.strip(), ""
    if match := re.search(r"[-_.]([a-z0-9_]+-)?(un|de)quanti[sz]ed$", base, re.IGNORECASE):
        # trained to be quantized, or taken back from that: its weights are in 16 bits
        return base[: match.start()], "bf16"
    for ending, reader in _table().foreign.items():
        if re.search(rf"(?:^|[-_.:/]){ending}(?:$|[-_.:/])", base, re.IGNORECASE):
            start = re.split(
                rf"[-_.:]{ending}(?:$|[-_.:/])", base, maxsplit=1, flags=re.IGNORECASE
            )[0].rpartition("/")[2]
            start = re.sub(r"[-_.:](?:\d+bits?|iq?\d\w*|q\d\w*)$", "", start, flags=re.IGNORECASE)
            raise InputError(
                f"model '{spelling}' is a checkpoint for {reader}, which is not sized; give the"
                f" original, such as '{start}'"
            )
    endings = [(ending, name) for name, marks in _table().formats.items() for ending in marks]
    for behind in ("$", "(?=[-_.])"):  # at the end, or else before a date or a release
        for ending, name in endings if not form else ():
            if match := re.search(rf"[-_.]{ending}{behind}", base, re.IGNORECASE):
                base, form = base[: match.start()] + base[match.end() :], form or name
    return base, form


def _named_context(spelling: str) -> int:
    """The tokens of a context that a name says, such as "128k" or "1M"; 0 where it says none."""
    match = CONTEXT.search(spelling)
    if match is None:
        return 0
    tokens = int(match[1] or match[2]) * (1000 if match[1] else 1_000_000)
    near = 2 ** round(math.log2(tokens))
    return int(near) if abs(near / tokens - 1) < ROUNDED else tokens


CONTEXT = re.compile(
    r"[-_.](?:(16|32|64|128|131|200|256|262|512|524|1024|1048)k|([1248])m)(?=$|[-_.])",
    re.IGNORECASE,
)
ROUNDED = 0.06  # by which a context's usual name differs from the power of two that it means

# Words of names that mark a number format
FORMAT = re.compile(
    r"w\d+a\d+\w*|\d+bits?|\d+bpw|(nv|mx)?fp[468]\w*|int[2-8]\w*|quanti[sz]ed|\dof\d|pruned\w+"
)


def by_words(spelling: str) -> Model | None:
    """The model whose family, version and size are words of a name, under that name and marked as a
    guess; None where none are.
    """
    words = _words(spelling)
    if any(
        FORMAT.fullmatch(word) for word in re.split(r"[-_.]", spelling.lower().rpartition("/")[2])
    ):
        return None  # in a format that is not known, and so not in 16 bits
    if {*words, *re.split(r"[-_.]", spelling.lower().rpartition("/")[2])} & set(_table().others):
        return None
    fits = [
        (len(family_words), model)
        for family_words, model in _families()
        if _holds(words, family_words)
    ]
    if not fits:
        return None
    model = max(fits, key=lambda fit: fit[0])[1]
    guess = f"'{spelling}' is taken for a fine-tune of {model.name} by its name alone"
    context = _named_context(spelling)
    if context > model.max_context:
        guess += f", with a context of {context:,} tokens"
    return _read(
        replace(
            model,
            max_context=max(context, model.max_context),
            name=plain(spelling).rpartition("/")[2],
            repository=spelling if "/" in spelling else "",
        ),
        guess,
    )


def _read(model: Model, how: str) -> Model:
    """The model, with how its name was read."""
    return replace(model, reading=f"{model.reading}; {how}" if model.reading else how)


@cache
def _families() -> tuple[tuple[tuple[str, ...], Model], ...]:
    """The words of every known name that begins with a family and has a size, with its model."""
    shelf = entries.model_shelf()
    names = {shelf.level(name): line.shape.model for name, line in _listed().items()}
    spread = {
        _words(name): model
        for name, model in (
            names | {name: model.name for name, model in shelf.by_spelling.items()}
        ).items()
    }
    named = ((words, shelf.by_name[name]) for words, name in spread.items())
    return tuple((words, model) for words, model in named if _names_a_family(words))


def _names_a_family(words: tuple[str, ...]) -> bool:
    if not any(map(_SIZE.fullmatch, words)):
        return False
    return words[0] in _table().families or (
        words[0] in _table().versions and words[1][0].isdigit() and not _SIZE.fullmatch(words[1])
    )


_SIZE = re.compile(r"\d+(?:\.\d+)?[bm]|\d+x\d+b")


def _words(spelling: str) -> tuple[str, ...]:
    """The words and numbers of a name behind its owner: "Llama3.1-8B" is "llama", "3.1", "8b"."""
    bare = re.sub(r"(?<=\d)_(?=\d)", ".", spelling.lower().rpartition("/")[2]).removeprefix("meta-")
    return tuple(re.findall(r"\d+x\d+b|\d+(?:\.\d+)*[a-z]*|[a-z]+", bare)) or ("",)


def _holds(words: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Whether a name holds all words of a known one in their order, its first size among them, and
    no other version of its family.
    """
    if name[0] not in words:
        return False
    rest = words[words.index(name[0]) :]
    if rest[1:2] and rest[1][0].isdigit() and rest[1:2] != name[1:2]:
        return False
    if next(filter(_SIZE.fullmatch, rest), "") != next(filter(_SIZE.fullmatch, name)):
        return False
    if any(word.endswith("b") and _SIZE.fullmatch(word) and word not in name for word in words):
        return False  # pruned or merged: another size than the known one
    further = iter(rest)
    return all(word in further for word in name)
