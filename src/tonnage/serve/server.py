"""Runs a fleet of simulated instances behind HTTP until it gets a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tonnage.errors import InputError, TonnageError, option
from tonnage.serve.app import Cut, Service
from tonnage.serve.clock import WallClock
from tonnage.serve.dialect import OF_VLLM, Dialect
from tonnage.serve.faults import Fault, Faults, clock_changes
from tonnage.serve.fleet import Fleet
from tonnage.serve.instance import Instance
from tonnage.serve.prefix import CachedEngine
from tonnage.serve.request import Limits, TokenReader
from tonnage.serve.routes import application
from tonnage.serve.simulated import Simulated
from tonnage.serve.supervision.child import STARTS
from tonnage.serve.transfer import Transfers
from tonnage.version import VERSION

if TYPE_CHECKING:
    from tonnage.serve.events import Publisher
    from tonnage.serve.tokens import Tokens
    from tonnage.serve.transfer import Role
    from tonnage.simulator.engine import Engine
    from tonnage.simulator.pools import KvLink
    from tonnage.spec.lengths import Lengths

KILLED = 137
"""Exit code of a process that was killed."""

STARTS_IN_S = 60
"""Seconds that a server in a thread may take to start."""

DRAIN_S = 10
"""Seconds that streams have to end after the server got a signal."""


class Servable(Protocol):
    """What ``serve`` serves."""

    @property
    def host(self) -> str:
        """Where the server listens."""

    @property
    def port(self) -> int:
        """Its port; 0 takes a free one."""

    def build(self, loop: asyncio.AbstractEventLoop) -> Service:
        """The service on an event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Simulated instances that are served, and where.

    Attributes:
        engine: makes an idle engine; called once for each instance.
        instances: how many.
        router: between them (``simulator.router.ROUTERS``).
        model: the name that clients use.
        max_context: longest prompt plus output; 0 for no limit.
        lengths: how long answers are that end by themselves.
        most_waiting: requests that may wait when another comes; 0 for no limit.
        tokens: of the model.
        reasons: whether it thinks before it answers.
        events: where the events of the prefix caches are published (``serve.events``), and sent again; "" for nowhere.
        speed: how many times as fast as the wall's the simulated time runs.
        faults: what goes wrong, and when.
        seed: of which requests faults meet.
        ranks: attention ranks of an instance, each of which is an engine.
        dialect: whose errors, replies and names of metrics clients see.
        host, port: where the server listens; port 0 takes a free one.
        settings, version: as in ``Service``.
        transfers: which side of prefill and decode apart it is, and the link between both; None where it is neither.
    """

    engine: Callable[[], Engine | CachedEngine]
    instances: int
    router: str
    model: str
    max_context: int
    lengths: Lengths
    most_waiting: int
    tokens: Tokens
    speed: float
    host: str
    port: int
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    ranks: int = 1
    dialect: Dialect = OF_VLLM
    reasons: bool = False
    events: str = ""
    events_again: str = ""
    events_topic: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION
    transfers: tuple[Role, KvLink] | None = None

    def build(self, loop: asyncio.AbstractEventLoop) -> Service:
        """The service on an event loop: every instance with its own alarm."""
        from tonnage.bench.alarm import Alarm

        clocks = [WallClock(self.speed) for _ in range(self.instances * self.ranks)]
        fleet = Fleet([Instance(str(i), self.engine(), clock) for i, clock in enumerate(clocks)], self.router, ranks=self.ranks)
        engines = Simulated(
            fleet, self.model, tokens=self.tokens, lengths=self.lengths, names=self.dialect.published, max_context=self.max_context
        )
        if self.transfers is not None:
            role, link = self.transfers
            engines.transfers = Transfers(role=role, link=link, later=loop.call_later)
        for instance in fleet.instances:
            instance.wakes_by(Alarm(loop, instance.wake), engines.metrics.late)
            engine = instance.member.engine
            if isinstance(engine, CachedEngine):
                engine.stepped = partial(engines.metrics.stepped, instance.name)
            if self.events:
                engines.publishers.append(self._publisher(instance))
        return Service(
            engines=engines,
            reader=TokenReader(self.tokens),
            tokens=self.tokens,
            limits=Limits(models=(self.model,), max_context=self.max_context, vocabulary=self.tokens.size, reasons=self.reasons),
            most_waiting=self.most_waiting,
            started=int(time.time()),
            faults=Faults(self.faults, lambda: self._go_wrong(loop, clocks), seed=self.seed),
            dialect=self.dialect,
            settings=self.settings,
            version=self.version,
            transfers=engines.transfers,
        )

    def _publisher(self, instance: Instance) -> Publisher:
        """What publishes the events of an instance, whose rank is its number."""
        from tonnage.serve.events import Publisher

        engine = instance.member.engine
        if not isinstance(engine, CachedEngine):
            raise InputError(f"{option('kv_events')}: this engine has no prefix cache; leave it out")
        size = engine.tokens_per_block
        made = Publisher(self.events, self.events_again, topic=self.events_topic, rank=int(instance.name), block_tokens=size)
        engine.publish = made.publish
        return made

    def _go_wrong(self, loop: asyncio.AbstractEventLoop, clocks: list[WallClock]) -> None:
        """Begin with the faults that are not about requests."""
        for i, clock in enumerate(clocks):
            clock.change(clock_changes(self.faults, i // self.ranks))
        for fault in self.faults:
            if fault.kind == "crash" and os.environ.get(STARTS, "1") == "1":
                loop.call_later(fault.start_s, os._exit, KILLED)


def serve(served: Servable, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM; streams that run then may end for ``DRAIN_S`` seconds.

    Args:
        served: what and where.
        ready: told the port once connections are taken.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
        TonnageError: the server failed while it started.
    """
    import uvicorn

    listening = _listening(served)

    async def run() -> bool:
        service = served.build(asyncio.get_running_loop())
        config = uvicorn.Config(
            application(service), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=DRAIN_S, backlog=4096
        )
        server = uvicorn.Server(config)
        logging.getLogger("uvicorn.error").addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], Cut)))
        gc.collect()
        gc.freeze()  # what is there stays there: the collector need not look at it again
        ready(listening.getsockname()[1])
        await server.serve(sockets=[listening])
        service.engines.close()
        return bool(server.started)

    with listening:
        import uvloop

        if not uvloop.run(run()):
            raise TonnageError("the server did not start")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server in a thread of this process.

    Attributes:
        port: where it listens.
        service: what it serves.
    """

    port: int
    service: Service

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def in_thread(served: Servable) -> Iterator[Running]:
    """Serve from a thread until the block ends.

    Args:
        served: what and where.

    Raises:
        TonnageError: the server failed while it started.
    """
    import uvicorn

    found: list[tuple[Service, uvicorn.Server]] = []
    begun = threading.Event()

    async def run(listening: socket.socket) -> None:
        service = served.build(asyncio.get_running_loop())
        config = uvicorn.Config(application(service), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        found.append((service, uvicorn.Server(config)))
        begun.set()
        await found[0][1].serve(sockets=[listening])
        service.engines.close()

    with _listening(served) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(run(listening)), daemon=True, name="tonnage serve")
        thread.start()
        if not begun.wait(STARTS_IN_S):
            raise TonnageError("the server did not start")
        try:
            yield Running(port=listening.getsockname()[1], service=found[0][0])
        finally:
            found[0][1].should_exit = True
            thread.join()


def _listening(served: Servable) -> socket.socket:
    try:
        return socket.create_server((served.host, served.port), backlog=4096)
    except OSError as error:
        raise InputError(f"{option('port')}: cannot listen on {served.host}:{served.port} ({error.strerror}); choose another") from None
