"""Runs a fleet of simulated instances behind HTTP until it gets a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, TonnageError, option
from tonnage.serve.app import Cut, Service
from tonnage.serve.dialect import OF_VLLM, Dialect
from tonnage.serve.faults import Fault, Faults, clock_changes
from tonnage.serve.instance import Fleet, Instance, WallClock
from tonnage.serve.openvino import OpenvinoServed
from tonnage.serve.prefix import CachedEngine, Publisher
from tonnage.serve.request import Limits
from tonnage.serve.routes import application
from tonnage.serve.simulated import Simulated
from tonnage.serve.supervisor import STARTS
from tonnage.serve.tokens import TokenReader, Tokens
from tonnage.serve.transfer import Role, Transfers
from tonnage.simulator.pools import KvLink
from tonnage.spec.lengths import Lengths
from tonnage.version import VERSION

if TYPE_CHECKING:
    import uvicorn


KILLED = 137  # Exit code of a process that was killed
STARTS_IN_S = 60  # Seconds that a server in a thread may take to start
DRAIN_S = 10  # Seconds that streams have to end after the server got a signal


def _free(rank: int) -> tuple[int, float]:
    """Load an adapter at no cost."""
    return 0, 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Simulated instances that are served, and where."""

    engine: Callable[[], CachedEngine]  # makes an idle engine; called once for each instance
    instances: int
    router: str  # between them (``simulator.router.ROUTERS``)
    model: str  # the name that clients use
    max_context: int  # longest prompt plus output; 0 for no limit
    lengths: Lengths  # how long answers are that end by themselves
    most_waiting: int  # requests that may wait when another comes; 0 for no limit
    tokens: Tokens
    speed: float  # how many times as fast as the wall's the simulated time runs
    host: str  # and port: where the server listens; port 0 takes a free one
    port: int
    faults: tuple[Fault, ...] = ()  # what goes wrong, and when
    seed: int = 0  # of which requests faults meet
    ranks: int = 1  # attention ranks of an instance, each of which is an engine
    dialect: Dialect = OF_VLLM  # whose errors, replies and names of metrics clients see
    reasons: bool = False  # whether it thinks before it answers
    # where the events of the prefix caches are published (``serve.prefix``), and sent again; "" for
    # nowhere
    events: str = ""
    events_again: str = ""
    events_topic: str = ""
    # and version, width: as in ``Service``
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION
    width: int = 0
    # which side of prefill and decode apart it is, and the link between both; None where it is
    # neither
    transfers: tuple[Role, KvLink] | None = None
    # whether every engine, each attention rank of each instance, has a separate port, from ``port``
    # on
    rank_ports: bool = False
    first: int = 0  # number of the first engine
    # and weights_s: as in ``Simulated``, in simulated seconds
    adapter_cost: Callable[[int], tuple[int, float]] = _free
    weights_s: float = 0.0

    @property
    def endpoints(self) -> list[Served]:
        """The endpoints of each port."""
        if not self.rank_ports:
            return [self]
        alone = replace(self, instances=1, ranks=1, rank_ports=False)
        ports = [self.port + i if self.port else 0 for i in range(self.instances * self.ranks)]
        return [replace(alone, first=i, port=port) for i, port in enumerate(ports)]

    @property
    def starts_in_s(self) -> float:
        """Seconds after which connections are taken: the longest ``start`` of the faults."""
        mine = (None, *range(self.first, self.first + self.instances))
        return max(
            (
                fault.end_s
                for fault in self.faults
                if fault.kind == "start" and fault.instance in mine
            ),
            default=0.0,
        )

    def build(self, loop: asyncio.AbstractEventLoop) -> Service:
        """The service on an event loop: every instance with its own alarm."""
        from tonnage.bench.timer import Alarm

        clocks = [WallClock(self.speed) for _ in range(self.instances * self.ranks)]
        instances = [
            Instance(str(i), self.engine(), clock) for i, clock in enumerate(clocks, self.first)
        ]
        fleet = Fleet(instances, self.router, ranks=self.ranks)
        engines = Simulated(
            fleet,
            self.model,
            tokens=self.tokens,
            lengths=self.lengths,
            names=self.dialect.published,
            max_context=self.max_context,
        )
        if self.transfers is not None:
            role, link = self.transfers
            engines.transfers = Transfers(role=role, link=link, later=loop.call_later)
        engines.adapter_cost, engines.weights_s = self._adapter, self.weights_s / self.speed
        limits = Limits(
            models=(self.model,),
            max_context=self.max_context,
            vocabulary=self.tokens.size,
            reasons=self.reasons,
        )
        engines.metrics.state.loaded = limits.adapters
        for instance in fleet.instances:
            instance.wakes_by(Alarm(loop, instance.wake).set, engines.metrics.late)
            instance.engine.stepped = partial(engines.metrics.stepped, instance.name)
            if self.events:
                engines.publishers.append(self._publisher(instance))
        again = os.environ.get(STARTS, "1") != "1"
        faults = [fault for fault in self.faults if not (again and fault.kind == "crash")]
        return Service(
            engines=engines,
            reader=TokenReader(self.tokens),
            tokens=self.tokens,
            limits=limits,
            most_waiting=self.most_waiting,
            started=int(time.time()),
            faults=Faults(faults, partial(self._go_wrong, loop, fleet, clocks, []), seed=self.seed),
            dialect=self.dialect,
            settings=self.settings,
            version=self.version,
            width=self.width,
            transfers=engines.transfers,
        )

    def _adapter(self, rank: int) -> tuple[int, float]:
        blocks, seconds = self.adapter_cost(rank)
        return blocks, seconds / self.speed

    def _publisher(self, instance: Instance) -> Publisher:
        """The publisher of an instance's events, whose rank is its number."""
        engine = instance.engine
        if engine.watched is None:
            raise InputError(
                f"{option('kv_events')}: this engine has no prefix cache; leave it out"
            )
        size = engine.tokens_per_block
        publisher = Publisher(
            self.events,
            self.events_again,
            topic=self.events_topic,
            rank=int(instance.name),
            block_tokens=size,
        )
        engine.publish = publisher.publish
        return publisher

    def _go_wrong(
        self,
        loop: asyncio.AbstractEventLoop,
        fleet: Fleet,
        clocks: list[WallClock],
        crashes: list[asyncio.TimerHandle],
        faults: list[Fault],
    ) -> None:
        """Start the faults that do not concern single requests, in place of earlier ones."""
        while crashes:
            crashes.pop().cancel()
        for i, (clock, instance) in enumerate(zip(clocks, fleet.instances, strict=True)):
            clock.change(clock_changes(faults, self.first + i // self.ranks))
            instance.wake()
        for fault in faults:
            if fault.kind == "crash" and fault.start_s >= 0:
                crashes.append(loop.call_later(fault.start_s, os._exit, KILLED))


Servable = Served | OpenvinoServed


def serve(served: Servable, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM, and then streams for ``DRAIN_S`` seconds; ``ready`` is called
    with the port once it takes connections.

    Raises InputError: the port is taken, or the address is none of this machine; TonnageError: the
    server failed while it started.
    """
    import uvicorn

    from tonnage.serve.bounded_headers import BoundedHeaders, silence_ended_requests

    ends = served.endpoints if isinstance(served, Served) else [served]
    more: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "lifespan": "off",
        "backlog": 4096,
        "http": BoundedHeaders,
    }

    async def run() -> bool:
        services = [end.build(asyncio.get_running_loop()) for end in ends]
        servers = [
            uvicorn.Server(
                uvicorn.Config(application(built), timeout_graceful_shutdown=DRAIN_S, **more)
            )
            for built in services
        ]
        silence_ended_requests(Cut)
        gc.collect()
        gc.freeze()  # what is there stays there: the collector need not look at it again
        ready(listening[0].getsockname()[1])
        ending = asyncio.ensure_future(_together(servers))
        await asyncio.gather(
            *(
                server.serve(sockets=[listener])
                for server, listener in zip(servers, listening, strict=True)
            )
        )
        ending.cancel()
        for service in services:
            service.engines.close()
        return all(server.started for server in servers)

    with ExitStack() as stack:
        listening = [stack.enter_context(_listening(end)) for end in ends]
        import uvloop

        if not uvloop.run(run()):
            raise TonnageError("the server did not start")


async def _together(servers: list[uvicorn.Server]) -> None:
    """End all servers when one ends: the signal comes to the last alone."""
    while not any(server.should_exit for server in servers):
        await asyncio.sleep(0.1)
    for remaining in servers:
        remaining.should_exit = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server in a thread of this process."""

    port: int  # where it listens
    service: Service

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def in_thread(served: Servable) -> Iterator[Running]:
    """Serve from a thread until the block ends. Raises TonnageError: the server failed while it
    started.
    """
    import uvicorn

    from tonnage.serve.bounded_headers import BoundedHeaders

    started: list[tuple[Service, uvicorn.Server]] = []
    begun = threading.Event()

    async def run(listening: socket.socket) -> None:
        service = served.build(asyncio.get_running_loop())
        config = uvicorn.Config(
            application(service),
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
            http=BoundedHeaders,
        )
        started.append((service, uvicorn.Server(config)))
        begun.set()
        await started[0][1].serve(sockets=[listening])
        service.engines.close()

    with _listening(served) as listening:
        thread = threading.Thread(
            target=lambda: asyncio.run(run(listening)), daemon=True, name="tonnage serve"
        )
        thread.start()
        if not begun.wait(STARTS_IN_S):
            raise TonnageError("the server did not start")
        try:
            yield Running(port=listening.getsockname()[1], service=started[0][0])
        finally:
            started[0][1].should_exit = True
            thread.join()


def _listening(served: Servable) -> socket.socket:
    """The listening socket of a server; a delayed start opens it later."""
    time.sleep(served.starts_in_s if isinstance(served, Served) else 0)
    try:
        return socket.create_server((served.host, served.port), backlog=4096)
    except OSError as error:
        raise InputError(
            f"{option('port')}: cannot listen on {served.host}:{served.port} ({error.strerror});"
            " choose another"
        ) from None
