"""Any plan at all: values for every field of every class of a plan, from their annotations."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from tonnage.plan.limit import Load
from tonnage.plan.plan import Measured, Plan
from tonnage.spec.scenario import Scenario
from tonnage.spec.scenario_file import scenario_of

NUMBERS = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)
TEXTS = st.text(alphabet='abcxyz µ≤é"\\\n', max_size=6)
ASKED = (
    {"model": "llama-3.1-8b", "lengths": {"isl": 2000, "osl": "200+-50"}, "demand": {"peak_rps": 12.5}},
    {"model": ["a", "b"], "limits": {"ttft": ["p95<=1s", "mean<=300ms"]}, "prices": {"systems": {"dgx-h100": 250000}}, "seed": 3},
)

LOADS = (
    Load(kind="open", requests_per_second=2.5, process="gamma", cv=3.0),
    Load(kind="open", requests_per_second=2.5, measured=True),
    Load(kind="closed", clients=1.0, measured=True),
    Load(kind="closed", clients=250.0),
)


def any_of(kind: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one return for each kind of annotation
    """Values of an annotation."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return any_of(arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*(any_of(each) for each in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(any_of(arguments[0]), max_size=2).map(tuple) if arguments[-1] is ... else st.tuples(*map(any_of, arguments))
    if origin is dict:
        return st.dictionaries(TEXTS, any_of(arguments[1]), max_size=2)
    if kind is Scenario:
        return st.sampled_from([scenario_of(document, {}) for document in ASKED])
    if kind is Measured:
        return st.none()
    if kind is Load:
        return st.sampled_from(LOADS)
    if is_dataclass(kind) and isinstance(kind, type):
        return filled(kind)
    simple = {
        Any: st.one_of(TEXTS, st.integers(0, 9), st.booleans()),
        float: NUMBERS,
        int: st.integers(-(10**9), 10**9),
        str: TEXTS,
        bool: st.booleans(),
        type(None): st.none(),
    }
    return simple[kind]


def filled(kind: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of a class with any values."""
    hints = get_type_hints(kind, include_extras=True)
    parts = {part.name: fixed[part.name] if part.name in fixed else any_of(hints[part.name]) for part in fields(kind)}
    return st.fixed_dictionaries(parts).map(lambda values: kind(**values))


PLAIN = filled(Plan)
PLANS: st.SearchStrategy[Plan] = st.one_of(PLAIN, filled(Plan, measured=filled(Measured, plan=PLAIN)))
