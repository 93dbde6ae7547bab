"""``tonnage serve --processes``: every instance in a process of its own, and the gateway before them."""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.serve.supervision.child import Program

GRACE_S = 15.0
"""Seconds that a process has to end: more than the 10 in which its streams may go on."""

LOADING_S = 600.0
"""Seconds that an instance may take to load its model."""


def serve_apart(
    arguments: Sequence[str],
    *,
    faults: Sequence[str] = (),
    instances: int = 1,
    router: str = "least-outstanding",
    port: int = 8000,
    host: str = "127.0.0.1",
    logs: Path | None = None,
    told: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; then the gateway lets running requests end, and after it the instances do.

    Args:
        arguments: of ``tonnage serve`` for one instance, without host and port.
        faults: of simulated instances; each process gets those that are meant for its instance.
        instances: how many.
        router: policy of the gateway.
        port, host: of the gateway; the instances listen on free ports of 127.0.0.1.
        logs: folder for what the processes print (default: one that is removed at the end).
        told: takes lines about progress and restarts.

    Raises:
        InputError, TonnageError: a process does not serve.
    """
    from tonnage.api.running.processes import served_instances

    if instances < 1:
        raise InputError(f"{option('instances')}: {instances} is not possible; write 1 or more")
    own = _own(faults, instances)
    serve_programs(
        lambda folder: served_instances(arguments, instances, own=own),
        router=router,
        host=host,
        port=port,
        logs=logs,
        ready_s=LOADING_S,
        told=told,
    )


def serve_programs(
    programs: Callable[[Path], list[Program]],
    *,
    router: str,
    host: str,
    port: int,
    logs: Path | None,
    ready_s: float,
    told: Callable[[str], None],
) -> None:
    """Run instances with the gateway before them until SIGINT or SIGTERM; then the gateway drains, and after it the instances end.

    Args:
        programs: makes the instances, given the folder of their logs.
        router: policy of the gateway.
        host, port: of the gateway.
        logs: folder for what the processes print (default: one that is removed at the end).
        ready_s: seconds that the instances have to serve.
        told: takes lines about progress and restarts.

    Raises:
        InputError, TonnageError: a process does not serve.
    """
    from tonnage.api.running.processes import gateway_before, processes
    from tonnage.simulator.router import ROUTERS

    if router not in ROUTERS:
        raise InputError(f"{option('router')}: no router is called '{router}'; there are {', '.join(ROUTERS)}")
    stop = threading.Event()

    def stopped(number: int, frame: FrameType | None) -> None:
        stop.set()
        if not ready:
            raise KeyboardInterrupt

    def seen(serving: int, of: int) -> None:
        told(f"{serving} of {of} instances serve.")

    ready = False
    with ExitStack() as stack:
        before = [(number, signal.signal(number, stopped)) for number in (signal.SIGINT, signal.SIGTERM)]
        stack.callback(lambda: [signal.signal(number, handler) for number, handler in before])
        folder = logs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tonnage-serve-")))
        folder.mkdir(parents=True, exist_ok=True)
        instances = programs(folder)
        gateway = gateway_before(instances, policy=router, host=host, port=port)
        up = stack.enter_context(processes(instances, gateway, folder, ready_s=ready_s, grace_s=GRACE_S, told=told, seen=seen))
        ready = True
        told(f"{len(instances)} instances behind {router} on {up.url}/v1; their logs are in {folder}")
        stop.wait()


def _own(faults: Sequence[str], instances: int) -> list[list[str]]:
    """The flags of each instance alone, which is instance 0 of its process."""
    from tonnage.serve.faults import parse_fault

    found = [parse_fault(text) for text in faults]
    beyond = next((one.instance for one in found if one.instance is not None and one.instance >= instances), None)
    if beyond is not None:
        raise InputError(f"{option('fault')}: there is no instance {beyond}; they count from 0 to {instances - 1}")
    return [[word for one in found if one.instance in (None, i) for word in ("--fault", one.words())] for i in range(instances)]
