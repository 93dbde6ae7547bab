"""Kubernetes objects against what declares them: the fields in ``objects.yaml``, and Kubernetes' own schema where it is installed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.typed_values import read_entries, strict

Object = Mapping[str, Any]

HEAD = ("apiVersion", "kind", "metadata")
"""Keys of every object."""

INSTALL = "pip install kubernetes-validate"
"""108 MB, and therefore no dependency."""

KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "bool": bool, "number": (int, float)}


@strict
class Declared:
    """The fields of one kind of object.

    Attributes:
        kind, api: of the object.
        licence, source, date: of the types that declare the fields, and when they were read.
        fields: kinds by name; ``objects.yaml`` explains them.
    """

    kind: str
    api: str
    licence: str
    source: str
    date: str
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        """Of an entry: its kind."""
        return self.kind


@cache
def _declared() -> Mapping[tuple[str, str], Declared]:
    return {(one.kind, one.api): one for one in read_entries(Declared, shipped_yaml("objects.yaml"), "catalog/objects.yaml")}


def read_against(made: Object) -> tuple[str, list[str]]:
    """The source that an object was read against, or why there is none; and a clause for each fault, its place first."""
    found = _declared().get((str(made["kind"]), str(made["apiVersion"])))
    if found is not None:
        fields = {key: value for key, value in made.items() if key not in HEAD}
        return f"{found.source} ({found.licence}, {found.date})", list(_faults(fields, found.fields, ""))
    whole = _kubernetes(made)
    if whole is not None:
        return f"Kubernetes {_version()}", whole
    return (f"not read: {INSTALL}" if _version() == "" else "not read: no schema of it is known"), []


def _faults(value: Any, kind: Any, at: str) -> Iterator[str]:
    if isinstance(kind, str):
        yield from _of_name(value, kind, at)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{at} must be a list"
            return
        for place, part in enumerate(value):
            yield from _faults(part, kind[0], f"{at}[{place}]")
    elif not isinstance(value, Mapping):
        yield f"{at} must be a mapping with {', '.join(name.removesuffix('!') for name in kind)}"
    else:
        yield from _of_mapping(value, kind, f"{at}." if at else "")


def _of_mapping(value: Object, kind: Mapping[str, Any], at: str) -> Iterator[str]:
    known = {name.removesuffix("!"): part for name, part in kind.items() if name != "<"}
    others = {name: part for name, part in value.items() if name not in known}
    if "<" in kind:
        yield from _of_name(others, kind["<"], at.removesuffix("."))
    else:
        for name in others:
            near = difflib.get_close_matches(str(name), known, n=1)
            yield f"{at}{name} is no field; {f'did you mean {near[0]}' if near else 'there are ' + ', '.join(known)}"
    yield from (f"{at}{name[:-1]} is missing" for name in kind if name.endswith("!") and name[:-1] not in value)
    for name, part in value.items():
        if name in known:
            yield from _faults(part, known[name], f"{at}{name}")


def _of_name(value: Any, kind: str, at: str) -> Iterator[str]:
    if kind.startswith("one of "):
        allowed = kind.removeprefix("one of ").split()
        if value not in allowed:
            yield f"{at} must be one of {', '.join(allowed)}, not {value}"
    elif kind == "map":
        if not isinstance(value, Mapping) or not all(isinstance(part, str) for part in value.values()):
            yield f"{at} must hold texts by name"
    elif kind in KINDS:
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            yield f"{at} must be of kind {kind}, not {value!r}"
    elif kind != "any":
        depth, wrapped = WRAPPED[kind](value)
        for told in _kubernetes(wrapped, depth=depth) or ():
            yield f"{at}.{told}"


# Types of Kubernetes itself, each inside the smallest object that holds one.


def _inside(api: str, kind: str, *path: str, **further: Any) -> Callable[[Any], tuple[int, Object]]:
    """Puts a value at the path; ``further`` are other keys at its place, which the object needs."""

    def wrapped(value: Any) -> tuple[int, Object]:
        for name in reversed(path):
            value = {name: value, **(further if name == path[-1] else {})}
        return len(path), {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, **value}

    return wrapped


WRAPPED = {
    "PodSpec": _inside("v1", "Pod", "spec"),
    "PodTemplateSpec": _inside("v1", "PodTemplate", "template"),
    "LabelSelector": _inside("policy/v1", "PodDisruptionBudget", "spec", "selector"),
    "HorizontalPodAutoscalerBehavior": _inside(
        "autoscaling/v2", "HorizontalPodAutoscaler", "spec", "behavior", scaleTargetRef={"kind": "Deployment", "name": "x"}, maxReplicas=1
    ),
}
"""By name: how deep it is inside, and the object."""


@cache
def _version() -> str:
    """The newest version of Kubernetes whose schema is installed; empty where none is."""
    try:
        import kubernetes_validate
    except ImportError:
        return ""
    return str(kubernetes_validate.latest_version())


def _kubernetes(made: Object, *, depth: int = 0) -> list[str] | None:
    """Faults of an object by Kubernetes' schema, ``depth`` levels left out of their places; None where it has none for this kind."""
    if not _version():
        return None
    import kubernetes_validate

    try:
        kubernetes_validate.validate(dict(made), _version(), strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return None
    except kubernetes_validate.ValidationError as fault:
        place = ".".join(map(str, list(fault.absolute_path)[depth:]))
        return [f"{place}: {fault.message}" if place else str(fault.message)]
    return []
