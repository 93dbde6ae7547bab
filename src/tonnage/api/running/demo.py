"""Simulated fleets under load, one instance of which is killed: ``tonnage demo``, and the rehearsal
of a folder that ``deploy`` wrote.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tonnage.api.bench import Watch, prepare_bench, run_bench
from tonnage.api.question.deployment import deployment_of
from tonnage.api.running.gateway import HERE, gateway_from, proxy_command
from tonnage.api.running.processes import (
    READY_S,
    Processes,
    gateway_before,
    processes,
    served_instances,
)
from tonnage.api.running.serve import NEWEST
from tonnage.bench.benchmark import Measured
from tonnage.bench.scrape import fetch
from tonnage.csv_file import read_text
from tonnage.deploy.compose import ROUTER
from tonnage.deploy.plan_text import bench_lengths
from tonnage.deploy.service import PLAN, is_simulated, simulated_options
from tonnage.deploy.targets import deployed
from tonnage.errors import InputError, TonnageError, option
from tonnage.evidence.replay import replay
from tonnage.formats.prometheus import Page
from tonnage.plan.launch import CHECKPOINT_NAME
from tonnage.plan.plan import Plan
from tonnage.report.plans.plan_document import read_plans
from tonnage.report.verified import Rehearsal
from tonnage.results.metrics import summarize
from tonnage.results.requests import Requests
from tonnage.serve.demonstration import Demonstration, Failure, beside
from tonnage.serve.supervisor import Child, Program, Supervisor
from tonnage.spec.typed_values import bounded
from tonnage.units import parse_duration

MODEL, GPU, PRECISION = "llama-3.1-8b", "h100-sxm-80gb", "fp8"
ISL, OSL = 1_000, 100
REQUESTS_PER_SECOND = 12.0
INSTANCES = 4
POLICY = "least-outstanding"

LEAST_S, LONGEST_S = 6.0, 3_600.0
STEADY_SHARE = 0.5  # Of the seconds; the rest is the load under which an instance is killed
KILLED_AT = 0.25  # Share of the second load after which it is killed
SOON_S = 5.0  # Seconds that each process has to end

Told = Callable[[str], None]


@dataclass(slots=True)
class Kill:
    """The killing of one child from its own thread."""

    child: Child
    after_s: float  # seconds from ``begin``
    back_s: float | None = None  # seconds until it served again; None as long as it does not
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the clock."""
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


def demo(
    *,
    seconds: float = 30.0,
    seed: int = 0,
    announce: Told = lambda line: None,
    watch: Watch = lambda words: None,
) -> Demonstration:
    """Serve a simulated fleet behind the gateway, measure it, kill one instance under load;
    ``announce`` and ``watch`` follow it.

    Raises InputError: ``seconds``, of both loads together, out of range; TonnageError: a process
    does not start.
    """
    if not LEAST_S <= seconds <= LONGEST_S:
        raise InputError(
            f"{option('seconds')}: {seconds:g} is not possible; write {LEAST_S:g} to"
            f" {LONGEST_S:,.0f}"
        )
    fleet = (
        f"{INSTANCES} × {MODEL} in {PRECISION.upper()} on {GPU}, simulated, behind the gateway"
        f" ({POLICY})"
    )
    announce(f"Starting {fleet} …")
    instances = served_instances(
        ["--engine", "simulated", "--model", MODEL, "--gpu", GPU, "--precision", PRECISION],
        INSTANCES,
    )
    gateway = gateway_before(instances, policy=POLICY)

    def seen(ready: int, of: int) -> None:
        announce(f"{ready} of {of} instances serve.")

    with (
        tempfile.TemporaryDirectory() as logs,
        processes(
            instances,
            gateway,
            Path(logs),
            ready_s=READY_S,
            grace_s=SOON_S,
            announce=announce,
            on_ready=seen,
        ) as fleet_up,
    ):
        steady = _measure(fleet_up, seconds * STEADY_SHARE, seed=seed, selftest=True, watch=watch)
        announce("Measured. Now the same load again, and one instance is killed.")
        failure = _with_a_failure(
            fleet_up, seconds * (1 - STEADY_SHARE), seed=seed + 1, announce=announce, watch=watch
        )
    deployment = deployment_of(model=MODEL, gpu=GPU, precision=PRECISION, tp=1, engine=NEWEST)
    predicted = replay(
        steady.requests, deployment, gpus_per_system=8, instances=INSTANCES, router=POLICY
    )
    return Demonstration(
        fleet=fleet,
        load=f"{steady.load.words}, {ISL} tokens in and {OSL} out",
        requests=steady.summary.counted,
        beside=beside(summarize(predicted), steady.summary),
        client=steady.validity.verdict,
        client_reasons=tuple(steady.validity.reasons),
        failure=failure,
    )


def _measure(
    fleet: Processes, seconds: float, *, seed: int, selftest: bool, watch: Watch
) -> Measured:
    bench = prepare_bench(
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
    (run,) = run_bench(bench, output=None, selftest=selftest, provenance={}, watch=watch)
    if run.observed.interrupted:
        raise KeyboardInterrupt  # which ends the demonstration with its processes
    return run


def _with_a_failure(
    fleet: Processes, seconds: float, *, seed: int, announce: Told, watch: Watch
) -> Failure:
    """Run the same load again and kill the first instance meanwhile."""
    kill = Kill(fleet.supervisor.children[0], after_s=seconds * KILLED_AT)
    before = _retries(fleet.url)
    kill.begin()
    run = _measure(fleet, seconds, seed=seed, selftest=False, watch=watch)
    kill.end(wait_s=5.0)
    announce("Done; ending all processes.")
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
    """Requests that the gateway has sent to a second instance."""
    return Page(fetch(f"{url}/metrics")).total("tonnage_gateway_retries_total")


ALERT = "InstancesMissing"


@dataclass(slots=True, kw_only=True)
class _Kill:
    """Kills an instance in the middle of a run of the load client."""

    victim: Child
    after_s: float
    at_ns: int = 0
    start_ns: int = 0

    def begin(self, conductor: Any, client: Any) -> None:
        """Set the clock."""
        self.start_ns = conductor.start_ns
        threading.Thread(target=self._kill, daemon=True).start()

    def _kill(self) -> None:
        time.sleep(max(0.0, self.start_ns / 1e9 + self.after_s - time.monotonic()))
        self.victim.kill()
        self.at_ns = time.monotonic_ns() - self.start_ns

    def seen(self, exchange: Any, times: Any) -> None:
        """Ignore the exchange: only the clock matters here."""

    def end(self) -> None:
        """Do nothing."""


def rehearse(
    folder: str | Path,
    *,
    duration: str = "60s",
    request_rate: float | None = None,
    proxy: str = "embedded",
    announce: Callable[[str], None],
) -> Rehearsal:
    """Start what ``deploy`` wrote for Compose with simulated engines, send the plan's load, and
    kill one instance in the middle.

    Raises InputError: no simulated services of Compose, or a port that is taken; TonnageError: a
    process does not serve, or ended early.
    """
    place, seconds = Path(folder).absolute(), parse_duration(duration, option("duration"))
    if not (place / PLAN).is_file():
        raise InputError(
            f"{option('folder')}: {folder} holds no {PLAN}; name a folder that tonnage deploy wrote"
        )
    (plan,) = read_plans(place / PLAN)
    engines, served = _engines(place, plan)
    rate = plan.demand.sizing_requests_per_second if request_rate is None else request_rate
    settings = gateway_from(place / "gateway.yaml", {"host": HERE})
    embedded = (
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        "--config",
        str(place / "gateway.yaml"),
        "--host",
        HERE,
        "--proxy",
        "embedded",
    )
    argv = proxy_command(proxy, settings) or embedded
    front = Program(
        name="gateway",
        argv=argv,
        address=f"{settings.host}:{settings.port}",
        path="/v1/health/live",
    )
    for program in (*engines, front):
        host, _, port = program.address.rpartition(":")
        with socket.socket() as tried:
            if tried.connect_ex((host, int(port))) == 0:
                raise InputError(
                    f"{option('folder')}: {program.address} of {program.name} is taken; stop what"
                    " listens there, or write another port"
                )
    addresses = {engine.address for engine in engines}
    for target, _ in settings.backends:
        if target.authority not in addresses:
            raise InputError(
                f"{option('folder')}: {place / 'gateway.yaml'} sends to {target.authority}, which"
                " is no instance of compose.yaml on this machine; write the folder again"
            )
    bench = prepare_bench(
        url=front.url,
        model=served,
        request_rate=rate,
        benchmark_duration=f"{seconds:g}s",
        slo=[
            f"{limit.metric} {limit.statistic}<={limit.milliseconds:g}ms"
            for limit in plan.scenario.limits_that_count
            if limit.share is None
        ],
        **bench_lengths(plan),
    )
    with (
        tempfile.TemporaryDirectory(prefix="tonnage-rehearsal-") as logs,
        Supervisor(engines, Path(logs), restarts=False) as fleet,
    ):
        fleet.wait_until_ready(
            timeout_s=600.0,
            on_ready=lambda serving, of: announce(f"{serving} of {of} instances serve"),
        )
        with Supervisor([front], Path(logs)) as gateway:
            gateway.wait_until_ready(timeout_s=60.0)
            kill = _Kill(victim=fleet.children[-1], after_s=seconds / 2)
            announce(
                f"{rate:g} requests/s for {seconds:g} s; {engines[-1].name} is killed after"
                f" {seconds / 2:g} s"
            )
            (measured,) = run_bench(
                bench, output=None, selftest=False, provenance={}, watch=lambda words: kill
            )
    if not kill.at_ns:
        raise TonnageError("the run ended before the instance was killed; rehearse again")
    lost = measured.requests.status > 1
    before = measured.requests.sent_ns <= kill.at_ns
    limits, within = _before(plan, measured.requests, kill.at_ns)
    return Rehearsal(
        instances=len(engines),
        sent=len(measured.requests),
        completed=int((measured.requests.status == 0).sum()),
        lost=int((lost & before).sum()),
        lost_after=int((lost & ~before).sum()),
        limits=limits,
        within=within,
        fired=_fired(place, engines, killed_after=kill.at_ns / 1e9 / seconds),
        invalid=tuple(str(reason) for reason in measured.validity.reasons),
    )


def _engines(folder: Path, plan: Plan) -> tuple[list[Program], str]:
    """The programs of the instances that ``compose.yaml`` describes, on the ports that it
    publishes, and the model's name.

    What runs is the plan's simulated engine: a command of the file that is not the one that
    ``deploy`` writes for it is refused.
    """
    import yaml

    file = folder / "compose.yaml"
    again = (
        f"write the folder by tonnage deploy with {option('target')} compose and"
        f" {option('simulated')}"
    )
    if not file.is_file():
        if (folder / ROUTER).is_file():
            raise InputError(
                f"{option('folder')}: {folder} is for several machines; a rehearsal takes a plan of"
                " one system"
            )
        raise InputError(f"{option('folder')}: {folder} holds no compose.yaml; {again}")
    planned = simulated_options(deployed(plan, "compose", simulated=True).argv)
    programs, served = [], ""
    try:
        # with the merged keys that Compose's own reader takes
        document = bounded(yaml.safe_load(read_text(file)), str(file))
        instances = {
            name: (
                described["entrypoint"],
                int(str(described["ports"][0]).split(":")[1]),
                list(map(str, described["command"])),
            )
            for name, described in document["services"].items()
            if name.startswith("instance-")
        }
    except (
        *(AttributeError, IndexError, KeyError, TypeError, ValueError),
        *(yaml.YAMLError, RecursionError),
    ) as error:
        raise InputError(
            f"{option('folder')}: {file} is not as deploy writes it"
            f" ({type(error).__name__}); {again}"
        ) from None
    for name, (entrypoint, port, command) in instances.items():
        if entrypoint != ["tonnage"]:
            raise InputError(f"{option('folder')}: {name} in {file} is a real engine; {again}")
        options = simulated_options(command)
        served = options.get("--served-model-name", "")
        if not is_simulated(options, planned) or CHECKPOINT_NAME.fullmatch(served) is None:
            raise InputError(
                f"{option('folder')}: the command of {name} in {file} is not that of the plan's"
                f" simulated engine; {again}"
            )
        options |= {"--plan": str(folder / PLAN), "--port": str(port), "--host": HERE}
        words = (sys.executable, "-m", "tonnage", "serve", *chain.from_iterable(options.items()))
        programs.append(Program(name=name, argv=words, address=f"{HERE}:{port}"))
    return programs, served


def _before(
    plan: Plan, requests: Requests, killed_ns: int
) -> tuple[tuple[tuple[str, float | None], ...], bool]:
    """The plan's limits over what ended before the kill."""
    ended = (requests.status == 0) & (requests.last_token_ns <= killed_ns)
    limits = [limit for limit in plan.scenario.limits_that_count if limit.share is None]
    if not ended.any():
        return tuple((str(limit), None) for limit in limits), False
    summary = summarize(requests.some(ended.nonzero()[0]))
    values = [summary.statistic_ms(limit.metric, limit.statistic) for limit in limits]
    within = all(value <= limit.milliseconds for limit, value in zip(limits, values, strict=True))
    return tuple((str(limit), value) for limit, value in zip(limits, values, strict=True)), within


def _fired(folder: Path, engines: list[Program], *, killed_after: float) -> bool | None:
    """Whether ``alerts.yaml`` reports the missing instance, by promtool: over an hour, in which it
    is up for the same share.
    """
    import yaml

    if shutil.which("promtool") is None:
        return None
    rules = yaml.safe_load((folder / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    alert = next(rule for group in rules for rule in group["rules"] if rule.get("alert") == ALERT)
    scraped = yaml.safe_load((folder / "prometheus.yaml").read_text(encoding="utf-8"))[
        "scrape_configs"
    ][0]["static_configs"][0]
    labels = ",".join(f'{name}="{value}"' for name, value in scraped["labels"].items())
    up = round(60 * killed_after)
    series = [
        {
            "series": f'up{{instance="{engine.name}",{labels}}}',
            "values": "1x60" if engine is not engines[-1] else f"1x{up - 1} 0x{60 - up}",
        }
        for engine in engines
    ]
    expected = [{"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}]
    tried = [
        {"eval_time": f"{up - 1}m", "alertname": ALERT},
        {"eval_time": "60m", "alertname": ALERT, "exp_alerts": expected},
    ]
    with tempfile.TemporaryDirectory() as scratch:
        test = {"interval": "1m", "input_series": series, "alert_rule_test": tried}
        document = {
            "rule_files": [str(folder / "alerts.yaml")],
            "evaluation_interval": "1m",
            "tests": [test],
        }
        (Path(scratch) / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yaml"],
            cwd=scratch,
            capture_output=True,
            check=False,
            timeout=300,
        )
    return done.returncode == 0
