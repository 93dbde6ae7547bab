"""What a prefix cache finds of the prompts of a plan, and what the answer would be without it."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCache:
    """The choice with its prefix caches, at the asked peak.

    Attributes:
        shares: what prompts share, in words.
        hit_rate: share of the prompt tokens that come from the caches of the fleet, behind the router of the plan.
        router: that router, a name of ``simulator.router``.
        shared_out_as: the router by whose rule requests were shared out in the simulation: it finds as much of the prompts, or less.
        instances: how many serve.
        simulated_instances: how many of them were simulated for the hit rate, with their share of the load.
        one_instance: the share of one instance by itself, at the highest load inside the limits.
        other_router: one that treats conversations and prompts the other way; "" where there is one instance, or it makes no difference.
        other_hit_rate: the hit rate behind it; None where there is none.
        without_systems: systems, spare ones included, that the same deployment would take without a prefix cache; None where no number
            would do.
        without_requests_per_second_per_instance: what an instance would carry without it; None where no load is inside the limits.
    """

    __pydantic_config__ = FORBID

    shares: str
    hit_rate: float
    router: str
    shared_out_as: str
    instances: int
    simulated_instances: int
    one_instance: float
    other_router: str = ""
    other_hit_rate: float | None = None
    without_systems: int | None = None
    without_requests_per_second_per_instance: float | None = None
