"""Real processes behind the gateway, one of which is killed or frozen under load: what became of
every request."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tonnage.api.running.processes import gateway_before, served_instances
from tonnage.serve.supervisor import Child, Supervisor

MODEL = "llama-3.1-8b"
CLIENTS, TOKENS = 24, 50
BOUND_S = 20.0
"""No request may take longer; one takes about half a second."""

IDLE_S = 3
"""The gateway's idle timeout: a stream of a frozen worker is cut after so long."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """What one failure under load came to.

    Attributes:
        asked: requests that clients sent.
        seen: their ends as the clients saw them: whole, cut (the stream broke off), hung, or the
            status of an error.
        counted: the gateway's own counts, by outcome, over all backends.
        retries: requests that it sent to a second backend.
        back_s: seconds from the worker's return (it answers again) to the first request that it
            gets through the gateway.
        left: requests that the gateway believes to be running when the load is over.
    """

    asked: int
    seen: Counter[str]
    counted: Counter[str]
    retries: int
    back_s: float
    left: int


@dataclass(kw_only=True)
class Load:
    """Clients in a closed loop, in a thread of their own, until told to end."""

    port: int
    ending: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    def run(self) -> None:
        """The thread."""
        asyncio.run(self._all())

    async def _all(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))

    async def _client(self) -> None:
        while not self.ending:
            self.asked += 1
            try:
                self.seen[await asyncio.wait_for(self._ask(), BOUND_S)] += 1
            except TimeoutError:
                self.seen["hung"] += 1

    async def _ask(self) -> str:
        """How one request ended."""
        body = json.dumps(
            {"model": MODEL, "prompt": "a b c " * 100, "max_tokens": TOKENS, "stream": True}
        ).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            headers = (
                b"Host: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length:"
                b" %d\r\n\r\n" % len(body)
            )
            writer.write(b"POST /v1/completions HTTP/1.1\r\n" + headers + body)
            data = await reader.read(-1)
        except OSError:
            return "refused"
        finally:
            writer.close()
        status = data[9:12].decode()
        if status != "200":
            return f"status {status}"
        return "whole" if data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") else "cut"


def samples(url: str) -> dict[tuple[str, ...], float]:
    """The gateway's metrics, by name and labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return {
        (one.name, *(one.labels[name] for name in sorted(one.labels))): one.value
        for family in text_string_to_metric_families(page)
        for one in family.samples
    }


def fail_one(
    logs: Path, number: int, *, frozen_s: float = 6.0, before_s: float = 2.0, after_s: float = 3.0
) -> Failed:
    """Three simulated instances that take turns under load; the first gets a signal.

    Args:
        logs: folder for what the processes print.
        number: SIGKILL (its supervisor starts it again) or SIGSTOP (SIGCONT follows).
        frozen_s: seconds from one to the other.
        before_s, after_s: seconds of load before the signal, and after the worker is back.
    """
    programs = served_instances(["--engine", "simulated", "--model", MODEL], 3)
    front = gateway_before(programs, policy="round-robin")
    front = replace(front, argv=(*front.argv, "--idle-timeout", str(IDLE_S)))
    with Supervisor(programs, logs, grace_s=3) as workers:
        workers.wait_until_ready(timeout_s=120)
        with Supervisor([front], logs, grace_s=3) as gateway:
            gateway.wait_until_ready(timeout_s=30)
            load = Load(port=int(front.address.rpartition(":")[2]))
            thread = threading.Thread(target=load.run)
            thread.start()
            try:
                time.sleep(before_s)
                back_s = _failed_and_back(workers.children[0], front.url, number, frozen_s)
                time.sleep(after_s)
            finally:
                load.ending = True
                thread.join()
            found = samples(front.url)
    counted: Counter[str] = Counter()
    for (name, *labels), value in found.items():
        if name == "tonnage_gateway_requests_total":
            counted[labels[1]] += int(value)
    return Failed(
        asked=load.asked,
        seen=load.seen,
        counted=counted,
        retries=int(found[("tonnage_gateway_retries_total",)]),
        back_s=back_s,
        left=int(found[("tonnage_gateway_in_flight",)]),
    )


def _failed_and_back(child: Child, url: str, number: int, frozen_s: float) -> float:
    """Send the signal; seconds from the child's return to its first request."""
    child.kill(number)
    if number == signal.SIGSTOP:
        time.sleep(frozen_s)
        child.kill(signal.SIGCONT)
    else:
        _until(lambda: child.starts > 1 and child.serves(), 60)
    name = child.program.address
    began, before = time.monotonic(), _served(url, name)
    _until(lambda: _served(url, name) > before, 20)
    return time.monotonic() - began


def _served(url: str, name: str) -> float:
    """Requests that a backend has answered whole."""
    return samples(url)["tonnage_gateway_requests_total", name, "ok"]


def _until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)
