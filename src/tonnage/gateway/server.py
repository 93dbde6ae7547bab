"""Runs a gateway until it gets a signal."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from tonnage.errors import InputError, option
from tonnage.gateway.client import Client
from tonnage.gateway.core import Core
from tonnage.gateway.health import Health
from tonnage.gateway.paths import OwnPaths
from tonnage.gateway.settings import Settings

SWEEP_S = 0.25
BACKLOG = 4_096

OWN = 64
"""Descriptors for what is neither a client nor a backend: health checks, logs, what Python itself holds."""

Ready = Callable[[int, Mapping[str, str]], None]
"""Takes the port once connections are taken there, and of each backend by its name what is wrong with it ("" for nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A gateway that takes connections.

    Attributes:
        core: what its connections share.
        port: where it listens.
    """

    core: Core
    port: int


def serve(settings: Settings, ready: Ready) -> None:
    """Serve until SIGINT or SIGTERM; running requests may then go on for ``limits.drain_s`` seconds.

    Raises InputError: the port is taken, or the address is none of this machine.
    """
    import uvloop

    descriptors = more_descriptors()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with gateway(fitting(settings, descriptors)) as running:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            ready(running.port, {backend.name: backend.fault for backend in running.core.backends})
            await stop.wait()
            await drain(running.core)

    uvloop.run(run())


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[Running]:
    """A gateway on the running loop, for as long as the block lasts; its backends have been checked once before it begins.

    Raises InputError: the port is taken, or the address is none of this machine.
    """
    loop = asyncio.get_running_loop()
    with listening(settings.host, settings.port) as own:
        core = Core(settings, loop)
        paths, health = OwnPaths(core), Health(core)
        await health.begin()
        sweeping = loop.create_task(_sweep(core))
        server = await loop.create_server(lambda: Client(core, paths), sock=own, backlog=BACKLOG)
        try:
            yield Running(core=core, port=own.getsockname()[1])
        finally:
            server.close()
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            await health.end()
            core.close()
            await asyncio.sleep(0)


async def _sweep(core: Core) -> None:
    """End what has taken too long, a few times a second."""
    while True:
        await asyncio.sleep(SWEEP_S)
        core.sweep()


def listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections. Raises InputError: the port is taken, or the address is none of this machine."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise InputError(f"{option('port')}: cannot listen on {host}:{port} ({error.strerror}); choose another") from None


async def drain(core: Core) -> None:
    """Wait until no request runs, at most ``limits.drain_s`` seconds; readiness says meanwhile that the gateway is about to end."""
    core.draining = True
    until = core.loop.time() + core.limits.drain_s
    while core.in_flight and core.loop.time() < until:
        await asyncio.sleep(0.02)


def more_descriptors() -> int:
    """Raise the limit of open files as far as this user may, and return it."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        soft = most
    return soft


def fitting(settings: Settings, descriptors: int) -> Settings:
    """The same with no more connections of clients than leave a descriptor for every request's connection to its backend.

    Where even that is too many, requests get a third of the descriptors and clients the rest.
    """
    limits = settings.limits
    backends = min(limits.in_flight, descriptors // 3)
    return replace(settings, limits=replace(limits, connections=min(limits.connections, max(descriptors - backends - OWN, 1))))
