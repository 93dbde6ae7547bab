"""Instances, systems and GPUs: how many instances whole systems hold, and how many systems a load needs. The one rule for that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Whole systems, fully populated with instances of one deployment.

    An instance that is wider than a system takes whole systems.

    Attributes:
        systems: how many.
        gpus_per_instance, gpus_per_system: whole GPUs.
    """

    systems: int
    gpus_per_instance: int
    gpus_per_system: int

    @property
    def instances_per_system(self) -> int:
        """Instances that share one system; 1 where an instance spans several."""
        return max(1, self.gpus_per_system // self.gpus_per_instance)

    @property
    def systems_per_instance(self) -> int:
        """Systems that one instance spans; 1 where several instances share one."""
        return math.ceil(self.gpus_per_instance / self.gpus_per_system)

    @property
    def instances(self) -> int:
        """Instances on all of the systems."""
        return self.systems // self.systems_per_instance * self.instances_per_system

    @property
    def gpus(self) -> int:
        """GPUs of all of the systems."""
        return self.systems * self.gpus_per_system

    def of(self, systems: int) -> Fleet:
        """The same deployment on another number of systems."""
        return replace(self, systems=systems)

    def holding(self, instances: int) -> Fleet:
        """The fewest whole systems that hold so many instances."""
        return self.of(-(-instances // self.instances_per_system) * self.systems_per_instance)

    def carrying(self, load: float, per_instance: float) -> Fleet:
        """The fewest whole systems, at least those of one instance, that carry a load; what divides evenly is not rounded up.

        Args:
            load: requests per second in all.
            per_instance: requests per second that one instance carries.
        """
        groups = max(1, math.ceil(round(load / (per_instance * self.instances_per_system), 9)))
        return self.of(groups * self.systems_per_instance)

    def exactly(self, load: float, per_instance: float) -> float:
        """The systems that a load takes, before rounding up."""
        return load / per_instance / self.instances_per_system * self.systems_per_instance

    def utilisation(self, load: float, per_instance: float) -> float:
        """A load over what all instances carry."""
        return load / (per_instance * self.instances)


def fleet(gpus_per_instance: int, gpus_per_system: int, systems: int = 0) -> Fleet:
    """So many systems, of which each instance takes ``gpus_per_instance`` GPUs."""
    return Fleet(systems=systems, gpus_per_instance=gpus_per_instance, gpus_per_system=gpus_per_system)
