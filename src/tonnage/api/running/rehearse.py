"""A rehearsal of a written folder on this machine: its simulated engines and its gateway as processes, under the plan's load."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, TonnageError, option
from tonnage.report.verified import Rehearsal

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.results.requests import Requests
    from tonnage.serve.supervisor import Child, Program

ALERT = "InstancesMissing"


@dataclass(kw_only=True)
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
        """Of no interest."""

    def end(self) -> None:
        """Nothing to end."""


def rehearse(folder: str | Path, *, duration: str = "60s", request_rate: float | None = None, told: Callable[[str], None]) -> Rehearsal:
    """Start what ``deploy`` wrote for Compose with simulated engines, send the plan's load, and kill one instance in the middle.

    Args:
        folder: that deploy wrote.
        duration: of the load.
        request_rate: requests/s in place of the plan's peak, where this machine cannot simulate that many.
        told: takes lines about progress.

    Raises:
        InputError: a folder without simulated services of Compose, or a port of theirs that is taken.
        TonnageError: a process does not serve, or the run was ended before the kill.
    """
    from tonnage.api.bench import prepare_bench, run_bench
    from tonnage.api.running.gateway import gateway_from
    from tonnage.deploy.plan_text import bench_lengths
    from tonnage.deploy.service import PLAN
    from tonnage.plan.plan import Plan
    from tonnage.serve.supervisor import Program, Supervisor
    from tonnage.units import parse_duration

    place, seconds = Path(folder).absolute(), parse_duration(duration, option("duration"))
    engines, served = _engines(place)
    plan = Plan.from_json(json.loads((place / PLAN).read_text(encoding="utf-8")))
    rate = plan.demand.sizing_requests_per_second if request_rate is None else request_rate
    argv = (sys.executable, "-m", "tonnage", "gateway", "--config", str(place / "gateway.yaml"))
    settings = gateway_from(place / "gateway.yaml", {})
    front = Program(name="gateway", argv=argv, address=f"{settings.host}:{settings.port}", path="/v1/health/live")
    for one in (*engines, front):
        host, _, port = one.address.rpartition(":")
        with socket.socket() as tried:
            if tried.connect_ex((host, int(port))) == 0:
                raise InputError(
                    f"{option('folder')}: {one.address} of {one.name} is taken; stop what listens there, or write another port"
                )
    asked = prepare_bench(
        url=front.url,
        model=served,
        request_rate=rate,
        benchmark_duration=f"{seconds:g}s",
        slo=[f"{one.metric} {one.statistic}<={one.milliseconds:g}ms" for one in plan.scenario.limits_that_count if one.share is None],
        **bench_lengths(plan),
    )
    with tempfile.TemporaryDirectory(prefix="tonnage-rehearsal-") as logs, Supervisor(engines, Path(logs), restarts=False) as fleet:
        fleet.wait_until_ready(timeout_s=600.0, seen=lambda serving, of: told(f"{serving} of {of} instances serve"))
        with Supervisor([front], Path(logs)) as gateway:
            gateway.wait_until_ready(timeout_s=60.0)
            kill = _Kill(victim=fleet.children[-1], after_s=seconds / 2)
            told(f"{rate:g} requests/s for {seconds:g} s; {engines[-1].name} is killed after {seconds / 2:g} s")
            (found,) = run_bench(asked, output=None, selftest=False, provenance={}, watch=lambda words: kill)
    if not kill.at_ns:
        raise TonnageError("the run ended before the instance was killed; rehearse again")
    lost = found.requests.status > 1
    before = found.requests.sent_ns <= kill.at_ns
    limits, within = _before(plan, found.requests, kill.at_ns)
    return Rehearsal(
        instances=len(engines),
        sent=len(found.requests),
        completed=int((found.requests.status == 0).sum()),
        lost=int((lost & before).sum()),
        lost_after=int((lost & ~before).sum()),
        limits=limits,
        within=within,
        fired=_fired(place, engines, killed_after=kill.at_ns / 1e9 / seconds),
        invalid=tuple(str(one) for one in found.validity.reasons),
    )


def _engines(folder: Path) -> tuple[list[Program], str]:
    """The programs of the instances that ``compose.yaml`` describes, on the ports that it publishes, and the model's name."""
    import yaml

    from tonnage.deploy.compose import ROUTER
    from tonnage.deploy.service import PLAN
    from tonnage.serve.supervisor import Program

    file, again = folder / "compose.yaml", f"write the folder by tonnage deploy with {option('target')} compose and {option('simulated')}"
    if not file.is_file():
        if (folder / ROUTER).is_file():
            raise InputError(f"{option('folder')}: {folder} is for several machines; a rehearsal takes a plan of one system")
        raise InputError(f"{option('folder')}: {folder} holds no compose.yaml; {again}")
    services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
    found, served = [], ""
    for name, one in services.items():
        if not name.startswith("instance-"):
            continue
        if one.get("entrypoint") != ["tonnage"]:
            raise InputError(f"{option('folder')}: {name} in {file} is a real engine; {again}")
        host, port, _ = str(one["ports"][0]).split(":")
        words = [str(folder / PLAN) if str(word).endswith(f"/{PLAN}") else str(word) for word in one["command"]]
        words[words.index("--port") + 1], words[words.index("--host") + 1] = port, host
        served = words[words.index("--served-model-name") + 1]
        found.append(Program(name=name, argv=(sys.executable, "-m", "tonnage", *words), address=f"{host}:{port}"))
    return found, served


def _before(plan: Plan, requests: Requests, killed_ns: int) -> tuple[tuple[tuple[str, float | None], ...], bool]:
    """The plan's limits over what ended before the kill."""
    from tonnage.results.metrics import summarize

    ended = (requests.status == 0) & (requests.last_token_ns <= killed_ns)
    limits = [one for one in plan.scenario.limits_that_count if one.share is None]
    if not ended.any():
        return tuple((str(one), None) for one in limits), False
    summary = summarize(requests.some(ended.nonzero()[0]))
    values = [summary.statistic_ms(one.metric, one.statistic) for one in limits]
    kept = all(value <= one.milliseconds for one, value in zip(limits, values, strict=True))
    return tuple((str(one), value) for one, value in zip(limits, values, strict=True)), kept


def _fired(folder: Path, engines: list[Program], *, killed_after: float) -> bool | None:
    """Whether ``alerts.yaml`` reports the missing instance, by promtool: over an hour, in which it is up for the same share."""
    import yaml

    if shutil.which("promtool") is None:
        return None
    rules = yaml.safe_load((folder / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    alert = next(rule for group in rules for rule in group["rules"] if rule.get("alert") == ALERT)
    scraped = yaml.safe_load((folder / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"][0]["static_configs"][0]
    labels = ",".join(f'{name}="{value}"' for name, value in scraped["labels"].items())
    up = round(60 * killed_after)
    series = [
        {"series": f'up{{instance="{one.name}",{labels}}}', "values": "1x60" if one is not engines[-1] else f"1x{up - 1} 0x{60 - up}"}
        for one in engines
    ]
    expected = [{"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}]
    tried = [{"eval_time": f"{up - 1}m", "alertname": ALERT}, {"eval_time": "60m", "alertname": ALERT, "exp_alerts": expected}]
    with tempfile.TemporaryDirectory() as scratch:
        test = {"interval": "1m", "input_series": series, "alert_rule_test": tried}
        document = {"rule_files": [str(folder / "alerts.yaml")], "evaluation_interval": "1m", "tests": [test]}
        (Path(scratch) / "test.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        done = subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=scratch, capture_output=True, check=False, timeout=300)
    return done.returncode == 0
