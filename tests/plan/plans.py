"""Any plan at all: values for every field of every class of a plan, from their annotations."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from tonnage.plan.limit import Load
from tonnage.plan.mixed import Mixed
from tonnage.plan.plan import Measured, Plan
from tonnage.spec.scenario import Scenario
from tonnage.spec.scenario_file import scenario_of

NUMBERS = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)
TEXTS = st.text(alphabet='abcxyz µ≤é"\\\n', max_size=6)
ASKED = (
    {
        "model": "llama-3.1-8b",
        "lengths": {"isl": 2000, "osl": "200+-50"},
        "demand": {"peak_rps": 12.5},
    },
    {
        "model": ["a", "b"],
        "limits": {"ttft": ["p95<=1s", "mean<=300ms"]},
        "prices": {"systems": {"dgx-h100": 250000}},
        "seed": 3,
    },
)

LOADS = (
    Load(kind="open", requests_per_second=2.5, process="gamma", cv=3.0),
    Load(kind="open", requests_per_second=2.5, measured=True),
    Load(kind="closed", clients=1.0, measured=True),
    Load(kind="closed", clients=250.0),
)


Strategies = Mapping[Any, st.SearchStrategy[Any]]

SIMPLE: Strategies = {
    Scenario: st.sampled_from([scenario_of(document, {}) for document in ASKED]),
    Measured: st.none(),
    Mixed: st.none(),
    Load: st.sampled_from(LOADS),
    Any: st.one_of(TEXTS, st.integers(0, 9), st.booleans()),
    float: NUMBERS,
    int: st.integers(-(10**9), 10**9),
    str: TEXTS,
    bool: st.booleans(),
    type(None): st.none(),
}


def any_of(kind: Any, own: Strategies = {}) -> st.SearchStrategy[Any]:  # noqa: B006
    """Values of an annotation; those of the types that a test has its own for are drawn from
    these."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return any_of(arguments[0], own)
    if origin in (Union, types.UnionType):
        return st.one_of(*(any_of(each, own) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        each = [any_of(one, own) for one in arguments if one is not ...]
        return (
            st.lists(each[0], max_size=2).map(tuple) if arguments[-1] is ... else st.tuples(*each)
        )
    if origin is dict:
        return st.dictionaries(TEXTS, any_of(arguments[1], own), max_size=2)
    found = own.get(kind, SIMPLE.get(kind))
    return filled(kind, own) if found is None else found


def filled(
    kind: type, own: Strategies | None = None, **fixed: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    """Objects of a class with any values."""
    hints = get_type_hints(kind, include_extras=True)
    parts = {
        part.name: fixed[part.name] if part.name in fixed else any_of(hints[part.name], own or {})
        for part in fields(kind)
    }
    return st.fixed_dictionaries(parts).map(lambda values: kind(**values))


PLAIN = filled(Plan)
PLANS: st.SearchStrategy[Plan] = st.one_of(
    PLAIN,
    filled(Plan, measured=filled(Measured, plan=PLAIN)),
    filled(Plan, mixed=filled(Mixed), candidates=st.just(()), curve=st.just(())),
)
