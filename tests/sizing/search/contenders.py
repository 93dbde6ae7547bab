"""Deployments whose capacities are given, so that what a search makes of them is known."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.plan.candidates import candidate
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.reason import BrokenEarly
from tonnage.sizing.loads.capacity import Capacity
from tonnage.sizing.loads.instance import QUICK, SURE, Care
from tonnage.sizing.search.deployment_capacity import Contender, Sized
from tonnage.sizing.search.disaggregated import PooledContender
from tonnage.spec.deployment import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

TTFT = Limit(metric="ttft", statistic="p95", seconds=2.0)
TPOT = Limit(metric="tpot", statistic="mean", seconds=0.5)
IDENTITY = candidate().identity


def capacity_of(rate: float, **changed: Any) -> Capacity:
    parts: dict[str, Any] = {"concurrency": 3.0, "summary": None, "binds": None, "reason": None}
    return Capacity(rate=rate, **parts | changed)


def early(rate: float) -> BrokenEarly:
    """A limit that breaks at a load by a half."""
    return BrokenEarly(
        breach=Breach(limit=limit_of(TTFT), value_ms=3_000.0),
        requests_per_second=rate,
        share_of_saturation=0.5,
    )


def asked_for(rps: float, **changed: Any) -> Any:
    """A question for so many requests per second."""
    parts = {
        "demand": SimpleNamespace(sizing_requests_per_second=rps),
        "limits": (TTFT, TPOT),
        "slo": (TTFT, TPOT),
        "step_factor": 1.0,
        "spare": 0,
        "recording": None,
        "offline": False,
        "load": "open",
        "confidence": 0.8,
        "pools": None,
        "drawn": True,
        "tune": True,
        "free_moves": ("tokens", "batch"),
        "objective": "gpus",
    }
    parts |= changed
    return make_dataclass("Asked", parts, eq=False)(**parts)


def ready_of(gpus: int = 2, system_gpus: int = 8, place: int = 0, **instance: Any) -> Any:
    """A deployment of so many GPUs an instance."""
    deployment = SimpleNamespace(
        parallelism=SimpleNamespace(gpus=gpus, dp=1, pp=1, tp=gpus),
        gpu=SimpleNamespace(name="gpu"),
        precision=SimpleNamespace(name="fp8"),
    )
    trial = SimpleNamespace(
        deployment=Hashed(**vars(deployment)),
        system=SimpleNamespace(gpus=system_gpus, name="system"),
        identity=IDENTITY,
        name="deployment",
        rejected=lambda reason: ("rejected", reason),
    )
    return SimpleNamespace(trial=trial, instance=SimpleNamespace(**instance), place=place)


class Hashed(SimpleNamespace):
    """Names with values that can be a key."""

    __hash__ = object.__hash__


@dataclass(frozen=True, kw_only=True)
class Carrying(Contender):
    """A deployment whose instances carry ``carries`` of their number each, in short runs ``quick``
    times as much, and by closed forms 10 at most.
    """

    carries: Callable[[int], float] = lambda instances: 5.0
    quick: float = 1.0
    most: float = 10.0
    calls: list[tuple[int, Care]] = field(default_factory=list)

    def bound(self, slowdown: Any) -> float:
        """What closed forms allow."""
        return self.most / slowdown.steps

    def capacity(
        self,
        instances: int,
        slowdown: Any = None,
        *,
        above: float = 0.0,
        care: Care = SURE,
        router: str = "",
        near: float = 0.0,
    ) -> Capacity:
        """Look up what is given."""
        self.calls.append((instances, care))
        rate = self.carries(instances) * (self.quick if care == QUICK else 1.0)
        return capacity_of(rate) if rate > above else capacity_of(0.0, reason=early(above))


@dataclass(frozen=True, kw_only=True)
class CarryingInPools(PooledContender, Carrying):
    """The same of two pools."""

    capacity = Carrying.capacity
    bound = Carrying.bound


def carrying(load: float, gpus: int = 2, **changed: Any) -> Carrying:
    parts: dict[str, Any] = {
        "question": asked_for(load),
        "ready": ready_of(gpus),
        "runs": None,
    }
    return Carrying(**parts | changed)


def sized_of(contender: Contender, systems: int, rate: float, **changed: Any) -> Sized:
    parts: dict[str, Any] = {"level": 0.8}
    return Sized(
        contender=contender, systems=systems, capacity=capacity_of(rate), **parts | changed
    )
