"""Debian's Prometheus on a simulated deployment: the rules that ``deploy`` writes, with windows
divided by 60, and what ``watch`` shows.

    ./benchmark alerts_live

An engine of the plan is served and loaded. After a while its steps take 15 times as long, and a
minute later they are as before. Printed is when each alert fires and clears, in seconds from the
first request, beside the limits that ``watch`` calls broken. The exit code is 1 where an alert on a
limit does not fire within the fault or does not clear after it, or where ``watch`` says otherwise.
It takes two and a half minutes, some ten seconds of CPU, and needs ``prometheus`` along the PATH.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage import api
from tonnage.api.bench import bench
from tonnage.bench.scrape import fetch
from tonnage.deploy.monitoring import rules
from tonnage.deploy.service import Service, service_of
from tonnage.deploy.yaml_comments import plain
from tonnage.serve.supervisor import free_ports

FASTER = 60
"""What every window is divided by."""

BEGINS_S, ENDS_S, LASTS_S = 30, 90, 125
"""The fault, and the load, in seconds from the first request."""

FACTOR, RATE, ISL, OSL = 15, 1.8, 1_000, 40
EVERY_S = 20
"""Between two looks of ``watch``: 36 requests."""
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
LIMITS = ("SlowTtftP95_1h", "SlowItlP95_1h")
"""The alerts that must fire: both windows, of a minute and of five seconds, burn at 14.4 times the
pace."""


@dataclass(slots=True)
class Seen:
    """What was seen, each with seconds from the first request."""

    began: float = 0.0
    fired: dict[str, float] = field(default_factory=dict)
    cleared: dict[str, float] = field(default_factory=dict)
    looks: list[tuple[float, list[str], str]] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds from the first request."""
        return time.monotonic() - self.began


def shorter(text: str) -> str:
    """A duration divided by ``FASTER``, in milliseconds."""
    number, unit = re.fullmatch(r"(\d+)([smhd])", text).groups()  # type: ignore[union-attr]
    return f"{max(500, 1_000 * int(number) * UNITS[unit] // FASTER)}ms"


def quickened(service: Service) -> dict[str, Any]:
    """The rules of a deployment of one instance, every window, wait and interval shorter."""
    found: dict[str, Any] = plain(
        rules(service, f'DCGM_FI_DEV_GPU_UTIL{{deployment="{service.name}"}}', 1)
    )
    for group in found["groups"]:
        group["interval"] = "500ms"
        for rule in group["rules"]:
            rule["expr"] = re.sub(
                r"\[(\d+[smhd])\]", lambda window: f"[{shorter(window[1])}]", rule["expr"]
            )
            if "for" in rule:
                rule["for"] = shorter(rule["for"])
    return found


@contextmanager
def prometheus(folder: Path, service: Service, target: int) -> Iterator[str]:
    """Debian's Prometheus, which scrapes an instance every second; its address."""
    (port,) = free_ports(1)
    (folder / "alerts.yaml").write_text(yaml.safe_dump(quickened(service)), encoding="utf-8")
    scraped = {"targets": [f"127.0.0.1:{target}"], "labels": {"deployment": service.name}}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "500ms"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [{"job_name": "engines", "static_configs": [scraped]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def served(plan: Path, port: int) -> Iterator[str]:
    """One simulated instance of the plan with the fault; its address."""
    fault = f"slow factor={FACTOR} from={BEGINS_S}s to={ENDS_S}s"
    words = [
        "serve",
        "--plan",
        str(plan),
        "--instances",
        "1",
        "--port",
        str(port),
        "--fault",
        fault,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "tonnage", *words], env=None, stderr=subprocess.DEVNULL
    )
    try:
        while not fetch(f"http://127.0.0.1:{port}/metrics"):
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def alerts(url: str, seen: Seen, stop: threading.Event) -> None:
    """Note when alerts begin and cease to fire."""
    while not stop.wait(0.5):
        with urllib.request.urlopen(f"{url}/api/v1/alerts") as response:
            found = json.load(response)["data"]["alerts"]
        firing = {one["labels"]["alertname"] for one in found if one["state"] == "firing"}
        for name in firing - set(seen.fired):
            seen.fired[name] = seen.now
        for name in set(seen.fired) - firing - set(seen.cleared):
            seen.cleared[name] = seen.now


def looks(url: str, plan: Path, seen: Seen, stop: threading.Event) -> None:
    """Note what ``watch`` says."""
    for found in api.watch([url], plan=plan, every=f"{EVERY_S}s", wait=stop.wait):
        if stop.is_set():
            return
        first = next(
            (one for one in found.latencies if one.metric == "ttft" and one.statistic == "p95"),
            None,
        )
        share = "–" if first is None or first.slower != first.slower else f"{first.slower:.0%}"
        seen.looks.append(
            (seen.now, [f"{one.metric} {one.statistic}" for one in found.broken], share)
        )


def run() -> Seen:
    """The whole of it."""
    service = service_of(dense(), checkpoint=DENSE_CHECKPOINT)
    seen, stop = Seen(), threading.Event()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plan = folder / "plan.json"
        plan.write_text(json.dumps(dense().to_json()), encoding="utf-8")
        (port,) = free_ports(1)
        with served(plan, port) as url, prometheus(folder, service, port) as rules_url:
            while not fetch(f"{rules_url}/metrics"):
                time.sleep(0.2)
            seen.began = time.monotonic()
            threads = [
                threading.Thread(target=alerts, args=(rules_url, seen, stop)),
                threading.Thread(target=looks, args=(url, plan, seen, stop)),
            ]
            for thread in threads:
                thread.start()
            load = {
                "isl": ISL,
                "osl": OSL,
                "request_rate": RATE,
                "benchmark_duration": f"{LASTS_S}s",
                "metrics_url": ["none"],
            }
            bench(url=url, model=service.served, selftest=False, **load)
            stop.set()
            for thread in threads:
                thread.join()
    return seen


def verdicts(seen: Seen) -> Iterator[tuple[bool, str]]:
    """What had to happen, and whether it did."""
    for name in LIMITS:
        fired, cleared = seen.fired.get(name), seen.cleared.get(name)
        yield (
            fired is not None and BEGINS_S < fired < ENDS_S,
            f"{name} fires {_s(fired)} (fault from {BEGINS_S} s to {ENDS_S} s)",
        )
        yield cleared is not None and cleared > ENDS_S, f"{name} clears {_s(cleared)}"
    within = [set(broken) for at, broken, _ in seen.looks if BEGINS_S + EVERY_S < at < ENDS_S]
    outside = [broken for at, broken, _ in seen.looks if at < BEGINS_S or at > ENDS_S + EVERY_S + 2]
    said = (
        bool(within)
        and all("itl p95" in broken for broken in within)
        and any("ttft p95" in broken for broken in within)
    )
    yield said, f"watch calls the limits broken in {len(within)} looks within the fault"
    yield (
        bool(outside) and not any(outside),
        f"watch calls nothing broken in {len(outside)} looks before and after it",
    )


def _s(value: float | None) -> str:
    return "never" if value is None else f"after {value:.0f} s"


def main() -> int:
    """Print everything."""
    seen = run()
    print("watch: after s, broken limits, share of requests slower than the limit on TTFT")
    for at, broken, share in seen.looks:
        print(f"  {at:6.1f}  {', '.join(broken) or '–':20} {share}")
    others = {name: at for name, at in seen.fired.items() if name not in LIMITS}
    print("other alerts:", ", ".join(f"{name} {_s(at)}" for name, at in others.items()) or "none")
    found = list(verdicts(seen))
    for good, text in found:
        print("ok  " if good else "NOT ", text)
    return 0 if all(good for good, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main())
