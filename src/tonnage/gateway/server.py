"""Runs a gateway until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tonnage.errors import InputError, option
from tonnage.gateway.client import Client
from tonnage.gateway.core import Core
from tonnage.gateway.health import Health
from tonnage.gateway.own import OwnPaths
from tonnage.gateway.settings import Settings

SWEEP_S = 0.25
BACKLOG = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A gateway that takes connections.

    Attributes:
        core: what it shares.
        port: where it listens.
    """

    core: Core
    port: int


def serve(settings: Settings, ready: Callable[[Running], None]) -> None:
    """Serve until SIGINT or SIGTERM; running requests may then go on for ``limits.drain_s`` seconds.

    Args:
        settings: of the gateway.
        ready: told once connections are taken.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
    """
    import uvloop

    _more_descriptors()

    async def run() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with gateway(settings) as running:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            ready(running)
            await stop.wait()
            await drain(running.core)

    uvloop.run(run())


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[Running]:
    """A gateway on the running loop, for as long as the block lasts; its backends have been checked once before it begins.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
    """
    loop = asyncio.get_running_loop()
    core = Core(settings, loop)
    own, health = OwnPaths(core), Health(core)
    try:
        listening = socket.create_server((settings.host, settings.port), backlog=BACKLOG)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise InputError(f"{option('port')}: cannot listen on {where} ({error.strerror}); choose another") from None
    with listening:
        await health.begin()
        sweeping = loop.create_task(_sweep(core))
        server = await loop.create_server(lambda: Client(core, own), sock=listening, backlog=BACKLOG)
        try:
            yield Running(core=core, port=listening.getsockname()[1])
        finally:
            server.close()
            sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sweeping
            await health.end()
            core.close()
            await asyncio.sleep(0)


async def drain(core: Core) -> None:
    """Wait until no request runs, at most ``limits.drain_s`` seconds; readiness says meanwhile that the gateway is about to end."""
    core.draining = True
    until = core.loop.time() + core.limits.drain_s
    while core.in_flight and core.loop.time() < until:
        await asyncio.sleep(0.02)


async def _sweep(core: Core) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        core.sweep()


def _more_descriptors() -> None:
    """Every request takes two sockets: raise the limit of open files as far as this user may."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
