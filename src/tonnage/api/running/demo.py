"""``tonnage demo``: four GPUs that are not there, served, measured, one of them killed, and the measurement next to the prediction."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.api.bench import Watch
    from tonnage.api.running.processes import Processes
    from tonnage.bench.benchmark import Measured
    from tonnage.results.requests import Requests
    from tonnage.serve.demonstration import Demonstration, Failure
    from tonnage.serve.supervisor import Child

MODEL, GPU, PRECISION = "llama-3.1-8b", "h100-sxm-80gb", "fp8"
ISL, OSL = 1_000, 100
REQUESTS_PER_SECOND = 12.0
INSTANCES = 4
ROUTER = "least-outstanding"

LEAST_S, LONGEST_S = 6.0, 3_600.0
STEADY_SHARE = 0.5
"""Of the seconds; the rest is the load under which an instance is killed."""
KILLED_AT = 0.25
"""Share of the second load after which it is killed."""

SOON_S = 5.0
"""Seconds that each process has to end."""

Told = Callable[[str], None]


def _silent(line: str) -> None:
    return None


def _nobody(words: str) -> None:
    return None


@dataclass(slots=True)
class Kill:
    """The killing of one child from its own thread."""

    child: Child
    after_s: float  # seconds from ``begin``
    back_s: float | None = None  # seconds until it served again; None as long as it does not
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to wait."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self, wait_s: float) -> None:
        """Stop looking after a last wait for its return."""
        if self._thread is not None:
            self._thread.join(timeout=wait_s)
        self._done.set()

    def _run(self) -> None:
        if self._done.wait(self.after_s):
            return
        began, starts = time.monotonic(), self.child.starts
        self.child.kill()
        while not self._done.wait(0.02):
            if self.child.starts > starts and self.child.serves():
                self.back_s = time.monotonic() - began
                return


def demo(*, seconds: float = 30.0, seed: int = 0, told: Told = _silent, watch: Watch = _nobody) -> Demonstration:
    """Serve a simulated fleet behind the gateway, measure it, kill one instance under load.

    Args:
        seconds: of both loads together.
        seed: of the arrivals.
        told: takes a line about each step.
        watch: makes who looks on at a load.

    Raises:
        InputError: seconds out of range.
        TonnageError: a process does not start.
    """
    if not LEAST_S <= seconds <= LONGEST_S:
        raise InputError(f"{option('seconds')}: {seconds:g} is not possible; write {LEAST_S:g} to {LONGEST_S:,.0f}")
    from tonnage.api.running.processes import READY_S, gateway_before, processes, served_instances
    from tonnage.serve.demonstration import Demonstration, beside

    fleet = f"{INSTANCES} × {MODEL} in {PRECISION.upper()} on {GPU}, simulated, behind the gateway ({ROUTER})"
    told(f"Starting {fleet} …")
    instances = served_instances(["--engine", "simulated", "--model", MODEL, "--gpu", GPU, "--precision", PRECISION], INSTANCES)
    gateway = gateway_before(instances, policy=ROUTER)

    def seen(ready: int, of: int) -> None:
        told(f"{ready} of {of} instances serve.")

    with (
        tempfile.TemporaryDirectory() as logs,
        processes(instances, gateway, Path(logs), ready_s=READY_S, grace_s=SOON_S, told=told, seen=seen) as fleet_up,
    ):
        steady = _measure(fleet_up, seconds * STEADY_SHARE, seed=seed, selftest=True, watch=watch)
        told("Measured. Now the same load again, and one instance is killed.")
        failure = _with_a_failure(fleet_up, seconds * (1 - STEADY_SHARE), seed=seed + 1, told=told, watch=watch)
    predicted = _predicted(steady.requests)
    from tonnage.results.metrics import summarize

    return Demonstration(
        fleet=fleet,
        load=f"{steady.load.words}, {ISL} tokens in and {OSL} out",
        requests=steady.summary.counted,
        beside=beside(summarize(predicted), steady.summary),
        client=steady.validity.verdict,
        client_reasons=tuple(steady.validity.reasons),
        failure=failure,
    )


def _measure(fleet: Processes, seconds: float, *, seed: int, selftest: bool, watch: Watch) -> Measured:
    from tonnage.api.bench import prepare_bench, run_bench

    asked = prepare_bench(
        url=fleet.url,
        model=MODEL,
        isl=ISL,
        osl=OSL,
        endpoint_type="completions",
        request_rate=REQUESTS_PER_SECOND,
        benchmark_duration=f"{seconds:g}s",
        metrics_url=["none"],
        warmup_request_count=2 * INSTANCES,
        seed=seed,
    )
    return run_bench(asked, output=None, selftest=selftest, provenance={}, watch=watch)[0]


def _with_a_failure(fleet: Processes, seconds: float, *, seed: int, told: Told, watch: Watch) -> Failure:
    """The same load while the first instance is killed."""
    from tonnage.serve.demonstration import Failure

    kill = Kill(fleet.supervisor.children[0], after_s=seconds * KILLED_AT)
    before = _retries(fleet.url)
    kill.begin()
    run = _measure(fleet, seconds, seed=seed, selftest=False, watch=watch)
    kill.end(wait_s=5.0)
    told("Done; ending all processes.")
    return Failure(
        instance=fleet.instances[0],
        after_s=kill.after_s,
        back_s=kill.back_s,
        sent=run.observed.sent,
        completed=run.summary.counted,
        failed=int(run.summary_json["errors"]),
        retried=int(_retries(fleet.url) - before),
        ttft_p95_ms=run.summary.ttft_ms.p95,
    )


def _retries(url: str) -> float:
    """Requests that the gateway has sent to a second instance so far."""
    from prometheus_client.parser import text_string_to_metric_families

    from tonnage.bench.scrape import fetch

    families = text_string_to_metric_families(fetch(f"{url}/metrics"))
    return sum(one.value for family in families for one in family.samples if one.name == "tonnage_gateway_retries_total")


def _predicted(requests: Requests) -> Requests:
    """What the simulator makes of the due times and lengths of a run."""
    from tonnage.api.question.deployment import deployment_of
    from tonnage.api.running.serve import NEWEST
    from tonnage.evidence.replay import replay

    deployment = deployment_of(model=MODEL, gpu=GPU, precision=PRECISION, tp=1, engine=NEWEST)
    return replay(requests, deployment, gpus_per_system=8, instances=INSTANCES, router=ROUTER)
