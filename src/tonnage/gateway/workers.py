"""A gateway as one process, or as several that listen on the same port under one supervisor."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from tonnage.errors import InputError, option
from tonnage.gateway.core import Core
from tonnage.gateway.counts import Place
from tonnage.gateway.handover import hand_over
from tonnage.gateway.health import Health
from tonnage.gateway.server import Ready, listening
from tonnage.gateway.server import serve as serve_here
from tonnage.gateway.settings import Settings
from tonnage.serve.supervision.child import Program
from tonnage.serve.supervision.supervisor import Supervisor, free_ports

READY_S = 60.0
"""Seconds that workers may take to serve; they need one or two."""

BEYOND_DRAIN_S = 5.0
"""Seconds beyond those of the drain after which a worker that has not ended is killed."""


def serve(
    settings: Settings, ready: Ready, again: Callable[[], Settings | None] | None = None, told: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; running requests may then go on for ``limits.drain_s`` seconds.

    Args:
        settings: of the gateway.
        ready: told once connections are taken.
        again: reads the settings again on SIGHUP; None from it leaves them as they are, and the number of workers stays in any case.
        told: takes a line about every worker that was restarted.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
        TonnageError: a worker does not serve.
    """
    if settings.workers == 1:

        def anew() -> tuple[Settings, Place] | None:
            found = again() if again is not None else None
            return None if found is None else (found, Place())

        serve_here(settings, Place(), ready, anew)
        return
    if not sys.platform.startswith("linux"):
        raise InputError(f"{option('workers')}: several workers share a port by a way of Linux that this system does not have; write 1")
    with ExitStack() as stack:
        held = stack.enter_context(_held(settings))
        settings = replace(settings, port=held.getsockname()[1])
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tonnage-gateway-")))
        _supervise(settings, folder, stack, ready=ready, again=again or (lambda: None), told=told)


def _held(settings: Settings) -> socket.socket:
    """A socket that keeps the port for the workers and takes no connections itself.

    Whoever shares a port is not told that somebody else listens there, so that it is asked for alone first.
    """
    with listening(settings.host, settings.port) as alone:
        port = alone.getsockname()[1]
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((settings.host, port))
    return held


def _supervise(
    settings: Settings,
    folder: Path,
    stack: ExitStack,
    *,
    ready: Ready,
    again: Callable[[], Settings | None],
    told: Callable[[str], None] | None,
) -> None:
    signals: SimpleQueue[int] = SimpleQueue()
    serving = False

    def heard(number: int, frame: FrameType | None) -> None:
        signals.put(number)
        if not serving and number != signal.SIGHUP:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, heard)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    stack.callback(lambda: [signal.signal(number, handler) for number, handler in before])
    hand_over(folder, settings, 0)
    faults = asyncio.run(_faults(settings))
    supervisor = Supervisor(_programs(folder, settings), folder, grace_s=settings.limits.drain_s + BEYOND_DRAIN_S, told=told)
    stack.enter_context(supervisor).wait_until_ready(timeout_s=READY_S)
    serving = True
    ready(settings.port, faults)
    generation = 0
    while signals.get() == signal.SIGHUP:
        found = again()
        if found is not None:
            generation += 1
            hand_over(folder, replace(found, host=settings.host, port=settings.port, workers=settings.workers), generation)
            for child in supervisor.children:
                child.kill(signal.SIGHUP)


async def _faults(settings: Settings) -> Mapping[str, str]:
    """What is wrong with each backend, by a check of every one before the workers begin."""
    core = Core(settings, asyncio.get_running_loop())
    health = Health(core)
    await health.begin()
    await health.end()
    core.close()
    return {backend.name: backend.fault for backend in core.backends}


def _programs(folder: Path, settings: Settings) -> list[Program]:
    return [
        Program(
            name=f"worker-{i}",
            argv=(sys.executable, "-m", "tonnage.gateway.worker", str(folder), str(i), str(port)),
            address=f"127.0.0.1:{port}",
            path="/v1/health/live",
        )
        for i, port in enumerate(free_ports(settings.workers))
    ]
