"""Reads, checks and writes scenarios; every error is reported at once, each on its own line with
its place.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.recording import in_folder
from tonnage.spec.scenario import Leaf, Scenario, by_alias, leaves, takes, to_document
from tonnage.spec.typed_values import adapter, bounded, parse_yaml
from tonnage.spec.written_numbers import numbers_of


def read_document(path: str) -> dict[str, Any]:
    """The nested values of a YAML or JSON file, with paths of other files made to start where
    ``path`` does.

    Raises InputError: no such file, or one that does not hold a scenario.
    """
    if not os.path.exists(path) and not os.path.splitext(path)[1]:
        raise InputError(
            f"{path}: is no scenario file; write several values of one option with commas between,"
            f" such as h100,{path}"
        )
    document = parse_yaml(read_text(path, "scenario"), path)
    if not isinstance(document, dict):
        raise InputError(
            f"{path}: is not a scenario; write keys such as model:, lengths:, demand:, limits:"
            " (./tonnage schema)"
        )
    folder = os.path.dirname(path)
    for leaf in leaves():
        branch: Any = document
        for name in leaf.path[:-1]:
            branch = branch.get(name) if isinstance(branch, dict) else None
        value = _as_numbers(leaf, branch.get(leaf.name)) if isinstance(branch, dict) else None
        if isinstance(value, str) and (
            leaf.file or (leaf.name in ("isl", "osl") and value.endswith(".csv"))
        ):
            join = in_folder if leaf.name == "profile" else os.path.join
            branch[leaf.name] = join(folder, value)
    return document


def read_scenario(path: str) -> Scenario:
    """The scenario of a YAML or JSON file. Raises InputErrors: everything in it that cannot be
    used, each with its place.
    """
    return scenario_of(read_document(path), {}, path)


def scenario_of(
    document: Mapping[str, Any], arguments: Mapping[str, Any], source: str = ""
) -> Scenario:
    """A document with the values that were given by name in place of what it says.

    Raises InputErrors: everything that cannot be used: unknown keys and values of another kind,
    each by its place in the file or as an option.
    """
    from pydantic import ValidationError

    merged = bounded(_merged(document, arguments), source or "scenario")
    try:
        scenario: Scenario = adapter(Scenario).validate_python(_in_kind(merged))
    except ValidationError as error:
        places: dict[str, str] = {}
        for fault in error.errors(include_url=False):
            place, message = _fault(fault, merged, arguments, source)
            places.setdefault(place, message)
        raise InputErrors(places.values()) from None
    return scenario


def known_part(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without the keys that no scenario has, so that the rest of it can be looked at
    too.
    """
    tree: dict[str, Any] = {}
    for leaf in leaves():
        branch = tree
        for name in leaf.path[:-1]:
            branch = branch.setdefault(name, {})
        branch[leaf.path[-1]] = None
    return _pruned(document, tree)


def _pruned(values: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    pruned = {}
    for key, value in values.items():
        if key in tree:
            branch = tree[key]
            pruned[key] = (
                _pruned(value, branch)
                if branch is not None and isinstance(value, Mapping)
                else value
            )
    return pruned


def _merged(document: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    merged = {
        key: dict(value) if isinstance(value, dict) else value for key, value in document.items()
    }
    leaves_by_name = {leaf.name: leaf for leaf in leaves()}
    for leaf in leaves_by_name.values():
        holder = merged.get(leaf.path[0])
        for alias in leaf.aliases:
            if isinstance(holder, dict) and alias in holder:
                _put_once(holder, leaf.name, alias)
    for alias, value in arguments.items():
        if value is None:
            continue
        name = by_alias().get(alias, alias)
        if name != alias and arguments.get(name) is not None:
            raise InputError(
                f"{option(alias)} and {option(name)}: are the same setting; give one of them"
            )
        if name not in leaves_by_name:
            raise TypeError(f"no such argument: {name}")
        branch: Any = merged
        for part in leaves_by_name[name].path[:-1]:
            if branch.get(part) is None:
                branch[part] = {}
            branch = branch[part]
        if isinstance(branch, dict):
            branch[name] = list(value) if isinstance(value, tuple | set | frozenset) else value
    return merged


def _put_once(branch: dict[str, Any], name: str, alias: str) -> None:
    """Move a value from a key's alias to the key. Raises InputError: both are there."""
    if name in branch:
        raise InputError(f"{alias} and {name}: are the same setting; write one of them")
    branch[name] = branch.pop(alias)


def _as_numbers(leaf: Leaf, value: Any) -> Any:
    """The numbers that a text says where numbers are allowed; any other value as it is."""
    if not isinstance(value, str):
        return value
    parsed = numbers_of(value) if list[float] in get_args(leaf.kind) else leaf.read(value)
    return value if parsed is None else parsed


def _in_kind(document: dict[str, Any]) -> dict[str, Any]:
    """The document with numbers in place of texts that say them, and text in place of the booleans
    that YAML reads "yes" and "on" as.
    """
    converted = {
        key: dict(value) if isinstance(value, dict) else value for key, value in document.items()
    }
    for leaf in leaves():
        branch: Any = converted
        for name in leaf.path[:-1]:
            branch = branch.get(name) if isinstance(branch, dict) else None
        if (
            isinstance(branch, dict)
            and isinstance(branch.get(leaf.name), bool)
            and not takes(leaf.kind, bool)
        ):
            branch[leaf.name] = str(branch[leaf.name])
        elif isinstance(branch, dict) and isinstance(branch.get(leaf.name), str):
            branch[leaf.name] = _as_numbers(leaf, branch[leaf.name])
        elif isinstance(branch, dict) and leaf.path[:-1] and branch.get(leaf.name) is None:
            branch.pop(leaf.name, None)
    for part in fields(Scenario):
        if converted.get(part.name, 0) is None:
            converted.pop(part.name)
    return converted


def _fault(
    fault: Any, document: Mapping[str, Any], arguments: Mapping[str, Any], source: str
) -> tuple[str, str]:
    """The place of one of pydantic's errors, and one line on it."""
    place, branch, leaf = _place([str(part) for part in fault["loc"]])
    prefix = f"{source}: " if source else ""
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return place, f"{prefix}{place}: unknown key; {_nearest(place.rsplit('.', 1)[-1], branch)}"
    if leaf is None:
        keys = ", ".join(part.name for part in fields(branch))
        return (
            place,
            (
                f"{prefix}{place or 'scenario'}: holds keys of its own; write {place}: and below it"
                f" {keys}"
            ),
        )
    shown = _shown(document, leaf)
    where = option(leaf.name) if arguments.get(leaf.name) is not None else f"{prefix}{leaf.key}"
    return place, f"{where}: {shown} is not {_expected_kind(leaf.kind)}; {leaf.about}"


def _place(loc: list[str]) -> tuple[str, Any, Leaf | None]:
    """The path that exists in the tree, the branch that it ends in, and the leaf that it
    reaches.
    """
    by_path = {leaf.path: leaf for leaf in leaves()}
    branch: Any = Scenario
    for depth in range(1, len(loc) + 1):
        path = tuple(loc[:depth])
        if path in by_path:
            return by_path[path].key, branch, by_path[path]
        kind = get_type_hints(branch).get(loc[depth - 1])
        if not (isinstance(kind, type) and is_dataclass(kind)):
            return ".".join(path), branch, None
        branch = kind
    return ".".join(loc), branch, None


def _nearest(name: str, branch: Any) -> str:
    keys = [part.name for part in fields(branch)]
    near = difflib.get_close_matches(name.replace("-", "_").lower(), keys, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    elsewhere = [leaf.key for leaf in leaves() if leaf.name == name.replace("-", "_")]
    return f"it stands at {elsewhere[0]}" if elsewhere else f"known here: {', '.join(keys)}"


def _shown(document: Mapping[str, Any], leaf: Leaf) -> str:
    value: Any = document
    for name in leaf.path:
        value = value.get(name) if isinstance(value, Mapping) else None
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _expected_kind(kind: Any) -> str:
    choices = [
        str(value)
        for part in (kind, *get_args(kind))
        for value in get_args(part)
        if isinstance(value, str)
    ]
    if choices:
        return f"one of {', '.join(choices)}"
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "keys with values",
    }
    alternatives = [
        word
        for python_type, word in words.items()
        if python_type
        in (kind, *get_args(kind), *(getattr(k, "__origin__", 0) for k in get_args(kind)))
    ]
    return " or ".join(alternatives)


def to_yaml(scenario: Scenario) -> str:
    """The scenario as a file that reads back as the same."""
    import yaml

    return yaml.safe_dump(to_document(scenario), sort_keys=False, allow_unicode=True, width=120)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario, each key with what it says."""
    schema: dict[str, Any] = json.loads(json.dumps(adapter(Scenario).json_schema()))
    definitions = schema.get("$defs", {})
    hints = get_type_hints(Scenario)
    for leaf in leaves():
        holder = schema if len(leaf.path) == 1 else definitions[hints[leaf.path[0]].__name__]
        properties = holder["properties"]
        properties[leaf.name]["description"] = leaf.about
        if leaf.bounds is not None and leaf.number is not None:
            properties[leaf.name] |= leaf.bounds.json_schema()
        properties |= {
            alias: {**properties[leaf.name], "description": f"As {leaf.name}."}
            for alias in leaf.aliases
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


_JOB = ("requests", "within")
_USERS = ("users", "requests_per_user_day", "working_hours", "working_days")
_CALLS = ("calls_per_year", "requests_per_call")
_PEAK = ("peak_percentile", "peak_factor")
_SHAPE = ("profile", "trace")
DISPLACES: dict[str, tuple[str, ...]] = {
    "peak_rps": ("concurrency", "mean_rps", *_USERS, *_CALLS, *_PEAK, *_JOB, "trace"),
    "mean_rps": ("concurrency", "peak_rps", *_USERS, *_CALLS, *_JOB),
    "users": ("concurrency", "peak_rps", "mean_rps", *_CALLS, *_JOB, *_SHAPE),
    "calls_per_year": ("concurrency", "peak_rps", "mean_rps", *_USERS, *_JOB, "trace"),
    "concurrency": ("peak_rps", "mean_rps", *_USERS, *_CALLS, *_PEAK, *_JOB, *_SHAPE),
    "requests": ("concurrency", "peak_rps", "mean_rps", *_USERS, *_CALLS, *_PEAK, *_SHAPE),
    "profile": (*_USERS, *_JOB, "trace"),
    "trace": ("peak_rps", *_USERS, *_CALLS, *_PEAK, *_JOB, "profile"),
    "peak_percentile": ("peak_factor",),
    "peak_factor": ("peak_percentile",),
    "pairs": ("isl", "osl", "mixture"),
    "mixture": ("isl", "osl", "pairs"),
    "isl": ("pairs", "mixture"),
    "osl": ("pairs", "mixture"),
}
"""What a value given by name takes the place of in a file, next to the key of that name: the other
ways to say the same."""


def displaced(document: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The document without what the given values take the place of."""
    gone = {
        name
        for argument in arguments
        for name in DISPLACES.get(argument, ())
        if name not in arguments
    }
    places = {leaf.path for leaf in leaves() if leaf.name in gone}
    return {
        key: (
            {name: part for name, part in value.items() if (key, name) not in places}
            if isinstance(value, dict)
            else value
        )
        for key, value in document.items()
    }
