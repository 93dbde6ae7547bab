"""Runs a gateway until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tonnage.errors import InputError, option
from tonnage.gateway.client import Client
from tonnage.gateway.core import Core
from tonnage.gateway.counts import Place
from tonnage.gateway.descriptors import fitting, more_descriptors
from tonnage.gateway.health import Health
from tonnage.gateway.own import Alive, OwnPaths
from tonnage.gateway.settings import Settings

SWEEP_S = 0.25
BACKLOG = 4_096

Ready = Callable[[int, Mapping[str, str]], None]
"""Takes the port once connections are taken there, and of each backend by its name what is wrong with it ("" for nothing)."""

Again = Callable[[], tuple[Settings, Place] | None]
"""Reads the settings again; None leaves them as they are."""


@dataclass(slots=True, kw_only=True)
class Running:
    """A gateway that takes connections.

    Attributes:
        core: what it shares at present; another one after ``renew``.
        port: where it listens.
    """

    core: Core
    port: int
    _own: OwnPaths
    _health: Health
    _tls: ssl.SSLContext | None = None
    _old: set[asyncio.Task[None]] = field(default_factory=set)

    def client(self) -> Client:
        """A connection that somebody has opened."""
        return Client(self.core, self._own)

    async def renew(self, settings: Settings, place: Place | None = None) -> None:
        """Serve new requests by other settings; those that run end by the old ones.

        Where it listens stays as it is, and whether it speaks TLS; its certificate is read again.

        Raises:
            InputError: the log of the new settings cannot be written, or their certificate cannot be used.
        """
        if self._tls is not None:
            settings.tls.load_into(self._tls)
        core = Core(settings, self.core.loop, place)
        health = Health(core)
        await health.begin()
        old, old_health = self.core, self._health
        self.core, self._own, self._health = core, OwnPaths(core), health
        task = core.loop.create_task(_retire(old, old_health))
        self._old.add(task)
        task.add_done_callback(self._old.discard)

    async def end(self) -> None:
        """End what still runs at once."""
        for task in list(self._old):
            task.cancel()
        await asyncio.gather(*self._old, return_exceptions=True)
        await self._health.end()
        self.core.close()

    async def sweep(self) -> None:
        """End what has taken too long, a few times a second."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.core.sweep()


async def _retire(core: Core, health: Health) -> None:
    """Let the requests of settings that are gone end: idle connections at once, the others with their responses."""
    core.draining = True
    core.leave_idle()
    try:
        while core.in_flight or core.clients:
            await asyncio.sleep(SWEEP_S)
            core.sweep()
    finally:
        await health.end()
        core.close()


def serve(settings: Settings, place: Place, ready: Ready, again: Again, *, alive: int | None = None) -> None:
    """Serve in this process until SIGINT or SIGTERM; running requests may then go on for ``limits.drain_s`` seconds.

    Args:
        settings: of the gateway.
        place: among its workers.
        ready: told once connections are taken.
        again: reads the settings again on SIGHUP.
        alive: a port of 127.0.0.1 on which this worker alone says that it lives.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
    """
    import uvloop

    descriptors = more_descriptors()

    async def run() -> None:
        loop, stop, renewals = asyncio.get_running_loop(), asyncio.Event(), set[asyncio.Task[None]]()

        def hang_up() -> None:
            found = again()
            if found is not None:
                task = loop.create_task(running.renew(fitting(found[0], descriptors), found[1]))
                renewals.add(task)
                task.add_done_callback(renewals.discard)

        async with gateway(fitting(settings, descriptors), place, alive=alive) as running:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            loop.add_signal_handler(signal.SIGHUP, hang_up)
            ready(running.port, {backend.name: backend.fault for backend in running.core.backends})
            await stop.wait()
            await drain(running.core)

    uvloop.run(run())


@asynccontextmanager
async def gateway(settings: Settings, place: Place | None = None, *, alive: int | None = None) -> AsyncIterator[Running]:
    """A gateway on the running loop, for as long as the block lasts; its backends have been checked once before it begins.

    Raises:
        InputError: the port is taken, the address is none of this machine, or a certificate or the log cannot be used.
    """
    loop, shared = asyncio.get_running_loop(), place is not None and place.workers > 1
    with listening(settings.host, settings.port, shared=shared) as own, contextlib.ExitStack() as stack:
        tls = settings.tls.server_context()
        core = Core(settings, loop, place)
        running = Running(core=core, port=own.getsockname()[1], _own=OwnPaths(core), _health=(health := Health(core)), _tls=tls)
        await health.begin()
        sweeping = loop.create_task(running.sweep())
        handshake_s = settings.limits.head_s if tls else None
        servers = [await loop.create_server(running.client, sock=own, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=handshake_s)]
        if alive is not None:
            private = stack.enter_context(listening("127.0.0.1", alive))
            servers.append(await loop.create_server(lambda: Client(running.core, Alive()), sock=private))
        try:
            yield running
        finally:
            for server in servers:
                server.close()
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            await running.end()
            await asyncio.sleep(0)


def listening(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that takes connections; ``shared`` with the other workers, among which the kernel spreads them.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
    """
    try:
        return socket.create_server((host, port), backlog=BACKLOG, reuse_port=shared)
    except OSError as error:
        raise InputError(f"{option('port')}: cannot listen on {host}:{port} ({error.strerror}); choose another") from None


async def drain(core: Core) -> None:
    """Wait until no request runs, at most ``limits.drain_s`` seconds; readiness says meanwhile that the gateway is about to end."""
    core.draining = True
    until = core.loop.time() + core.limits.drain_s
    while core.in_flight and core.loop.time() < until:
        await asyncio.sleep(0.02)
