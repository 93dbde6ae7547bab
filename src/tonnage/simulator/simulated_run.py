"""The result of a simulation: the run, its metrics, and the folders that it is written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.notebook import InNotebooks
from tonnage.results.breakdown import Violation, violations
from tonnage.results.requests import FAILED
from tonnage.spec.deployment import Deployment
from tonnage.spec.workload import ClosedLoop, OpenLoop, Simulated, TraceArrivals, Workload

if TYPE_CHECKING:
    from tonnage.results.breakdown import ClassResult
    from tonnage.results.metrics import Attained, Summary
    from tonnage.results.requests import Requests
    from tonnage.simulator.changes import Routed
    from tonnage.spec.deployment import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualLengths:
    """What requests of equal length do to a fleet: they end together, and the next ones are admitted together."""

    share: float  # by which lengths vary around the same means in the run that it is compared with
    requests: int  # how many were compared, from the beginning of the run
    ttft_p95_ms: float  # of these requests
    varied_ttft_p95_ms: float  # the same where lengths vary


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun(InNotebooks):
    """One simulated point: the deployment and load, what happened to each request, and the metrics of it.

    Attributes:
        deployment, workload, seed: inputs of the run.
        requests, summary: what happened.
        plain: of speculative decoding, the metrics of the same point without it; None otherwise.
        instances: that shared the load.
        router: what shared it; empty where there was one instance.
        fleet: failures, instance-hours and limits broken; None where none of them was requested.
        equal_lengths: where equal lengths decide the p95 of the TTFT, what it is without them; None elsewhere.
        limits: that goodput and joint attainment are counted against.
    """

    deployment: Deployment
    workload: Workload
    seed: int
    requests: Requests
    summary: Summary
    plain: Summary | None = None
    instances: int = 1
    router: str = ""
    fleet: FleetFacts | None = None
    equal_lengths: EqualLengths | None = None
    limits: Slo = ()

    @property
    def classes(self) -> tuple[ClassResult, ...]:
        """What each class of the traffic saw; empty where there are none."""
        from tonnage.results.breakdown import by_class

        asked = self.workload.classes
        place = self.workload.trace(self.seed).priority if asked else None
        return () if place is None else by_class(self.requests, place, asked, self.limits)

    @property
    def attained(self) -> tuple[Attained, ...]:
        """Goodput inside the limits, and the joint attainment of each limit on it."""
        from tonnage.results.metrics import attained

        return attained(self.requests, self.limits)

    @property
    def gain(self) -> float | None:
        """What speculative decoding brings: output tokens/s over those without; in an open loop mean E2E without over with."""
        if self.plain is None:
            return None
        if isinstance(self.workload.arrivals, ClosedLoop):
            return self.summary.output_tokens_per_second / self.plain.output_tokens_per_second
        return self.plain.statistic_ms("e2e", "mean") / self.summary.statistic_ms("e2e", "mean")

    @property
    def saved_prompt_tokens(self) -> int | None:
        """Prompt tokens that were found in a prefix cache and not computed; None where prompts share nothing."""
        return int(self.requests.cached_tokens.sum()) if self.workload.shares else None

    @property
    def hit_rate(self) -> float | None:
        """The same as a share of all prompt tokens."""
        saved = self.saved_prompt_tokens
        return None if saved is None else saved / max(int(self.requests.isl.sum()), 1)

    def to_json(self) -> dict[str, Any]:
        """The summary with its qualifiers: deployment, lengths, load, seed."""
        d, w = self.deployment, self.workload
        load: dict[str, Any] = (
            {"concurrency": w.arrivals.concurrency}
            if isinstance(w.arrivals, ClosedLoop)
            else {"request_rate": w.arrivals.rate, "arrivals": w.arrivals.process}
        )
        if isinstance(w.arrivals, OpenLoop) and w.arrivals.in_flight:
            load["in_flight"] = w.arrivals.in_flight
        summary = self.summary.to_json()
        summary["mean_concurrency"] = summary.pop("concurrency")
        return {
            **d.named,
            "engine": d.engine,
            "engine_preset": d.engine,
            "isl": str(w.isl),
            "osl": str(w.osl),
            **load,
            "requests": w.requests,
            "seed": self.seed,
            **self._fleet,
            **self._shared,
            **({} if d.speculation is None else {"speculation": str(d.speculation), "speculation_gain": self.gain}),
            "marks": list(self.marks),
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            **({} if self.fleet is None else {"fleet": self.fleet.to_json()}),
            **({"attained": [one.to_json() for one in self.attained]} if self.limits else {}),
            **({} if self.equal_lengths is None else {"equal_lengths": asdict(self.equal_lengths)}),
            **({"classes": [one.to_json() for one in self.classes]} if self.workload.classes else {}),
            **summary,
        }

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Where a measurement is with a probability of 80 %, by column; of a mean unless the name has a percentile."""
        from tonnage.perf.prediction_error import intervals_of, regime_of, run_noise

        s, w = self.summary, self.workload
        values = {f"{metric}_ms": s.statistic_ms(metric, "mean") for metric in ("ttft", "tpot", "e2e")}
        values |= {"ttft_p95_ms": s.statistic_ms("ttft", "p95"), "requests_s": s.requests_per_second}
        clients = w.arrivals.concurrency if isinstance(w.arrivals, ClosedLoop) else None
        batch = clients if self.deployment.knobs.scheduler == "static" else None
        isl = float(self.requests.isl.mean()) if w.sessions is not None and len(self.requests) else w.isl.mean
        regime = regime_of(self.deployment, isl=isl, osl=w.osl.mean, batch=batch, clients=clients)
        return intervals_of(values, regime, run_noise(self.requests) if clients is None else {})

    @property
    def marks(self) -> tuple[str, ...]:
        """Which numbers behind it were not fitted to measurements of this GPU and engine, in words."""
        from tonnage.perf.ranges import marks

        return marks(self.deployment)

    @property
    def _shared(self) -> dict[str, Any]:
        """What prompts share, and what of that was found."""
        if not self.workload.shares:
            return {}
        sessions = {} if self.workload.sessions is None else {"sessions": str(self.workload.sessions)}
        return {**sessions, "prefix_hit_rate": self.hit_rate, "saved_prompt_tokens": self.saved_prompt_tokens}

    @property
    def _fleet(self) -> dict[str, Any]:
        return {"instances": self.instances, "router": self.router} if self.router else {}

    def scenario(self) -> dict[str, Any]:
        """What was run, for the run folder: deployment with every knob, workload, seed."""
        d, w = self.deployment, self.workload
        return {
            **d.named,
            "engine": d.engine,
            "knobs": asdict(d.knobs),
            "isl": str(w.isl),
            "osl": str(w.osl),
            "arrivals": _arrivals(w.arrivals),
            "requests": w.requests,
            "seed": self.seed,
            **self._fleet,
            **({"sessions": asdict(w.sessions)} if w.sessions is not None else {}),
            **({"classes": [asdict(one) for one in w.classes]} if w.classes else {}),
            **({"calibration": asdict(d.calibration)} if d.calibration is not None else {}),
            **({"speculation": str(d.speculation)} if d.speculation is not None else {}),
            **({"step_model": d.step_source.name, "marks": list(self.marks)} if d.step_source is not None else {}),
        }


def _arrivals(arrivals: Simulated) -> dict[str, Any]:
    """The load for a run folder; of a replayed trace its name, since the record holds the requests themselves."""
    if isinstance(arrivals, TraceArrivals):
        return {"trace": f"{arrivals.recording.source}{arrivals.recording.change}", "rate": arrivals.rate}
    return asdict(arrivals)


def write_runs(folder: Path, runs: Sequence[SimulatedRun], provenance: dict[str, Any]) -> None:
    """Write one run folder, or for a sweep one per point inside ``folder``.

    Raises:
        InputError: the folder exists and is not empty.
    """
    from tonnage.results.store import write_run

    for run in runs:
        load = run.workload.arrivals
        name = f"concurrency-{load.concurrency}" if isinstance(load, ClosedLoop) else f"rate-{load.rate:g}"
        target = folder if len(runs) == 1 else folder / name
        write_run(target, run.scenario(), run.requests, run.summary, provenance)


# What a run of several instances says next to its metrics: failures, instance-hours, limits that were broken.


S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """Of a run behind a router."""

    failures: int  # of instances, up to the arrival of the last request
    restarts: int  # of instances between seasons
    retried: int  # times that a request in flight was sent to another instance
    lost: int  # requests that failed with their instance, or for which none was available
    availability: float  # share of the instances' time in which they worked
    instance_hours: float  # held, from the first instant to the arrival of the last request
    # serving_mean, serving_most: instances that took requests, at the looks of the controller; None without one
    serving_mean: float | None
    serving_most: int | None
    violations: tuple[Violation, ...]  # of the limits

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self) | {"violations": [asdict(one) for one in self.violations]}


def facts_of(routed: Routed, limits: Slo) -> FleetFacts:
    """The facts of a run."""
    changed, served = routed.changed, routed.changed.served
    return FleetFacts(
        failures=changed.failures,
        restarts=changed.restarts,
        retried=changed.retried,
        lost=int((routed.requests.status == FAILED).sum()),
        availability=changed.availability,
        instance_hours=changed.instance_seconds / S_PER_HOUR,
        serving_mean=float(served[:, 0].mean()) if len(served) else None,
        serving_most=int(served[:, 0].max()) if len(served) else None,
        violations=violations(routed.requests, limits),
    )
