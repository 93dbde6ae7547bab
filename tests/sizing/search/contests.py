"""Contests of deployments that are as sure as is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.sizing.search.contenders import (
    IDENTITY,
    TTFT,
    Carrying,
    asked_for,
    ready_of,
)
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.reason import Behind
from tonnage.sizing.loads.confidence import Slowdown
from tonnage.sizing.progress import Steps
from tonnage.sizing.search.search import (
    Contest,
    Search,
)


@dataclass(frozen=True, kw_only=True)
class Sure(Carrying):
    """A deployment whose steps take half as long again at any confidence."""

    busy: float = 8.0

    def slowdown(self, level: float) -> Any:
        return Slowdown(steps=1.5)

    def saturation(self, slowdown: Any = None) -> float:
        return self.busy

    def alone_at(self, slowdown: Any) -> Breach:
        return Breach(limit=limit_of(TTFT), value_ms=1e3 * slowdown.steps)


def sure(load: float = 400.0, place: int = 0, gpus: int = 2, **changed: Any) -> Sure:
    busy = changed.pop("busy_share", 0.0)
    ready = ready_of(
        gpus,
        place=place,
        front_end_busy=lambda rate: busy,
        saturation_estimate=lambda: 6.0,
        alone_e2e_s=0.5,
    )
    parts: dict[str, Any] = {"question": asked_for(load), "ready": ready, "runs": None}
    return Sure(**parts | changed)


def contest(*outcomes: Any, level: float | None = None, **changed: Any) -> Contest:
    parts: dict[str, Any] = {
        "question": asked_for(400.0),
        "runs": None,
        "steps": Steps(),
        "workers": 1,
    }
    search = Search(**parts | changed)
    return Contest(
        search=search,
        level=level,
        outcomes={outcome.ready.place: outcome for outcome in outcomes},
    )


def breach(metric: str = "ttft", value_ms: float = 3_000.0) -> Breach:
    return Breach(limit=limit_of(replace(TTFT, metric=metric)), value_ms=value_ms)


def behind(rate: float = 3.0, **changed: Any) -> Behind:
    return Behind(
        breach=breach(**changed), requests_per_second=rate, per_gpu=rate / 2, other=IDENTITY
    )
