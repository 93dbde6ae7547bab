"""Mixed load with faults through a gateway for a while: does it keep memory or descriptors?

    ./benchmark soak                               ten minutes
    ./benchmark soak --seconds 120

Three simulated instances, processes of their own, refuse, fail and cut a few per cent of their requests; one after another is killed, or
frozen for three seconds, every 20 seconds. Clients stream, ask for whole answers, leave, read slowly, drip, send too much and smuggle.
Printed are the resident memory and the descriptors of the gateway's process, once a quarter of the time has passed and when the load is
over and idle connections have closed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.gateway.failing import samples
from tests.gateway.fakes import post
from tests.gateway.hostile import OVERSIZE, Used, asks, drips, leaves, reads_slowly, status_of, used_by
from tests.gateway.test_bounds import SMUGGLED
from tonnage.api.running.processes import gateway_before, served_instances
from tonnage.serve.supervisor import Child, Program, Supervisor
from tonnage.simulator.kernel import warm_up

MODEL = "llama-3.1-8b"
FAULTS = ["--fault", "cut share=0.03 after=5", "--fault", "429 share=0.02", "--fault", "500 share=0.02"]
STREAMS, EVERY_S, FROZEN_S, SETTLE_S = 16, 20.0, 3.0, 8.0


def gateway(instances: list[Program], folder: Path) -> Program:
    """The gateway's program."""
    config, plain = folder / "gateway.yaml", gateway_before(instances, policy="least-outstanding")
    port = plain.address.rpartition(":")[2]
    config.write_text(f"backends: [{', '.join(one.url for one in instances)}]\nidle_timeout: 5\nport: {port}\n")
    argv = (sys.executable, "-m", "tonnage", "gateway", "--config", str(config))
    return Program(name="gateway", argv=argv, address=plain.address, path=plain.path)


def least(pid: int) -> Used:
    """The least memory within two seconds: a body of 32 MB that is on its way says nothing; and the descriptors after them."""
    found = []
    for _ in range(10):
        found.append(used_by(pid))
        time.sleep(0.2)
    return Used(memory_mb=min(one.memory_mb for one in found), descriptors=found[-1].descriptors)


class Soak:
    """The clients, until a moment."""

    def __init__(self, port: int, until: float) -> None:
        """Of the gateway at a port."""
        self.port, self.until = port, until
        self.seen: Counter[str] = Counter()
        self._random = random.Random(0)

    async def run(self) -> None:
        """All of them."""
        kinds = [self._streams] * STREAMS + [self._whole, self._whole, self._leaves, self._slow, self._drips, self._hostile, self._reads]
        await asyncio.gather(*(self._again(kind) for kind in kinds))

    async def _again(self, kind: Callable[[], Awaitable[str]]) -> None:
        while time.monotonic() < self.until:
            try:
                said = await asyncio.wait_for(kind(), 40)
            except (OSError, TimeoutError) as error:
                said = type(error).__name__
            self.seen[f"{kind.__name__.strip('_')}: {said}"] += 1

    def _body(self, *, stream: bool) -> bytes:
        words = "word " * self._random.randrange(10, 400)
        return b'{"model": "%s", "prompt": "%s", "max_tokens": %d, "stream": %s}' % (
            MODEL.encode(),
            words.encode(),
            self._random.randrange(1, 60),
            b"true" if stream else b"false",
        )

    async def _streams(self) -> str:
        status, data = await asks(self.port, post(self._body(stream=True), "/v1/completions", "Connection: close"))
        return str(status) if status != 200 or data.endswith(b"0\r\n\r\n") else "cut"

    async def _whole(self) -> str:
        status, _ = await asks(self.port, post(self._body(stream=False), "/v1/completions", "Connection: close"))
        return str(status)

    async def _leaves(self) -> str:
        await leaves(self.port, self._random.random() / 5)
        return "left"

    async def _slow(self) -> str:
        await reads_slowly(self.port, 1.0)
        return "read"

    async def _drips(self) -> str:
        return str(await drips(self.port))

    async def _hostile(self) -> str:
        data = self._random.choice([*SMUGGLED.values(), *OVERSIZE.values()])
        return str(await status_of(self.port, data))

    async def _reads(self) -> str:
        await asyncio.sleep(1.0)
        return str(await status_of(self.port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"))


async def faults(children: tuple[Child, ...], until: float) -> int:
    """Kill one and freeze another, in turn; how often."""
    for count in itertools.count():
        if time.monotonic() + EVERY_S > until:
            return count
        await asyncio.sleep(EVERY_S - FROZEN_S)
        child = children[count % len(children)]
        child.kill(signal.SIGKILL if count % 2 else signal.SIGSTOP)
        await asyncio.sleep(FROZEN_S)
        if not count % 2:
            child.kill(signal.SIGCONT)
    return 0


async def soak(pid: int, port: int, children: tuple[Child, ...], seconds: float) -> None:
    """Print what the gateway held as the load went on, and what clients saw."""
    begin = time.monotonic()
    clients = Soak(port, begin + seconds)
    running = asyncio.gather(clients.run(), faults(children, begin + seconds))
    for quarter in range(1, 5):
        await asyncio.wait({running}, timeout=max(begin + quarter * seconds / 4 - 3 - time.monotonic(), 0))
        now = await asyncio.to_thread(least, pid)
        if quarter == 1:
            first = now
        print(f"{quarter * seconds / 4:6.0f} s: {now.memory_mb:7.1f} MB, {now.descriptors:5} descriptors under load", flush=True)
    _, count = await running
    await asyncio.sleep(SETTLE_S)
    last = used_by(pid)
    print(f"   after: {last.memory_mb:7.1f} MB, {last.descriptors:5} descriptors; memory grew {last.memory_mb - first.memory_mb:+.1f} MB")
    print(f"{count} instances were killed or frozen; clients saw {dict(sorted(clients.seen.items()))}")


def main() -> None:
    """Print memory and descriptors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    warm_up()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        instances = served_instances(["--engine", "simulated", "--model", MODEL, *FAULTS], 3)
        program = gateway(instances, folder)
        with Supervisor(instances, folder, grace_s=3) as below, Supervisor([program], folder, grace_s=15) as front:
            below.wait_until_ready(timeout_s=120)
            front.wait_until_ready(timeout_s=30)
            time.sleep(2)
            pid = front.children[0].pid
            start = used_by(pid)
            print(f"   start: {start.memory_mb:7.1f} MB, {start.descriptors:5} descriptors", flush=True)
            asyncio.run(soak(pid, int(program.address.rpartition(":")[2]), below.children, asked.seconds))
            found = samples(program.url)
            names = ("in_flight", "clients", "retries_total", "cut_streams_total")
            print("the gateway counts", {name: int(found[(f"tonnage_gateway_{name}",)]) for name in names})
            if front.children[0].starts > 1:
                raise SystemExit("the gateway ended and was started again")


if __name__ == "__main__":
    main()
