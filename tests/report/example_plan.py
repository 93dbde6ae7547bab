"""The plan that the report's tests write and draw: a real one in shape, with round figures."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from tonnage.plan.plan import Plan
from tonnage.report.document import Document
from tonnage.report.plans.plan_document import report
from tonnage.spec.scenario import Scenario

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x"
    " onerror=\"document.title='owned'\">'\"&|`*_"
)


@cache
def full() -> Plan:
    """A plan with every part."""
    return Plan.from_json(json.loads((HERE / "plan.json").read_text(encoding="utf-8")))


def bare() -> Plan:
    """The same answer with nothing beside it: no curve, no cost, no fleet check, nothing
    measured."""
    found = full()
    bare_demand = replace(found.demand, profile=None)
    return Plan(
        scenario=found.scenario,
        demand=replace(
            bare_demand,
            source=replace(
                found.demand.source, kind="peak", requests_per_second=826.8, profile_hours=None
            ),
        ),
        candidates=tuple(
            replace(c, pools=(replace(c.pool, memory=(), kv_tokens=None),))
            for c in found.candidates
        ),
        rejected=found.rejected,
        notes=(),
        provenance=found.provenance,
    )


def without_answer() -> Plan:
    """The same question where nothing meets the limits."""
    return replace(bare(), candidates=())


def hostile() -> Plan:
    """The same plan with every text that is free a script."""
    found: Plan = _poisoned(full(), Plan)
    return found


def documents() -> dict[str, Document]:
    """A report of each of them."""
    plans = {
        "full": full(),
        "bare": bare(),
        "without answer": without_answer(),
        "hostile": hostile(),
    }
    return {name: report(plan) for name, plan in plans.items()}


def _poisoned(value: Any, kind: Any) -> Any:
    """A value of the plan with the script behind each text that a type leaves free."""
    if kind is str:
        return f"{value}{HOSTILE}"
    if get_origin(kind) is dict and get_args(kind) == (str, str):
        return {f"{key}{HOSTILE}": f"{text}{HOSTILE}" for key, text in value.items()}
    if isinstance(value, Scenario):
        return replace(value, title=HOSTILE)
    if is_dataclass(value) and not isinstance(value, type):
        kinds = get_type_hints(type(value))
        return replace(
            value,
            **{
                part.name: _poisoned(getattr(value, part.name), kinds[part.name])
                for part in fields(value)
            },
        )
    if isinstance(value, tuple):
        inner = str if str in get_args(kind) else None
        return tuple(_poisoned(each, inner) for each in value)
    return value
