"""A run again, on a deployment that is simulated: the same requests, due at the same moments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.errors import InputError, in_python, option
from tonnage.notebook import InNotebooks
from tonnage.perf.pipeline import estimated_instance
from tonnage.perf.prediction_error import intervals_of, regime_of
from tonnage.perf.residuals import SHARE
from tonnage.results.metrics import Summary, attained, summarize
from tonnage.results.requests import COMPLETED, REJECTED, Requests
from tonnage.spec.workload import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.simulator.engine import Engine
    from tonnage.spec.deployment import Deployment, Slo


ROUTER = "least-outstanding"  # The router between instances where none is named


def replay(
    requests: Requests,
    deployment: Deployment,
    *,
    gpus_per_system: int,
    instances: int = 1,
    router: str = ROUTER,
) -> Requests:
    """Simulate the completed requests of a run, each due when it was due there and as long as it
    was there.

    Of requests that were due at the same moment, such as the first ones of a closed loop's clients,
    each comes when it was sent: a server begins with the first of them and takes the others in its
    next step. Latencies count from the moment when they were due all the same.

    A closed loop is replayed as the arrivals that it made: a simulated engine that is slower than
    the measured one then has a queue that the clients of the run would not have let grow.

    Args:
        requests: the record of the run.
        deployment: one instance, with any parallelism.
        gpus_per_system: stages of a pipeline that do not fit into one system are joined by the
            network.
        instances: how many share the requests.
        router: what shares them, a name of ``simulator.router.ROUTERS``.

    Raises:
        InputError: a record without completed requests or without their lengths, or several
            instances of a deployment that is not simulated behind a router.
        DoesNotFit: the memory does not hold the model.
    """
    from tonnage.simulator.engine import engine_of
    from tonnage.simulator.simulate import run
    from tonnage.simulator.spec import spec_of

    trace, due_ns = _trace(requests)
    instance = estimated_instance(
        deployment, gpus_per_system=gpus_per_system, prompt_tokens=round(float(trace.isl.mean()))
    )
    spec = spec_of(deployment, instance)
    engines = [engine_of(spec) for _ in range(instances)] if instances > 1 else []
    record = _behind_router(trace, engines, deployment, router) if engines else run(spec, trace)
    return replace(record, due_ns=due_ns, window_ns=requests.window_ns)


def _trace(requests: Requests) -> tuple[Trace, NDArray[np.int64]]:
    """The completed requests as an open loop from time 0 on, in the order in which they come, and
    when each was due.
    """
    rows = np.flatnonzero(requests.status == COMPLETED)
    if not rows.size:
        raise InputError("the run has no completed request, so that there is nothing to replay")
    due = requests.due_ns[rows]
    _, which, alike = np.unique(due, return_inverse=True, return_counts=True)
    comes = np.where(alike[which] > 1, np.maximum(requests.sent_ns[rows], due), due)
    order = np.argsort(comes, kind="stable")
    rows, due, comes = rows[order], due[order], comes[order]
    isl, osl = requests.isl[rows], requests.osl[rows]
    if min(isl.min(), osl.min()) < 1:
        raise InputError(
            "the run does not say how many tokens its prompts and outputs have, so that they cannot"
            " be replayed"
        )
    start = min(int(due.min()), 0)
    return (
        Trace(due_ps=(comes - start) * 1000, isl=isl, osl=osl, concurrency=0, turnaround_ps=0),
        due - start,
    )


def _behind_router(
    trace: Trace, engines: Sequence[Engine], deployment: Deployment, router: str
) -> Requests:
    if deployment.parallelism.dp > 1 or deployment.speculation is not None:
        raise InputError(
            f"{option('instances')}: several instances with attention ranks or speculative decoding"
            " are not simulated behind a router yet; measure one instance, and say 1"
        )
    from tonnage.simulator.fleet import simulate_routed

    return simulate_routed(trace, engines, router).requests


# A measured run next to what the simulator makes of the same requests on the deployment that a plan
# chose.


STATISTICS = ("mean", "p50", "p95", "p99")
SURE = ("ttft_ms", "tpot_ms", "e2e_ms")
"""Metrics whose errors are known; those of single gaps (ITL) are not, and rates are what the run
sent."""

RATES = ("requests_per_second", "output_tokens_per_second")
FEW = 0.01  # Shares of requests below this are not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBeside:
    """One statistic of a metric, measured next to predicted."""

    # metric, statistic: such as "ttft_ms" and "p95"
    metric: str
    statistic: str
    # measured, predicted: in milliseconds, or per second
    measured: float
    predicted: float
    # low, high: between which the measurement was expected with a probability of 80 %; NaN where
    # that is not known
    low: float = math.nan
    high: float = math.nan

    @property
    def ratio(self) -> float:
        """The predicted over the measured; NaN where there is none."""
        return self.predicted / self.measured if self.measured else math.nan

    @property
    def inside(self) -> bool | None:
        """Whether the measurement is in the interval; None where there is no interval or no
        measurement.
        """
        comparable = math.isfinite(self.low) and math.isfinite(self.measured)
        return self.low <= self.measured <= self.high if comparable else None

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        names = ("metric", "statistic", "measured", "predicted", "ratio", "low", "high", "inside")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBesidePlan(InNotebooks):
    """A run and its prediction."""

    deployment: Deployment  # one instance of what was simulated
    instances: int  # how many shared the requests
    router: str  # what shared them; "" for one instance
    requests: int  # that were replayed
    metrics: tuple[MetricBeside, ...]  # every statistic that is compared
    # what makes the two hard to compare, in words; options in them are not spelled yet
    notes: tuple[str, ...]
    # which numbers behind the prediction were not fitted to measurements of this GPU and engine, in
    # words
    marks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The values as JSON has them, by name."""
        d = self.deployment
        return {
            **d.named,
            "engine_preset": d.engine,
            "instances": self.instances,
            "router": self.router or None,
            "requests": self.requests,
            "share": SHARE,
            "metrics": [metric.to_json() for metric in self.metrics],
            "notes": list(map(in_python, self.notes)),
            "marks": list(self.marks),
        }


def beside_plan(
    measured: Requests,
    predicted: Requests,
    deployment: Deployment,
    *,
    instances: int,
    router: str,
    clients: int | None = None,
    slo: Slo = (),
) -> RunBesidePlan:
    """Lay a run next to its replay, and its joint attainment of the plan's limits (``slo``) next to
    the replay's.

    The intervals are those of predictions of an open loop, since a replay is one; they have no
    noise of a finite run, as both sides have the same requests at the same moments. ``clients`` are
    those of a closed loop; None for an open one, or where it is not known.
    """
    from tonnage.perf.ranges import marks

    done = measured.status == COMPLETED
    regime = regime_of(
        deployment, isl=float(measured.isl[done].mean()), osl=float(measured.osl[done].mean())
    )
    ours, theirs = summarize(measured), summarize(predicted)
    values = {
        name: getattr(getattr(theirs, metric), statistic)
        for metric, statistic, name in _columns()
        if metric in SURE
    }
    intervals = intervals_of(
        {name: value for name, value in values.items() if value is not None}, regime
    )
    return RunBesidePlan(
        deployment=deployment,
        instances=instances,
        router=router if instances > 1 else "",
        requests=len(predicted),
        metrics=(*_metrics(ours, theirs, intervals), *_attained(measured, predicted, slo)),
        notes=tuple(_notes(measured, predicted, clients)),
        marks=marks(deployment),
    )


def _columns() -> Iterator[tuple[str, str, str]]:
    """Each metric and statistic, with the name of the column that its errors are kept under."""
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        for statistic in STATISTICS:
            yield (
                metric,
                statistic,
                metric if statistic == "mean" else f"{metric.removesuffix('_ms')}_{statistic}_ms",
            )


def _metrics(
    ours: Summary, theirs: Summary, intervals: dict[str, tuple[float, float]]
) -> Iterator[MetricBeside]:
    for metric, statistic, name in _columns():
        pair = (getattr(getattr(summary, metric), statistic) for summary in (ours, theirs))
        measured, predicted = (math.nan if value is None else float(value) for value in pair)
        low, high = intervals.get(name, (math.nan, math.nan))
        yield MetricBeside(
            metric=metric,
            statistic=statistic,
            measured=measured,
            predicted=predicted,
            low=low,
            high=high,
        )
    for metric in RATES:
        yield MetricBeside(
            metric=metric,
            statistic="mean",
            measured=getattr(ours, metric),
            predicted=getattr(theirs, metric),
        )


def _attained(measured: Requests, predicted: Requests, slo: Slo) -> Iterator[MetricBeside]:
    """Joint attainment of the limits, measured and predicted."""
    joint = tuple(limit for limit in slo if limit.share is not None)
    for ours, theirs in zip(attained(measured, joint), attained(predicted, joint), strict=True):
        yield MetricBeside(
            metric=f"share {ours.limits}",
            statistic="mean",
            measured=ours.share,
            predicted=theirs.share,
        )


def _notes(measured: Requests, predicted: Requests, clients: int | None) -> Iterator[str]:
    """Where the two were not given the same."""
    unfinished_share = 1 - len(predicted) / len(measured)
    if unfinished_share > FEW:
        yield (
            f"{unfinished_share:.1%} of the requests of the run did not complete and are not"
            " replayed"
        )
    rejected = int((predicted.status == REJECTED).sum())
    if rejected:
        yield (
            f"{rejected:,} of {len(predicted):,} requests would be rejected by the planned"
            " deployment: they never fit into it"
        )
    prompts = int(measured.isl.sum())
    cached = int(measured.cached_tokens.clip(min=0).sum()) / prompts if prompts else 0.0
    if cached > FEW:
        yield (
            f"{cached:.1%} of the prompt tokens of the run were found in a prefix cache; the replay"
            " computes them all"
        )
    if clients is not None:
        yield (
            f"the run was a closed loop of {clients:,} clients; its due times are replayed as an"
            " open loop, so that a prediction slower than the measurement has a queue that those"
            " clients would not have let grow"
        )
