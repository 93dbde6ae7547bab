"""What the prefix caches of a plan do, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, percent
from tonnage.report.wording.routers import NAMES

if TYPE_CHECKING:
    from tonnage.plan.prefix_cache import PrefixCache


def prefix_cache_text(found: PrefixCache | None, systems: int) -> str:
    """Such as "62 % of prompt tokens come from the cache behind session; behind random choice 31 %; without it 5 systems in place of 3".

    Args:
        found: of a plan; None gives "".
        systems: of the plan.
    """
    if found is None:
        return ""
    shown = ""
    if found.instances > 1:
        some = found.simulated_instances < found.instances
        shown = f" behind {_named(found.router)}" + (
            f" ({found.simulated_instances} of {found.instances} instances simulated)" if some else ""
        )
    said = [f"{percent(found.hit_rate)} of prompt tokens come from the cache{shown}"]
    if found.other_hit_rate is not None:
        said.append(f"behind {_named(found.other_router)} {percent(found.other_hit_rate)}")
    return "; ".join([*said, _without(found, systems)])


def _named(router: str) -> str:
    return NAMES.get(router, router)


def _without(found: PrefixCache, systems: int) -> str:
    if found.without_systems is None:
        return "without it no number of systems of this deployment would hold the limits"
    if found.without_systems == systems:
        return f"without it as many, {counted(systems, 'system')}"
    return f"without it {counted(found.without_systems, 'system')} of this deployment in place of {systems}"
