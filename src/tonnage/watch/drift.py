"""Changes since a plan was made: a history of its deployment next to the plan, the systems that it
costs, and until when they last.

The history comes from a Prometheus server, over its HTTP interface (``/api/v1/query_range``).
"""

from __future__ import annotations

import base64
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import numpy as np

from tonnage.errors import InputError, TonnageError, option
from tonnage.formats.prometheus import HISTORIES, INCREASE, Signals, curves
from tonnage.formats.table import inside
from tonnage.plan.plan import Plan
from tonnage.spec.deployment import Deployment
from tonnage.watch.deployment_status import FEW
from tonnage.watch.expected import NEAR, Predictor
from tonnage.workload.history import HOUR_S, WATTS, History
from tonnage.workload.history_fit import HistoryFit

MOST_POINTS = 10_000  # Points of a series in one answer; Prometheus refuses more than 11,000
TIMEOUT_S = 120.0
MOST_BYTES = 2**28  # of an answer
MANY = 50  # Instances from which on requests are read every five minutes and not every minute


class Server:
    """A Prometheus, Thanos, Mimir or VictoriaMetrics."""

    def __init__(self, url: str, *, headers: Sequence[str] = (), select: str = "") -> None:
        """Ask nothing yet. Raises InputError: no header.

        Args:
            url: such as http://prometheus:9090; user:password@ before the host is sent as basic
                authentication.
            select: label matchers of the deployment, such as 'namespace="prod",model_name="llama"'.
        """
        parts = urlsplit(url)
        # its URL without a password
        self.name = urlunsplit(
            (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", "")
        )
        self._url = f"{self.name}/api/v1/query_range"
        self._headers = {}
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        for header in headers:
            name, colon, value = header.partition(":")
            if not colon or not name.strip():
                raise InputError(
                    f"{option('header')}: '{header}' is no header; write such as 'Authorization:"
                    " Bearer …'"
                )
            self._headers[name.strip()] = value.strip()
        self._select = select

    def read(self, seconds: float, *, until: float | None = None) -> list[Any]:
        """The engine's traffic up to the last whole hour. Raises InputError: a refused query, no
        engine; TonnageError: no answer.
        """
        end = HOUR_S * math.floor((time.time() if until is None else until) / HOUR_S)
        start = end - HOUR_S * math.ceil(seconds / HOUR_S)
        names = "|".join(signals.requests for signals in HISTORIES.values())
        counted = self._ask(
            f"count by (__name__) ({self._of(names, exact=False)})", start, end, HOUR_S
        )
        counts = {curve.name: float(curve.values.max()) for curve in curves([counted], self._url)}
        histories = [signals for signals in HISTORIES.values() if signals.requests in counts]
        if len(histories) != 1:
            if histories:
                raise InputError(
                    f"{self._url}: counts {' and '.join(counts)}; narrow it to one deployment with"
                    f" {option('select')}"
                )
            reason = f"in that time it has none of {names.replace('|', ', ')}"
            raise InputError(
                f"{self._url}: {reason}; give another {option('range')} or {option('select')}"
            )
        return list(self._answers(histories[0], start, end, counts[histories[0].requests]))

    def _answers(
        self, signals: Signals, start: float, end: float, instances: float
    ) -> Iterator[Any]:
        """The requests of each instance as they were counted, and everything else by the hour over
        all instances.
        """
        requests = self._of(signals.requests)
        often = curves(
            [
                self._ask(
                    _named("often", f"max(count_over_time({requests}[1h]))"), start, end, HOUR_S
                )
            ],
            self._url,
        )
        scrape_s = (
            HOUR_S / max(1.0, *(float(curve.values.max()) for curve in often)) if often else 60.0
        )
        least = 300.0 if instances > MANY else 60.0
        step, begin = least * math.ceil(scrape_s / least - 0.05), start
        while begin < end:
            upto = min(end, begin + step * MOST_POINTS)
            yield self._ask(requests, begin, upto, step)
            begin = upto
        histograms = [
            histogram
            for histogram in (signals.isl, signals.osl, *signals.histograms.values())
            if histogram
        ]
        counters = [f"{histogram}_sum" for histogram in histograms]
        counters += [
            counter
            for counter in (
                signals.prompt_tokens,
                signals.output_tokens,
                signals.cache_queries,
                signals.cache_hits,
            )
            if counter
        ]
        grown = [
            (f"{histogram}_bucket", "sum by (le) (increase({}[1h]))") for histogram in histograms
        ]
        grown += [(counter, "sum(increase({}[1h]))") for counter in dict.fromkeys(counters)]
        for name, query in grown:
            yield self._ask(
                _named(name + INCREASE, query.format(self._of(name))), start + HOUR_S, end, HOUR_S
            )
        for name in (signals.running, signals.waiting, *WATTS):
            if name:
                yield self._ask(
                    _named(name, f"sum(avg_over_time({self._of(name)}[1h]))"),
                    start + HOUR_S,
                    end,
                    HOUR_S,
                )

    def _of(self, name: str, *, exact: bool = True) -> str:
        inner = f'__name__{"=" if exact else "=~"}"{name}"'
        return f"{{{inner}{',' + self._select if self._select else ''}}}"

    def _ask(self, query: str, start: float, end: float, step: float) -> Any:
        """Ask the server once."""
        data = urlencode({"query": query, "start": start, "end": end, "step": step}).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self._url, data, self._headers), timeout=TIMEOUT_S
            ) as response:
                return json.loads(response.read(MOST_BYTES))
        except urllib.error.HTTPError as error:
            body = error.read(100_000).decode("utf-8", "replace")
            try:
                message = str(inside(json.loads(body), "error") or body)
            except (ValueError, RecursionError):
                message = body
            raise InputError(
                f"{self._url}: answers {error.code} to {query}: {' '.join(message.split())[:200]}"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise TonnageError(
                f"{self._url}: no answer of a Prometheus ({' '.join(str(error).split())[:120]}); is"
                " it up?"
            ) from None


def _named(name: str, expression: str) -> str:
    """The series of an expression under a name of ours, since what is computed has none."""
    return f'label_replace({expression}, "__name__", "{name}", "", "")'


DAY_S = 86_400
FAR_DAYS = 36_525  # A date beyond a century is none
LOADS = 8  # Loads that the hours are gathered into, for a calibration

What = Literal["load", "prompts", "outputs", "speed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One present value next to the plan's."""

    # the load of the busiest hour (requests/s), mean tokens of prompts or outputs, or the time per
    # output token (ms)
    what: What
    planned: float  # and now: both in that unit
    now: float
    # how many systems more than the plan counts on it takes, everything else being as planned;
    # negative for fewer
    systems: int
    # whether it is beyond what a plan allows for: 5 % of the load, 10 % of a length, the interval
    # of the time
    drifted: bool

    @property
    def change(self) -> float:
        """The change as a share of the planned value."""
        return self.now / self.planned - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The load at a date, and the systems that it takes; each with the interval of the growth."""

    date: datetime
    requests_per_second: tuple[float, float, float]
    systems: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """A plan and what its deployment does today."""

    plan: Plan  # which was deployed
    fit: HistoryFit  # of the history
    drifts: tuple[Drift, ...]  # in the order of ``What``; what the history does not say is absent
    systems: int  # that the plan has
    # and needed: systems for the plan's question, and for today's load, lengths and speed
    planned: int
    needed: int
    carried: float  # requests per second that all of them carry today
    # the day at which the load outgrows them, and the interval of it, by the growth; None where it
    # does not grow or nobody knows; a moment beyond a century is None
    breaks: tuple[datetime | None, datetime | None, datetime | None] | None
    ahead: Ahead | None  # at the date of a forecast

    @property
    def lost(self) -> int:
        """Systems of headroom that today has fewer than the plan."""
        return self.needed - self.planned

    def to_json(self) -> dict[str, Any]:
        """Dates in ISO form."""
        ahead = (
            None
            if self.ahead is None
            else asdict(self.ahead) | {"date": self.ahead.date.date().isoformat()}
        )
        return {
            "drifts": [{**asdict(drift), "change": drift.change} for drift in self.drifts],
            "systems": {"have": self.systems, "planned": self.planned, "needed": self.needed},
            "carried_rps": self.carried,
            "breaks": (
                None
                if self.breaks is None
                else [
                    None if moment is None else moment.date().isoformat() for moment in self.breaks
                ]
            ),
            "forecast": ahead,
            "history": self.fit.to_json(),
        }


def today(
    plan: Plan,
    deployment: Deployment,
    fit: HistoryFit,
    *,
    gpus_per_system: int,
    forecast_s: float | None = None,
) -> Today:
    """A plan next to a history of its deployment, and for a forecast its load so many seconds after
    the history's end.
    """
    choice, history = plan.candidates[0], fit.history
    predictor = Predictor(plan, deployment, gpus_per_system=gpus_per_system)
    understood, planned_load = plan.scenario, plan.demand.sizing_requests_per_second
    # as the plan allows for the errors of its prediction
    counted = choice.sized_rate / predictor.at(0.0, isl=None, osl=None).capacity
    lengths = {side: history.mean(side, history.last_week) for side in ("isl", "osl")}
    time, slower = _speed(predictor, fit, choice.instances, lengths)

    def needed(
        load: float, isl: float | None = None, osl: float | None = None, slower: float = 1.0
    ) -> int:
        return choice.fleet.carrying(
            load, counted * predictor.at(0.0, isl=isl, osl=osl, slower=slower).capacity
        ).systems

    def found() -> Iterator[Drift]:
        load = fit.peak_rps
        yield Drift(
            what="load",
            planned=planned_load,
            now=load,
            systems=needed(load) - before,
            drifted=abs(load / planned_load - 1) > NEAR / 2,
        )
        for what, side, mean in (
            ("prompts", "isl", understood.mean_isl),
            ("outputs", "osl", understood.mean_osl),
        ):
            now = lengths[side]
            if now is not None and mean:
                more = needed(planned_load, **{side: now}) - before
                yield Drift(
                    what=what,  # type: ignore[arg-type]
                    planned=mean,
                    now=now,
                    systems=more,
                    drifted=abs(now / mean - 1) >= NEAR,
                )
        if time is not None:
            more = needed(planned_load, slower=slower) - before
            yield Drift(
                what="speed", planned=time[0], now=time[1], systems=more, drifted=slower != 1.0
            )

    before = needed(planned_load)
    drifts = tuple(found())
    per_instance = counted * predictor.at(0.0, **lengths, slower=slower).capacity
    carried = per_instance * choice.instances
    growth = fit.growth
    breaks = ahead = None
    if growth is not None and growth.per_day > 0 and fit.peak_rps:
        breaks = tuple(
            fit.ends + timedelta(days=days) if days < FAR_DAYS else None
            for days in growth.until(carried / fit.peak_rps)
        )
    if growth is not None and forecast_s is not None:
        loads = tuple(
            fit.peak_rps * math.exp(rate * forecast_s / DAY_S)
            for rate in (growth.per_day, growth.low, growth.high)
        )
        systems = tuple(choice.fleet.carrying(load, per_instance).systems for load in loads)
        ahead = Ahead(
            date=fit.ends + timedelta(seconds=forecast_s),
            requests_per_second=loads,  # type: ignore[arg-type]
            systems=systems,  # type: ignore[arg-type]
        )
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
    """Time per output token predicted and measured at the last week's busiest hours, in ms, and the
    factor on steps that makes.
    """
    history = fit.history
    metric = next(
        (candidate for candidate in ("tpot", "itl") if candidate in history.histograms), None
    )
    if metric is None:
        return None, 1.0
    hours = history.last_week
    busy = hours & (history.requests >= np.quantile(history.requests[hours], 0.75))
    measured = history.histograms[metric].over(busy)
    if measured.count < FEW:
        return None, 1.0
    load = (
        _load(history, busy)
        if np.isfinite(history.instances).any()
        else float(history.requests[busy].mean()) / HOUR_S / instances
    )
    expected = predictor.at(load, isl=lengths["isl"], osl=lengths["osl"])
    if expected.summary is None or "tpot_ms" not in expected.intervals:
        return None, 1.0
    predicted, now = expected.summary.statistic_ms("tpot", "mean"), 1e3 * measured.mean
    low, high = expected.intervals["tpot_ms"]
    return (predicted, now), 1.0 if low <= now <= high else round(now / predicted, 2)


def _load(history: History, hours: np.typing.NDArray[np.bool_]) -> float:
    """Requests per second of one instance, each hour by its requests."""
    served = history.requests[hours]
    return float(served.sum() / history.instances[hours].sum()) / HOUR_S


def measured_loads(plan: Plan, fit: HistoryFit) -> str:
    """The hours as measured points of one instance, gathered by their load: a table for
    ``calibrate`` and ``score``; "" without any.

    Each row has the latencies that the engine counted from the moment a request reached it.
    """
    history, pool = fit.history, plan.candidates[0].pool
    latencies = [
        (metric, history.histograms[metric])
        for metric in ("ttft", "tpot", "itl", "e2e")
        if metric in history.histograms
    ]
    lengths = [history.mean(side) for side in ("isl", "osl")]
    hours = np.flatnonzero(history.seen & (history.requests >= FEW) & (history.instances > 0))
    if not latencies or None in lengths or not len(hours):
        return ""
    order = hours[np.argsort(history.requests[hours] / history.instances[hours], kind="stable")]
    names = [
        "model",
        "gpu",
        "precision",
        "tp",
        "engine",
        "isl",
        "osl",
        "isl_drawn",
        "osl_drawn",
        "request_rate",
    ]
    rows = [",".join([*names, *(f"{metric}_ms" for metric, _ in latencies)])]
    drawn = [
        f'"{seen_lengths.written}"' if seen_lengths.how == "distribution" else ""
        for seen_lengths in (fit.isl, fit.osl)
    ]
    for group in np.array_split(order, min(LOADS, len(order))):
        chosen = np.zeros(len(history.requests), dtype=np.bool_)
        chosen[group] = True
        place = [
            pool.model,
            pool.gpu,
            pool.precision,
            pool.parallelism.tp,
            pool.engine_preset or pool.engine,
        ]
        means = [round(history.mean(side, chosen) or 1) for side in ("isl", "osl")]
        values = [1e3 * hourly_histogram.over(chosen).mean for _, hourly_histogram in latencies]
        load = f"{_load(history, chosen):.6g}"
        rows.append(
            ",".join(
                map(str, [*place, *means, *drawn, load, *(f"{value:.6g}" for value in values)])
            )
        )
    return "\n".join(rows) + "\n"
