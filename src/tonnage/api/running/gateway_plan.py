"""Where the instances of a plan run, for the gateway before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate

HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBackends:
    """What a gateway takes from a plan.

    Attributes:
        backends: an address for each instance, in order.
        max_in_flight: requests at once; None where the plan knows no concurrency.
    """

    backends: tuple[str, ...]
    max_in_flight: int | None


def planned_backends(path: str | Path, hosts: Sequence[str] = ()) -> PlannedBackends:
    """The addresses of a plan's instances, as ``deploy --target compose`` places them on each system: from port 8001 on.

    Args:
        path: the file that ``size --output`` wrote; of one plan.
        hosts: the plan's systems, in order; this machine for a plan of one system.

    Raises:
        InputError: no plan, one that chose nothing or separate pools, or not one host for each of its systems.
    """
    from tonnage.deploy.compose.gateway import FIRST_PORT, most_in_flight
    from tonnage.report.plans.plan_document import read_plans

    where = option("plan")
    plans = read_plans(path)
    if len(plans) > 1:
        raise InputError(f"{where}: {path} compares {len(plans)} plans; give the file of one")
    choice: Candidate | None = plans[0].choice
    if choice is None:
        raise InputError(f"{where}: {path} chose nothing, because no deployment met its limits")
    if len(choice.pools) > 1:
        raise InputError(f"{where}: {path} chose separate pools for prefill and decode, which no gateway passes requests between")
    pool = choice.pool
    fleet = pool.fleet
    named = list(hosts) or [HERE] * (pool.systems == 1)
    if len(named) != pool.systems:
        raise InputError(f"{option('plan_host')}: the plan has {pool.systems} × {pool.system}; give the host of each, in order")
    of_instance = [named[i // fleet.instances_per_system * fleet.systems_per_instance] for i in range(pool.instances)]
    ports = [FIRST_PORT + i % fleet.instances_per_system for i in range(pool.instances)]
    backends = tuple(f"http://{host}:{port}" for host, port in zip(of_instance, ports, strict=True))
    return PlannedBackends(backends=backends, max_in_flight=most_in_flight(choice.concurrency_per_instance, pool.instances))
