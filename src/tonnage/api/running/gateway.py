"""``tonnage gateway``: the settings of a gateway, from addresses and names."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, InputErrors, UnknownName, option
from tonnage.spec.typed_values import parse_yaml, read_as, strict

if TYPE_CHECKING:
    from tonnage.bench.connection import Target
    from tonnage.gateway.settings import Settings
    from tonnage.plan.candidate import Candidate


MAX_IN_FLIGHT = 1_024
MAX_BODY_MB = 32
MOST_BACKENDS = 256


def gateway_settings(
    *,
    backends: Sequence[str] = (),
    plan: str | Path | None = None,
    plan_host: Sequence[str] = (),
    policy: str = "least-outstanding",
    max_in_flight: int | None = None,
    max_body_mb: int = MAX_BODY_MB,
    first_byte_timeout: float = 600.0,
    idle_timeout: float = 120.0,
    seed: int = 0,
    host: str = "127.0.0.1",
    port: int = 8080,
) -> Settings:
    """The settings of a gateway.

    Args:
        backends: addresses such as "http://127.0.0.1:8001"; "=2" at the end of one is its weight.
        plan: a plan that ``size --output`` wrote, whose instances are the backends, and whose concurrency bounds the requests.
        plan_host: the plan's systems, in order, where it has several.
        policy: which backend gets a request (``simulator.router``).
        max_in_flight: requests at once; further ones get 429 (default: 1,024, or twice what the plan's instances hold).
        max_body_mb: MiB of a request's body.
        first_byte_timeout: seconds that a backend may take to begin a response.
        idle_timeout: seconds between two pieces of a response, and of a client that reads nothing.
        seed: of the policy's random choices.
        host, port: where to listen; port 0 takes a free one.

    Raises:
        InputError: anything that cannot be used, in one line.
    """
    from tonnage.gateway.settings import Limits, Settings
    from tonnage.simulator.router import ROUTERS

    if policy not in ROUTERS:
        raise UnknownName("policy", policy, ROUTERS)
    if plan is not None:
        backends, max_in_flight = _planned(backends, plan, plan_host, max_in_flight)
    elif plan_host:
        raise InputError(f"{option('plan_host')}: belongs to a plan; give {option('plan')} too")
    max_in_flight = MAX_IN_FLIGHT if max_in_flight is None else max_in_flight
    given = {
        "max_in_flight": max_in_flight,
        "max_body_mb": max_body_mb,
        "first_byte_timeout": first_byte_timeout,
        "idle_timeout": idle_timeout,
    }
    for name, value in given.items():
        if not 0 < value < math.inf:
            raise InputError(f"{option(name)}: {value} is not possible; write a number above 0")
    if not 0 <= port <= 65_535:
        raise InputError(f"{option('port')}: {port} is no port; write a number from 0 to 65535")
    if not 0 < len(backends) <= MOST_BACKENDS:
        raise InputError(f"{option('backend')}: give from 1 to {MOST_BACKENDS} of them, such as http://127.0.0.1:8001")
    found = tuple(_backend(text) for text in backends)
    names = [target.authority for target, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{option('backend')}: {twice} is given twice; a weight makes one count for more, as in http://{twice}=2")
    limits = Limits(
        in_flight=max_in_flight,
        body=max_body_mb * 1_048_576,
        first_byte_s=float(first_byte_timeout),
        idle_s=float(idle_timeout),
    )
    return Settings(
        backends=found,
        policy=policy,
        seed=seed,
        host=host,
        port=port,
        limits=limits,
    )


def _planned(
    backends: Sequence[str], plan: str | Path, hosts: Sequence[str], max_in_flight: int | None
) -> tuple[Sequence[str], int | None]:
    """Addresses and bound of a plan; a requested bound is kept."""
    if backends:
        raise InputError(f"{option('backend')}: the plan says where its instances are; leave one of the two out")
    found = planned_backends(plan, hosts)
    return found.backends, found.max_in_flight if max_in_flight is None else max_in_flight


def _backend(text: str) -> tuple[Target, float]:
    """An address and its weight."""
    from tonnage.bench.connection import parse_url

    where = option("backend")
    url, equals, weight = text.partition("=")
    try:
        target = parse_url(url)
    except InputError as error:
        raise InputError(f"{where}: {error.reason}") from None
    if target.tls:
        raise InputError(
            f"{where}: '{url}' is https, which the gateway does not speak; write http://, or let Envoy or nginx reach it (docs/gateway.md)"
        )
    if target.path:
        raise InputError(f"{where}: '{url}' has a path; give the address alone, such as http://{target.authority}")
    try:
        value = float(weight) if equals else 1.0
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{where}: '{weight}' is no weight; write a number above 0, as in {url}=2")
    return target, value


# The settings of a gateway from a YAML file.


@strict
class GatewayFile:
    """What a file may say; every key is a flag of the command with the same meaning.

    Attributes:
        backends, plan, plan_host, policy, max_in_flight, max_body_mb, first_byte_timeout, idle_timeout, seed, host, port: as in
            ``gateway_settings``.
    """

    backends: tuple[str, ...] = ()
    plan: str | None = None
    plan_host: tuple[str, ...] = ()
    policy: str | None = None
    max_in_flight: int | None = None
    max_body_mb: int | None = None
    first_byte_timeout: float | None = None
    idle_timeout: float | None = None
    seed: int | None = None
    host: str | None = None
    port: int | None = None


def gateway_from(path: str | Path, given: Mapping[str, Any]) -> Settings:
    """The settings in a file.

    Args:
        path: of the file.
        given: arguments of ``gateway_settings`` that are in place of the file's.

    Raises:
        InputError: anything that cannot be used, each fault in one line with its place.
    """
    said = read_as(GatewayFile, _values(Path(path)), str(path), InputErrors)
    names = [one.name for one in fields(said) if one.name != "backends"]
    values = {name: getattr(said, name) for name in names if getattr(said, name) is not None}
    if {"backends", "plan"} & set(given):  # a flag of either kind stands in place of both
        values = {name: value for name, value in values.items() if not name.startswith("plan")}
    else:
        values["backends"] = said.backends
    return gateway_settings(**{**values, **given})


def _values(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option('config')}: {path} cannot be read ({error})") from None
    return parse_yaml(text, str(path)) or {}


# Where the instances of a plan run, for the gateway before them.


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
    from tonnage.deploy.compose import FIRST_PORT, most_in_flight
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


# vllm-router in place of the gateway: the command that starts it with the same settings.


PROXIES = ("vllm-router",)
VERSION = "0.1.17"
"""Of vllm-router, whose flags these are (read from its own help, 2026-11-22)."""

POLICIES = {
    "round-robin": "round_robin",
    "random": "random",
    "power-of-two": "power_of_two",
    "prefix-aware": "cache_aware",
    "session": "consistent_hash",
}
"""Its name for each policy that both have."""

BACK = ("--cb-timeout-duration-secs", "3", "--health-check-interval-secs", "2", "--worker-startup-check-interval", "1")
"""Without these, a worker that has come back stays out for a minute, and one that is not up at the start is looked for every 30 s."""


def proxy_command(proxy: str, settings: Settings) -> tuple[str, ...]:
    """The command that balances by another program.

    Args:
        proxy: its name.
        settings: of a gateway.

    Raises:
        InputError: no such program, one that is not installed, or settings that it does not have.
    """
    if proxy not in PROXIES:
        raise UnknownName("proxy", proxy, PROXIES)
    found = shutil.which(proxy) or shutil.which(proxy, path=str(Path(sys.executable).parent))
    if found is None:
        raise InputError(
            f"{option('proxy')}: {proxy} is not installed; pip install vllm-router=={VERSION} into an environment whose bin is on PATH, "
            "or leave it out"
        )
    _check(settings)
    from tonnage.serve.supervision.supervisor import free_ports

    urls = [f"http://{target.authority}" for target, _ in settings.backends]
    limits, port = settings.limits, settings.port or free_ports(1, settings.host)[0]
    argv = (found, "--worker-urls", *urls, "--policy", POLICIES[settings.policy], "--host", settings.host, "--port", str(port))
    bounds = ("--max-concurrent-requests", limits.in_flight, "--max-payload-size", limits.body)
    waits = ("--request-timeout-secs", max(1, round(limits.first_byte_s)), "--prometheus-port", free_ports(1)[0])
    return (*argv, *map(str, (*bounds, *waits)), *BACK)


def _check(settings: Settings) -> None:
    """Refuse what would silently be lost."""
    from tonnage.gateway.settings import Limits

    if settings.policy not in POLICIES:
        raise InputError(f"{option('policy')}: vllm-router has no {settings.policy}; it has {', '.join(POLICIES)}")
    lost = [
        *([(option("idle_timeout"), "idle timeout")] if settings.limits.idle_s != Limits().idle_s else []),
        *([(option("backend"), "weights")] if any(weight != 1 for _, weight in settings.backends) else []),
    ]
    if lost:
        where, what = lost[0]
        raise InputError(f"{where}: {what.replace('_', ' ')}: vllm-router does not have it in this way; leave it out, or use this gateway")
