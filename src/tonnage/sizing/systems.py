"""How many systems a load needs: the one rule for predicted and measured capacities."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many systems a load needs: the one rule for predicted and measured capacities.

    Attributes:
        instances, systems: whole, spare systems included.
        systems_exact: load over what one system carries, without spare.
        utilisation: load over what all systems carry inside the limits.
    """

    instances: int
    systems: int
    systems_exact: float
    utilisation: float


def fleet(peak: float, rate_per_instance: float, gpus_per_instance: int, gpus_per_system: int, spare: int) -> Fleet:
    """Systems for ``peak`` requests/s: "instances × TP = GPUs of the system", fully populated.

    An instance wider than a system takes whole systems.
    """
    each, span = instances_per_system(gpus_per_instance, gpus_per_system)
    exact = peak / rate_per_instance / each * span
    systems = max(1, math.ceil(round(peak / (rate_per_instance * each), 9))) * span + spare
    return fleet_of(
        systems, exact, peak, rate_per_instance=rate_per_instance, gpus_per_instance=gpus_per_instance, gpus_per_system=gpus_per_system
    )


def fleet_of(systems: int, exact: float, peak: float, *, rate_per_instance: float, gpus_per_instance: int, gpus_per_system: int) -> Fleet:
    """A number of systems that was decided elsewhere, fully populated."""
    each, span = instances_per_system(gpus_per_instance, gpus_per_system)
    instances = systems // span * each
    return Fleet(instances=instances, systems=systems, systems_exact=exact, utilisation=peak / (rate_per_instance * instances))


def instances_per_system(gpus_per_instance: int, gpus_per_system: int) -> tuple[int, int]:
    """Instances in a system, and systems that one instance spans; one of the two is 1."""
    if gpus_per_instance <= gpus_per_system:
        return gpus_per_system // gpus_per_instance, 1
    return 1, math.ceil(gpus_per_instance / gpus_per_system)
