"""Several values of what one simulation takes one of: each combination is a point, a simulation by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

from tonnage.api.question.arguments import (
    ScenarioLike,
    document_of,
    lengths_of,
    listed,
    plain,
    whole_numbers,
)
from tonnage.api.question.deployment import router_of
from tonnage.api.question.simulation import OWN, Simulation, simulation_of
from tonnage.errors import InputError, option
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.precision import find_precision
from tonnage.spec.scenario import SWEPT, flat, to_document

MOST_POINTS = 1_000
LOADS = ("concurrency", "request_rate")  # swept by the loads of each simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulations:
    """The points of a sweep, or the one simulation where nothing but the load is swept."""

    # what was set, by the names of arguments, and the question
    points: tuple[tuple[Mapping[str, str], Simulation], ...]
    # combinations that cannot be simulated, with the reason
    left_out: tuple[tuple[Mapping[str, str], InputError], ...] = ()


def simulations_of(scenario: ScenarioLike, arguments: Mapping[str, object]) -> Simulations:
    """Understand a question as one simulation for each combination of the values that it has
    several of.

    Raises InputErrors: a value that cannot be used, no combination that can, or more than
    ``MOST_POINTS``.
    """
    axes = _axes(scenario, arguments)
    if not axes:
        return Simulations(points=(({}, simulation_of(scenario, arguments)),))
    if (count := prod(map(len, axes.values()))) > MOST_POINTS:
        raise InputError(
            f"{', '.join(map(option, axes))}: {count:,} points are more than {MOST_POINTS:,}; take"
            f" fewer values, or {option('grid')}"
        )
    points, left_out = [], []
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        try:
            points.append((settings, simulation_of(scenario, {**arguments, **settings})))
        except InputError as error:
            left_out.append((settings, error))
    if not points:
        raise left_out[0][1]
    return Simulations(points=tuple(points), left_out=tuple(left_out))


def _axes(scenario: ScenarioLike, arguments: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The values of every setting that has several. Raises InputError: one of several is no such
    value by itself.
    """
    from tonnage.spec.scenario_file import displaced, scenario_of

    document, source = document_of(scenario)
    beside = plain(arguments)
    run_arguments = {name: beside.pop(name) for name in OWN if name in beside}
    leaf_values = {
        **flat(to_document(scenario_of(displaced(document, beside), beside, source))),
        **run_arguments,
    }
    axes = {
        name: _values(name, leaf_values[name])
        for name in SWEPT
        if name not in LOADS and leaf_values.get(name) is not None
    }
    axes = {name: values for name, values in axes.items() if len(values) > 1}
    for name, values in axes.items():
        for value in values:
            READERS[name](value)
    return axes


def _values(name: str, value: Any) -> tuple[str, ...]:
    """The values of a setting one by one; of lengths, one where the commas are those of a
    distribution or of thousands.
    """
    if name in ("isl", "osl"):
        try:
            lengths_of(value, option(name))
        except InputError:
            parts = listed(value, option(name))
            return parts if len(parts) > 1 else (value,)
        return (value,)
    return listed(value, option(name)) if isinstance(value, str | list | tuple) else (value,)


def _group(text: str) -> None:
    """A number of instances, or groups of unlike ones, which their simulation reads."""
    if "=" not in text:
        whole_numbers(text, option("instances"))


READERS: Mapping[str, Callable[[str], object]] = {
    "model": find_model,
    "gpu": find_gpu,
    "precision": find_precision,
    "engine": find_engine,
    "router": lambda text: router_of(text, by_content=True),
    "instances": _group,
    **{name: partial(lengths_of, where=option(name)) for name in ("isl", "osl")},
    **{name: partial(whole_numbers, where=option(name)) for name in ("tp", "pp", "dp", "ep")},
}
"""What refuses a value that is none, before any point is made."""
