"""A deployment to try, and one that fits and is ready to be put under load."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.plan.pool import Identity
from tonnage.plan.reason import Reason, Rejected, rejected
from tonnage.sizing.loads.instance import Instance
from tonnage.spec.deployment import Deployment
from tonnage.spec.hardware import System


def runs_on(deployment: Deployment) -> str:
    """The engine with its version, and its speculative decoding, such as "vllm-0.32 + eagle k=3"."""
    asked = deployment.speculation
    return deployment.engine + (f" + {asked.label}" if asked is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One deployment to try, and the system that it would be bought in."""

    deployment: Deployment
    system: System

    @property
    def name(self) -> str:
        """Such as "h100-sxm-80gb fp8 TP 4 tensorrt-llm-1.2"."""
        d = self.deployment
        p = d.parallelism
        return f"{d.gpu.name} {d.precision.name} {p} {runs_on(d)}"

    @property
    def identity(self) -> Identity:
        """What the plan calls it."""
        d = self.deployment
        p = d.parallelism
        split = {"tp": p.tp, "pp": p.pp, "dp": p.dp, "ep": p.ep}
        return Identity(gpu=d.gpu.name, precision=d.precision.name, **split, engine=runs_on(d), engine_preset=d.engine)

    def rejected(self, reason: Reason) -> Rejected:
        """This trial, with why it cannot be."""
        return rejected(self.identity, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A trial that fits, with its step model.

    Attributes:
        trial: as it is now: its knobs may have been tuned.
        instance: it, with its step model and memory.
        place: among all trials.
        first: the trial as the search began with it.
    """

    trial: Trial
    instance: Instance
    place: int
    first: Trial
