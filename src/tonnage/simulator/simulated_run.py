"""The result of a simulation: the run, its metrics, and the folders that it is written to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import in_python
from tonnage.notebook import InNotebooks
from tonnage.results.breakdown import ClassResult, Violation, by_class, violations
from tonnage.results.metrics import Attained, Latencies, Summary, attained, counted_rows, of_rows
from tonnage.results.requests import FAILED, Requests
from tonnage.spec.deployment import Alike, Deployment, Slo
from tonnage.spec.workload import ClosedLoop, OpenLoop, Simulated, TraceArrivals, Workload

if TYPE_CHECKING:
    from tonnage.simulator.changes import Routed


ALTERNATING = (
    "the front end lets requests in one by one, and a running static batch takes no more: a batch"
    " of one request and a batch of the others alternate"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualLengths:
    """What requests of equal length do to a fleet: they end together, and the next ones are
    admitted together.
    """

    share: float  # by which lengths vary around the same means in the run that it is compared with
    requests: int  # how many were compared, from the beginning of the run
    ttft_p95_ms: float  # of these requests
    varied_ttft_p95_ms: float  # the same where lengths vary


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun(InNotebooks):
    """One simulated point: the deployment and load, what happened to each request, and the metrics
    of it.

    Attributes:
        deployment, workload, seed: inputs of the run.
        requests, summary: what happened.
        plain: of speculative decoding, the metrics of the same point without it; None otherwise.
        instances: that shared the load.
        router: what shared it; empty where there was one instance.
        unlike: groups that the instances fall into; empty where all are of ``deployment``.
        fleet: failures, instance-hours and limits broken; None where none of them was requested.
        equal_lengths: where equal lengths decide the p95 of the TTFT, what it is without them; None
            elsewhere.
        limits: that goodput and joint attainment are counted against.
        settings: its values of what a sweep varies but the load, by the name of the argument, such
            as {"tp": "2"}.
    """

    deployment: Deployment
    workload: Workload
    seed: int
    requests: Requests
    summary: Summary
    plain: Summary | None = None
    instances: int = 1
    router: str = ""
    unlike: tuple[Alike, ...] = ()
    fleet: FleetFacts | None = None
    equal_lengths: EqualLengths | None = None
    limits: Slo = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[ClassResult, ...]:
        """What each class of the traffic saw; empty where there are none."""
        classes = self.workload.classes
        place = self.workload.trace(self.seed).priority if classes else None
        return () if place is None else by_class(self.requests, place, classes, self.limits)

    @property
    def attained(self) -> tuple[Attained, ...]:
        """Goodput inside the limits, and the joint attainment of each limit on it."""
        return attained(self.requests, self.limits)

    @property
    def gain(self) -> float | None:
        """What speculative decoding brings: output tokens/s over those without; in an open loop
        mean E2E without over with.
        """
        if self.plain is None:
            return None
        if isinstance(self.workload.arrivals, ClosedLoop):
            return self.summary.output_tokens_per_second / self.plain.output_tokens_per_second
        return self.plain.statistic_ms("e2e", "mean") / self.summary.statistic_ms("e2e", "mean")

    @property
    def saved_prompt_tokens(self) -> int | None:
        """Prompt tokens that were found in a prefix cache and not computed; None where prompts
        share nothing.
        """
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
            **(
                {}
                if d.speculation is None
                else {"speculation": str(d.speculation), "speculation_gain": self.gain}
            ),
            "marks": list(self.marks),
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            **({} if self.fleet is None else {"fleet": self.fleet.to_json()}),
            **(
                {"attained": [attainment.to_json() for attainment in self.attained]}
                if self.limits
                else {}
            ),
            **({} if self.equal_lengths is None else {"equal_lengths": asdict(self.equal_lengths)}),
            **(
                {"classes": [class_result.to_json() for class_result in self.classes]}
                if self.workload.classes
                else {}
            ),
            **summary,
        }

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Where a measurement is with a probability of 80 %, by column; of a mean unless the name
        has a percentile.

        Empty where the instances are unlike: how their errors go together was not measured.
        """
        from tonnage.perf.prediction_error import intervals_of, regime_of, run_noise

        if self.unlike:
            return {}
        s, w = self.summary, self.workload
        values = {
            f"{metric}_ms": s.statistic_ms(metric, "mean") for metric in ("ttft", "tpot", "e2e")
        }
        values |= {
            "ttft_p95_ms": s.statistic_ms("ttft", "p95"),
            "requests_s": s.requests_per_second,
        }
        clients = w.arrivals.concurrency if isinstance(w.arrivals, ClosedLoop) else None
        batch = clients if self.deployment.knobs.scheduler == "static" else None
        isl = (
            float(self.requests.isl.mean())
            if w.sessions is not None and len(self.requests)
            else w.isl.mean
        )
        regime = regime_of(self.deployment, isl=isl, osl=w.osl.mean, batch=batch, clients=clients)
        return intervals_of(values, regime, run_noise(self.requests) if clients is None else {})

    @property
    def marks(self) -> tuple[str, ...]:
        """Which numbers behind it were not fitted to measurements of this GPU and engine, and what
        it shows of its scheduler alone, in words.
        """
        from tonnage.perf.pipeline import MARK
        from tonnage.perf.ranges import marks

        deployments = [group.deployment for group in self.unlike] or [self.deployment]
        stages = (MARK,) if any(d.parallelism.pp > 1 for d in deployments) else ()
        static = (ALTERNATING,) if self._alternates() else ()
        return (*dict.fromkeys(mark for d in deployments for mark in marks(d)), *stages, *static)

    def _alternates(self) -> bool:
        """Whether every other static batch has a single request, the first to be let in."""
        closed = isinstance(self.workload.arrivals, ClosedLoop)
        if self.deployment.knobs.scheduler != "static" or not closed:
            return False
        import numpy as np

        begins = self.requests.first_token_ns[self.requests.first_token_ns >= 0]
        sizes = np.unique(begins, return_counts=True)[1]
        return len(sizes) > 0 and bool(sizes.max() > 1 and 3 * (sizes == 1).sum() > len(sizes))

    @property
    def gpus(self) -> int:
        """GPUs of all instances."""
        groups = self.unlike or (Alike(deployment=self.deployment, instances=self.instances),)
        return sum(group.instances * group.deployment.parallelism.gpus for group in groups)

    @property
    def by_group(self) -> tuple[tuple[Alike, float, Latencies, Latencies], ...]:
        """For each group of unlike instances, its share of the requests, and its TTFT and E2E in
        milliseconds.
        """
        record, groups, first = self.requests, [], 0
        rows = counted_rows(record)
        for group in self.unlike:
            mine = rows[
                (record.instance[rows] >= first) & (record.instance[rows] < first + group.instances)
            ]
            ttft, _, e2e = of_rows(record, mine)
            groups.append((group, len(mine) / max(len(rows), 1), ttft, e2e))
            first += group.instances
        return tuple(groups)

    @property
    def _shared(self) -> dict[str, Any]:
        """What prompts share, and what of that was found."""
        if not self.workload.shares:
            return {}
        sessions = (
            {} if self.workload.sessions is None else {"sessions": str(self.workload.sessions)}
        )
        return {
            **sessions,
            "prefix_hit_rate": self.hit_rate,
            "saved_prompt_tokens": self.saved_prompt_tokens,
        }

    @property
    def _fleet(self) -> dict[str, Any]:
        if not self.router:
            return {}
        groups = [
            {
                **group.deployment.named,
                "engine": group.deployment.engine,
                "instances": group.instances,
                "weight": group.weight,
            }
            | {"share": share, "ttft_ms": asdict(ttft), "e2e_ms": asdict(e2e)}
            for group, share, ttft, e2e in self.by_group
        ]
        return {
            "instances": self.instances,
            "router": self.router,
            **({"unlike": groups} if groups else {}),
        }

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
            **(
                {"classes": [asdict(traffic_class) for traffic_class in w.classes]}
                if w.classes
                else {}
            ),
            **({"calibration": asdict(d.calibration)} if d.calibration is not None else {}),
            **({"speculation": str(d.speculation)} if d.speculation is not None else {}),
            **(
                {"step_model": d.step_source.name, "marks": list(self.marks)}
                if d.step_source is not None
                else {}
            ),
        }


def _arrivals(arrivals: Simulated) -> dict[str, Any]:
    """The load for a run folder; of a replayed trace its name, since the record holds the requests
    themselves.
    """
    if isinstance(arrivals, TraceArrivals):
        return {
            "trace": f"{arrivals.recording.source}{arrivals.recording.change}",
            "rate": arrivals.rate,
        }
    return asdict(arrivals)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSweep(InNotebooks):
    """Simulated points; a sequence of runs.

    Attributes:
        runs: in the order of the values, the first setting changing slowest and the load fastest.
        left_out: the settings of points that cannot be, with the reason.
    """

    runs: tuple[SimulatedRun, ...]
    left_out: tuple[tuple[Mapping[str, str], str], ...] = ()

    def __len__(self) -> int:
        """Points that were simulated."""
        return len(self.runs)

    def __iter__(self) -> Iterator[SimulatedRun]:
        """The runs one by one."""
        return iter(self.runs)

    def __contains__(self, run: object) -> bool:
        """Whether a run is among them."""
        return run in self.runs

    def __getitem__(self, place: int) -> SimulatedRun:
        """A run by its place."""
        return self.runs[place]

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        missing = [{**settings, "reason": in_python(reason)} for settings, reason in self.left_out]
        return {
            "points": [run.to_json() for run in self.runs],
            **({"left_out": missing} if missing else {}),
        }


def write_runs(folder: Path, runs: Collection[SimulatedRun], provenance: dict[str, Any]) -> None:
    """Write one run folder, or for a sweep one per point inside ``folder``.

    Raises:
        InputError: the folder exists and is not empty.
    """
    from tonnage.results.store import write_run

    for run in runs:
        load = run.workload.arrivals
        values = (
            *run.settings.items(),
            ("concurrency", load.concurrency)
            if isinstance(load, ClosedLoop)
            else ("rate", f"{load.rate:g}"),
        )
        name = ",".join(f"{key}-{folder_name(str(value))}" for key, value in values)
        write_run(
            folder if len(runs) == 1 else folder / name,
            run.scenario(),
            run.requests,
            run.summary,
            provenance,
        )


def folder_name(value: str) -> str:
    """A value as a part of a folder's name, such as "fp8+kv-fp8" or "_work_config.json"."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", value)


# What a run of several instances says next to its metrics: failures, instance-hours, limits that
# were broken.


S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """Facts of a run behind a router."""

    failures: int  # of instances, up to the arrival of the last request
    restarts: int  # of instances between seasons
    retried: int  # times that a request in flight was sent to another instance
    lost: int  # requests that failed with their instance, or for which none was available
    availability: float  # share of the instances' time in which they worked
    instance_hours: float  # held, from the first instant to the arrival of the last request
    # serving_mean, serving_most: instances that took requests, at the looks of the controller; None
    # without one
    serving_mean: float | None
    serving_most: int | None
    violations: tuple[Violation, ...]  # of the limits

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return asdict(self) | {"violations": [asdict(violation) for violation in self.violations]}


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
