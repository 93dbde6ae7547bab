"""Tonnage: how many GPU systems LLM traffic needs at a latency, with evidence.

``size``, ``simulate``, ``score`` and ``calibrate`` do what the commands of the same names do;
``Plan`` is what ``size`` returns. They load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.version import VERSION as __version__

if TYPE_CHECKING:
    from tonnage.api.evidence import calibrate, score
    from tonnage.api.simulation import simulate
    from tonnage.api.sizing import size
    from tonnage.plan.plan import Plan

__all__ = ["Plan", "__version__", "calibrate", "score", "simulate", "size"]


def __getattr__(name: str) -> object:
    if name == "Plan":
        from tonnage.plan.plan import Plan

        return Plan
    if name in __all__:
        from tonnage import api

        return getattr(api, name)
    raise AttributeError(f"module 'tonnage' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
