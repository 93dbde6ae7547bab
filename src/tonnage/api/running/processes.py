"""A fleet in its own processes: each instance a child, and the gateway before them another."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tonnage.errors import InputError, option
from tonnage.serve.faults import parse_fault
from tonnage.serve.supervisor import Program, Supervisor, free_ports
from tonnage.simulator.router import ROUTERS

# Seconds that simulated instances or a gateway may take to serve: far more than they need
READY_S = 120.0

Seen = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The processes of a running fleet."""

    supervisor: Supervisor
    url: str  # of the gateway
    instances: tuple[str, ...]  # the names of the instances


def served_instances(
    arguments: Sequence[str], instances: int, further_arguments: Sequence[Sequence[str]] = ()
) -> list[Program]:
    """The programs of instances that ``tonnage serve`` runs, each on a free port of 127.0.0.1, with
    its ``further_arguments`` further arguments.
    """
    command = (sys.executable, "-m", "tonnage", "serve", *arguments, "--host", "127.0.0.1")
    return [
        Program(
            name=f"instance-{i}",
            argv=(
                *command,
                *(further_arguments[i] if further_arguments else ()),
                "--port",
                str(port),
            ),
            address=f"127.0.0.1:{port}",
        )
        for i, port in enumerate(free_ports(instances))
    ]


def gateway_before(
    instances: Sequence[Program], *, policy: str, host: str = "127.0.0.1", port: int = 0
) -> Program:
    """The program of a gateway before instances, ready when it lives, which is before its instances
    are; port 0 takes a free one.
    """
    port = port or free_ports(1, host)[0]
    backends = [word for instance in instances for word in ("--backend", instance.url)]
    argv = (
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        *backends,
        "--policy",
        policy,
        "--host",
        host,
        "--port",
        str(port),
        "--proxy",
        "embedded",
    )
    return Program(name="gateway", argv=argv, address=f"{host}:{port}", path="/v1/health/live")


@contextmanager
def processes(
    instances: Sequence[Program],
    gateway: Program,
    logs: Path,
    *,
    ready_s: float,
    grace_s: float,
    announce: Callable[[str], None],
    on_ready: Seen,
) -> Iterator[Processes]:
    """The fleet for as long as the block lasts; it ends with the gateway first. Raises InputError,
    TonnageError: one does not serve.
    """
    with Supervisor(instances, logs, grace_s=grace_s, announce=announce) as supervisor:
        supervisor.wait_until_ready(timeout_s=ready_s, on_ready=on_ready)
        with Supervisor([gateway], logs, grace_s=grace_s, announce=announce) as front:
            front.wait_until_ready(timeout_s=READY_S)
            yield Processes(
                supervisor=supervisor,
                url=gateway.url,
                instances=tuple(instance.name for instance in instances),
            )


@contextmanager
def served(**flags: object) -> Iterator[str]:
    """The address of a simulated endpoint in a separate process, by flags of ``tonnage serve``.
    Raises InputError, TonnageError.
    """
    arguments = [
        word
        for name, value in flags.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    (program,) = served_instances(arguments, 1)
    with (
        tempfile.TemporaryDirectory(prefix="tonnage-served-") as logs,
        Supervisor([program], Path(logs)) as supervisor,
    ):
        supervisor.wait_until_ready(timeout_s=READY_S)
        yield program.url


GRACE_S = 15.0  # Seconds that a process has to end: more than the 10 in which its streams may go on
LOADING_S = 600.0  # Seconds that an instance may take to load its model


def serve_apart(
    arguments: Sequence[str],
    *,
    faults: Sequence[str] = (),
    instances: int = 1,
    router: str = "least-outstanding",
    port: int = 8000,
    host: str = "127.0.0.1",
    logs: Path | None = None,
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; then the gateway lets running requests end, and after it the
    instances do.

    ``arguments`` of ``tonnage serve`` are for each instance, ``faults`` for the one that they name,
    the rest for the gateway. Raises InputError, TonnageError: a process does not serve.
    """
    if instances < 1:
        raise InputError(f"{option('instances')}: {instances} is not possible; write 1 or more")
    fault_flags = _instance_flags(faults, instances)
    serve_programs(
        lambda folder: served_instances(arguments, instances, further_arguments=fault_flags),
        router=router,
        host=host,
        port=port,
        logs=logs,
        ready_s=LOADING_S,
        announce=announce,
    )


def serve_programs(
    programs: Callable[[Path], list[Program]],
    *,
    router: str,
    host: str,
    port: int,
    logs: Path | None,
    ready_s: float,
    announce: Callable[[str], None],
) -> None:
    """Run instances with the gateway before them until SIGINT or SIGTERM; then the gateway drains,
    and after it the instances end.

    ``logs`` holds what they print (default: a folder that is removed at the end). Raises
    InputError, TonnageError: one does not serve.
    """
    if router not in ROUTERS:
        raise InputError(
            f"{option('router')}: no router is called '{router}'; there are {', '.join(ROUTERS)}"
        )
    stop = threading.Event()

    def stopped(number: int, frame: FrameType | None) -> None:
        stop.set()
        if not ready:
            raise KeyboardInterrupt

    def seen(serving: int, of: int) -> None:
        announce(f"{serving} of {of} instances serve.")

    ready = False
    with ExitStack() as stack:
        before = [
            (number, signal.signal(number, stopped)) for number in (signal.SIGINT, signal.SIGTERM)
        ]
        stack.callback(lambda: [signal.signal(number, handler) for number, handler in before])
        folder = logs or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tonnage-serve-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        instances = programs(folder)
        gateway = gateway_before(instances, policy=router, host=host, port=port)
        up = stack.enter_context(
            processes(
                instances,
                gateway,
                folder,
                ready_s=ready_s,
                grace_s=GRACE_S,
                announce=announce,
                on_ready=seen,
            )
        )
        ready = True
        announce(
            f"{len(instances)} instances behind {router} on {up.url}/v1; their logs are in {folder}"
        )
        stop.wait()


def _instance_flags(faults: Sequence[str], instances: int) -> list[list[str]]:
    """The flags of each instance alone, which is instance 0 of its process."""
    parsed_faults = [parse_fault(text) for text in faults]
    beyond = next(
        (
            fault.instance
            for fault in parsed_faults
            if fault.instance is not None and fault.instance >= instances
        ),
        None,
    )
    if beyond is not None:
        raise InputError(
            f"{option('fault')}: there is no instance {beyond}; they count from 0 to"
            f" {instances - 1}"
        )
    return [
        [
            word
            for fault in parsed_faults
            if fault.instance in (None, i)
            for word in ("--fault", fault.words())
        ]
        for i in range(instances)
    ]
