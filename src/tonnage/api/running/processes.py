"""A fleet in processes of its own: each instance a child, and the gateway before them another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.serve.supervision.child import Program
    from tonnage.serve.supervision.supervisor import Supervisor

READY_S = 120.0
"""Seconds that simulated instances or a gateway may take to serve: far more than they need."""

Seen = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """A fleet that serves.

    Attributes:
        supervisor: of the instances.
        url: of the gateway.
        instances: the names of the instances.
    """

    supervisor: Supervisor
    url: str
    instances: tuple[str, ...]


def served_instances(arguments: Sequence[str], instances: int, own: Sequence[Sequence[str]] = ()) -> list[Program]:
    """The programs of instances that ``tonnage serve`` runs, each on a free port of 127.0.0.1.

    Args:
        arguments: of ``tonnage serve``, without host and port.
        instances: how many.
        own: further arguments of each, if there are any.
    """
    from tonnage.serve.supervision.child import Program
    from tonnage.serve.supervision.supervisor import free_ports

    command = (sys.executable, "-m", "tonnage", "serve", *arguments, "--host", "127.0.0.1")
    return [
        Program(name=f"instance-{i}", argv=(*command, *(own[i] if own else ()), "--port", str(port)), address=f"127.0.0.1:{port}")
        for i, port in enumerate(free_ports(instances))
    ]


def gateway_before(instances: Sequence[Program], *, policy: str, host: str = "127.0.0.1", port: int = 0) -> Program:
    """The program of a gateway before instances; port 0 takes a free one.

    Its health path is the one that says that it lives, so that it counts as ready before its instances are.
    """
    from tonnage.serve.supervision.child import Program
    from tonnage.serve.supervision.supervisor import free_ports

    port = port or free_ports(1, host)[0]
    backends = [word for one in instances for word in ("--backend", one.url)]
    argv = (sys.executable, "-m", "tonnage", "gateway", *backends, "--policy", policy, "--host", host, "--port", str(port))
    return Program(name="gateway", argv=argv, address=f"{host}:{port}", path="/v1/health/live")


@contextmanager
def processes(
    instances: Sequence[Program], gateway: Program, logs: Path, *, ready_s: float, grace_s: float, told: Callable[[str], None], seen: Seen
) -> Iterator[Processes]:
    """The fleet for as long as the block lasts; it begins when everything serves, and ends with the gateway first.

    Args:
        instances, gateway: what to run.
        logs: folder for what they print.
        ready_s: seconds that the instances have to serve.
        grace_s: seconds that each process has to end.
        told: takes a line about every restart.
        seen: takes how many instances serve, and of how many.

    Raises:
        InputError, TonnageError: one of them does not serve.
    """
    from tonnage.serve.supervision.supervisor import Supervisor

    with Supervisor(instances, logs, grace_s=grace_s, told=told) as supervisor:
        supervisor.wait_until_ready(timeout_s=ready_s, seen=seen)
        with Supervisor([gateway], logs, grace_s=grace_s, told=told) as front:
            front.wait_until_ready(timeout_s=READY_S)
            yield Processes(supervisor=supervisor, url=gateway.url, instances=tuple(one.name for one in instances))
