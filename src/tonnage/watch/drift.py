"""Changes since a plan was made: a history of its deployment next to the plan, the systems that it costs, and until when they last."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from tonnage.watch.expected import NEAR, Predictor
from tonnage.watch.watched import FEW
from tonnage.workload.history import HOUR_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.plan.plan import Plan
    from tonnage.spec.deployment import Deployment
    from tonnage.workload.history import History
    from tonnage.workload.history_fit import HistoryFit

DAY_S = 86_400
FAR_DAYS = 36_525
"""A date beyond a century is none."""
LOADS = 8
"""Loads that the hours are gathered into, for a calibration."""

What = Literal["load", "prompts", "outputs", "speed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One thing next to what the plan has.

    Attributes:
        what: the load of the busiest hour (requests/s), mean tokens of prompts or outputs, or the time per output token (ms).
        planned, now: both in that unit.
        systems: how many systems more than the plan counts on it takes, everything else being as planned; negative for fewer.
        drifted: whether it is beyond what a plan allows for: 5 % of the load, 10 % of a length, the interval of the time.
    """

    what: What
    planned: float
    now: float
    systems: int
    drifted: bool

    @property
    def change(self) -> float:
        """As a share of what was planned."""
        return self.now / self.planned - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The load at a date, and the systems that it takes; each with the interval of the growth."""

    date: datetime
    requests_per_second: tuple[float, float, float]
    systems: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """A plan and what its deployment does today.

    Attributes:
        plan: which was deployed.
        fit: of the history.
        drifts: in the order of ``What``; what the history does not say is absent.
        systems: that the plan has.
        planned, needed: systems for the plan's question, and for today's load, lengths and speed.
        carried: requests per second that all of them carry today.
        breaks: the day at which the load outgrows them, and the interval of it, by the growth; None where it does not grow or nobody knows;
            a moment beyond a century is None.
        ahead: at the date of a forecast.
    """

    plan: Plan
    fit: HistoryFit
    drifts: tuple[Drift, ...]
    systems: int
    planned: int
    needed: int
    carried: float
    breaks: tuple[datetime | None, datetime | None, datetime | None] | None
    ahead: Ahead | None

    @property
    def lost(self) -> int:
        """Systems of headroom that today has fewer than the plan."""
        return self.needed - self.planned

    def to_json(self) -> dict[str, Any]:
        """Dates in ISO form."""
        ahead = None if self.ahead is None else asdict(self.ahead) | {"date": self.ahead.date.date().isoformat()}
        return {
            "drifts": [{**asdict(one), "change": one.change} for one in self.drifts],
            "systems": {"have": self.systems, "planned": self.planned, "needed": self.needed},
            "carried_rps": self.carried,
            "breaks": None if self.breaks is None else [None if one is None else one.date().isoformat() for one in self.breaks],
            "forecast": ahead,
            "history": self.fit.to_json(),
        }


def today(plan: Plan, deployment: Deployment, fit: HistoryFit, *, gpus_per_system: int, forecast_s: float | None = None) -> Today:
    """A plan next to a history of its deployment, and where a forecast is asked its load so many seconds after the history's end."""
    choice, history = plan.candidates[0], fit.history
    predictor = Predictor(plan, deployment, gpus_per_system=gpus_per_system)
    asked, planned_load = plan.scenario, plan.demand.sizing_requests_per_second
    counted = choice.sized_rate / predictor.at(0.0, isl=None, osl=None).capacity  # as the plan allows for the errors of its prediction
    lengths = {side: history.mean(side, history.last_week) for side in ("isl", "osl")}
    time, slower = _speed(predictor, fit, choice.instances, lengths)

    def needed(load: float, isl: float | None = None, osl: float | None = None, slower: float = 1.0) -> int:
        return choice.fleet.carrying(load, counted * predictor.at(0.0, isl=isl, osl=osl, slower=slower).capacity).systems

    def found() -> Iterator[Drift]:
        load = fit.peak_rps
        yield Drift(
            what="load", planned=planned_load, now=load, systems=needed(load) - before, drifted=abs(load / planned_load - 1) > NEAR / 2
        )
        for what, side, mean in (("prompts", "isl", asked.mean_isl), ("outputs", "osl", asked.mean_osl)):
            now = lengths[side]
            if now is not None and mean:
                more = needed(planned_load, **{side: now}) - before
                yield Drift(what=what, planned=mean, now=now, systems=more, drifted=abs(now / mean - 1) >= NEAR)  # type: ignore[arg-type]
        if time is not None:
            more = needed(planned_load, slower=slower) - before
            yield Drift(what="speed", planned=time[0], now=time[1], systems=more, drifted=slower != 1.0)

    before = needed(planned_load)
    drifts = tuple(found())
    per_instance = counted * predictor.at(0.0, **lengths, slower=slower).capacity
    carried = per_instance * choice.instances
    growth = fit.growth
    breaks = ahead = None
    if growth is not None and growth.per_day > 0 and fit.peak_rps:
        breaks = tuple(fit.ends + timedelta(days=days) if days < FAR_DAYS else None for days in growth.until(carried / fit.peak_rps))
    if growth is not None and forecast_s is not None:
        loads = tuple(fit.peak_rps * math.exp(rate * forecast_s / DAY_S) for rate in (growth.per_day, growth.low, growth.high))
        systems = tuple(choice.fleet.carrying(load, per_instance).systems for load in loads)
        ahead = Ahead(date=fit.ends + timedelta(seconds=forecast_s), requests_per_second=loads, systems=systems)  # type: ignore[arg-type]
    return Today(
        plan=plan,
        fit=fit,
        drifts=drifts,
        systems=choice.systems,
        planned=before,
        needed=needed(fit.peak_rps, **lengths, slower=slower),
        carried=carried,
        breaks=breaks,  # type: ignore[arg-type]
        ahead=ahead,
    )


def _speed(
    predictor: Predictor, fit: HistoryFit, instances: int, lengths: dict[str, float | None]
) -> tuple[tuple[float, float] | None, float]:
    """Time per output token predicted and measured at the last week's busiest hours, in ms, and the factor on steps that makes."""
    import numpy as np

    history = fit.history
    metric = next((one for one in ("tpot", "itl") if one in history.histograms), None)
    if metric is None:
        return None, 1.0
    hours = history.last_week
    busy = hours & (history.requests >= np.quantile(history.requests[hours], 0.75))
    measured = history.histograms[metric].over(busy)
    if measured.count < FEW:
        return None, 1.0
    load = _load(history, busy) if np.isfinite(history.instances).any() else float(history.requests[busy].mean()) / HOUR_S / instances
    expected = predictor.at(load, isl=lengths["isl"], osl=lengths["osl"])
    if expected.summary is None or "tpot_ms" not in expected.intervals:
        return None, 1.0
    predicted, now = expected.summary.statistic_ms("tpot", "mean"), 1e3 * measured.mean
    low, high = expected.intervals["tpot_ms"]
    return (predicted, now), 1.0 if low <= now <= high else round(now / predicted, 2)


def _load(history: History, hours: NDArray[np.bool_]) -> float:
    """Requests per second of one instance, each hour by its requests."""
    served = history.requests[hours]
    return float(served.sum() / history.instances[hours].sum()) / HOUR_S


def measured_loads(plan: Plan, fit: HistoryFit) -> str:
    """The hours as measured points of one instance, gathered by their load: a table for ``calibrate`` and ``score``; "" without any.

    Each row has the latencies that the engine counted from the moment a request reached it.
    """
    import numpy as np

    history, pool = fit.history, plan.candidates[0].pool
    latencies = [(metric, history.histograms[metric]) for metric in ("ttft", "tpot", "itl", "e2e") if metric in history.histograms]
    lengths = [history.mean(side) for side in ("isl", "osl")]
    hours = np.flatnonzero(history.seen & (history.requests >= FEW) & (history.instances > 0))
    if not latencies or None in lengths or not len(hours):
        return ""
    order = hours[np.argsort(history.requests[hours] / history.instances[hours], kind="stable")]
    names = ["model", "gpu", "precision", "tp", "engine", "isl", "osl", "isl_drawn", "osl_drawn", "request_rate"]
    rows = [",".join([*names, *(f"{metric}_ms" for metric, _ in latencies)])]
    drawn = [f'"{one.written}"' if one.how == "distribution" else "" for one in (fit.isl, fit.osl)]
    for some in np.array_split(order, min(LOADS, len(order))):
        chosen = np.zeros(len(history.requests), dtype=np.bool_)
        chosen[some] = True
        place = [pool.model, pool.gpu, pool.precision, pool.parallelism.tp, pool.engine_preset or pool.engine]
        means = [round(history.mean(side, chosen) or 1) for side in ("isl", "osl")]
        values = [1e3 * one.over(chosen).mean for _, one in latencies]
        load = f"{_load(history, chosen):.6g}"
        rows.append(",".join(map(str, [*place, *means, *drawn, load, *(f"{value:.6g}" for value in values)])))
    return "\n".join(rows) + "\n"
