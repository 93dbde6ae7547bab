"""``tonnage gateway``: the settings of a gateway, from addresses and names."""

from __future__ import annotations

import math
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.bench.connection import Target, parse_url
from tonnage.csv_file import read_text
from tonnage.errors import InputError, InputErrors, UnknownName, option
from tonnage.gateway.haproxy import BALANCE, configuration
from tonnage.gateway.settings import GatewayArguments, Limits, Settings
from tonnage.serve.supervisor import free_ports
from tonnage.simulator.router import ROUTERS
from tonnage.spec.typed_values import parse_yaml, read_as

MAX_IN_FLIGHT = 1_024
MOST_BACKENDS = 256
HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")  # what a line of HAProxy's configuration may hold
HOSTS = "write one such as 127.0.0.1 or worker-1"
ABOVE_0 = ("max_body_mb", "first_byte_timeout", "idle_timeout")


def gateway_settings(**asked: Any) -> Settings:
    """The settings of a gateway, from the fields of ``GatewayArguments`` by name. Raises
    InputError: what cannot be used.
    """
    return _settings(GatewayArguments(**asked))


def _settings(a: GatewayArguments) -> Settings:
    if a.policy not in ROUTERS:
        raise UnknownName("policy", a.policy, ROUTERS)
    if a.plan is None and a.plan_host:
        raise InputError(f"{option('plan_host')}: belongs to a plan; give {option('plan')} too")
    if a.plan is not None and a.backends:
        raise InputError(
            f"{option('backend')}: the plan says where its instances are; leave one of the two out"
        )
    backends, planned = (
        (a.backends, None) if a.plan is None else planned_backends(a.plan, a.plan_host)
    )
    in_flight = a.max_in_flight if a.max_in_flight is not None else planned
    max_in_flight = MAX_IN_FLIGHT if in_flight is None else in_flight
    for name, value in {
        "max_in_flight": max_in_flight,
        **{name: getattr(a, name) for name in ABOVE_0},
    }.items():
        if not 0 < value < math.inf:
            raise InputError(f"{option(name)}: {value} is not possible; write a number above 0")
    if not 0 <= a.port <= 65_535:
        raise InputError(f"{option('port')}: {a.port} is no port; write a number from 0 to 65535")
    if HOST.fullmatch(a.host) is None:
        raise InputError(f"{option('host')}: '{a.host}' is no host name or address; {HOSTS}")
    if not 0 < len(backends) <= MOST_BACKENDS:
        raise InputError(
            f"{option('backend')}: give from 1 to {MOST_BACKENDS} of them, such as"
            " http://127.0.0.1:8001"
        )
    weighted_backends = tuple(_backend(text) for text in backends)
    names = [target.authority for target, _ in weighted_backends]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{option('backend')}: {twice} is given twice; a weight makes one count for more, as in"
            f" http://{twice}=2"
        )
    limits = Limits(
        in_flight=max_in_flight,
        body=a.max_body_mb * 1_048_576,
        first_byte_s=float(a.first_byte_timeout),
        idle_s=float(a.idle_timeout),
    )
    return Settings(
        backends=weighted_backends,
        policy=a.policy,
        seed=a.seed,
        host=a.host,
        port=a.port,
        limits=limits,
    )


def _backend(text: str) -> tuple[Target, float]:
    """An address and its weight."""
    where = option("backend")
    url, equals, weight = text.partition("=")
    try:
        target = parse_url(url)
    except InputError as error:
        raise InputError(f"{where}: {error.reason}") from None
    if target.tls:
        raise InputError(
            f"{where}: '{url}' is https, which the gateway does not speak; write http://, or let"
            " Envoy or nginx reach it (docs/load-balancing.md)"
        )
    if HOST.fullmatch(target.host) is None:
        raise InputError(f"{where}: '{url}' has no host name or address; {HOSTS}")
    if target.path:
        raise InputError(
            f"{where}: '{url}' has a path; give the address alone, such as"
            f" http://{target.authority}"
        )
    try:
        value = float(weight) if equals else 1.0
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{where}: '{weight}' is no weight; write a number above 0, as in {url}=2")
    return target, value


def gateway_from(path: str | Path, arguments: Mapping[str, Any]) -> Settings:
    """The settings in a file, overridden by the ``arguments`` fields of ``GatewayArguments``.
    Raises InputErrors.
    """
    text = read_text(path, option("config"), give="a file of the gateway's settings")
    gateway_arguments = read_as(
        GatewayArguments, parse_yaml(text, str(path)) or {}, str(path), InputErrors
    )
    if {"backends", "plan"} & set(arguments):  # a flag of either kind replaces both
        gateway_arguments = replace(gateway_arguments, backends=(), plan=None, plan_host=())
    return _settings(replace(gateway_arguments, **arguments))


HERE = "127.0.0.1"


def planned_backends(
    path: str | Path, hosts: Sequence[str] = ()
) -> tuple[tuple[str, ...], int | None]:
    """The addresses of a plan's instances, from port 8001 on as for Compose, and the requests in
    flight at once; None where not known.

    ``hosts`` are the plan's systems, in order. Raises InputError: nothing chosen, separate pools,
    or not one host for each system.
    """
    from tonnage.api.running.plans import chosen, only_plan
    from tonnage.deploy.compose import FIRST_PORT, most_in_flight

    choice = chosen(path, only_plan(path), "which no gateway passes requests between")
    pool = choice.pool
    fleet = pool.fleet
    named = list(hosts) or [HERE] * (pool.systems == 1)
    if len(named) != pool.systems:
        raise InputError(
            f"{option('plan_host')}: the plan has {pool.systems} × {pool.system}; give the host of"
            " each, in order"
        )
    of_instance = [
        named[i // fleet.instances_per_system * fleet.systems_per_instance]
        for i in range(pool.instances)
    ]
    ports = [FIRST_PORT + i % fleet.instances_per_system for i in range(pool.instances)]
    backends = tuple(f"http://{host}:{port}" for host, port in zip(of_instance, ports, strict=True))
    return backends, most_in_flight(choice.concurrency_per_instance, pool.instances)


PROXIES = ("haproxy", "vllm-router", "embedded")
VERSION = "0.1.17"  # Of vllm-router, whose flags these are (read from its own help, 2026-11-22)

# Its name for each policy that both have
POLICIES = {
    "round-robin": "round_robin",
    "random": "random",
    "power-of-two": "power_of_two",
    "prefix-aware": "cache_aware",
    "session": "consistent_hash",
}

# Without these, a worker that has come back stays out for a minute, and one that is not up at the
# start is looked for every 30 s
BACK = (
    "--cb-timeout-duration-secs",
    "3",
    "--health-check-interval-secs",
    "2",
    "--worker-startup-check-interval",
    "1",
)


def proxy_command(proxy: str | None, settings: Settings) -> tuple[str, ...]:
    """The command of the program that balances; empty for the embedded gateway, which is what
    remains where HAProxy is not installed.

    Raises InputError: a program that is named and not installed, or settings that it does not have.
    """
    if proxy is not None and proxy not in PROXIES:
        raise UnknownName("proxy", proxy, PROXIES)
    if proxy == "vllm-router":
        return _vllm_router(settings)
    program = _installed("haproxy")
    if proxy == "embedded" or (
        proxy is None and (program is None or settings.policy not in BALANCE)
    ):
        return ()
    if program is None:
        raise InputError(
            f"{option('proxy')}: haproxy is not installed; install your system's package of it, or"
            " leave this out"
        )
    if settings.policy not in BALANCE:
        raise InputError(
            f"{option('policy')}: HAProxy has no {settings.policy}; it has {', '.join(BALANCE)}"
        )
    port = settings.port or free_ports(1, settings.host)[0]
    with tempfile.NamedTemporaryFile("w", prefix="tonnage-", suffix=".cfg", delete=False) as file:
        file.write(haproxy_of(replace(settings, port=port)))
    return (program, "-db", "-f", file.name)


def haproxy_of(settings: Settings) -> str:
    """Write the ``haproxy.cfg`` of a gateway's settings."""
    limits = settings.limits
    return configuration(
        [(target.authority, weight, 1) for target, weight in settings.backends],
        settings.policy,
        host=settings.host,
        port=settings.port,
        in_flight=limits.in_flight,
        body=limits.body,
        first_byte_s=limits.first_byte_s,
        idle_s=limits.idle_s,
    )


def _installed(program: str) -> str | None:
    """Find a program on PATH or next to this Python."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


def _vllm_router(settings: Settings) -> tuple[str, ...]:
    """The command of vllm-router."""
    program = _installed("vllm-router")
    if program is None:
        pip = f"pip install vllm-router=={VERSION} into an environment whose bin is on PATH"
        raise InputError(f"{option('proxy')}: vllm-router is not installed; {pip}, or leave it out")
    if settings.policy not in POLICIES:
        raise InputError(
            f"{option('policy')}: vllm-router has no {settings.policy}; it has"
            f" {', '.join(POLICIES)}"
        )
    lost = (
        ("idle_timeout", "idle timeout", settings.limits.idle_s != Limits().idle_s),
        ("backend", "weights", any(weight != 1 for _, weight in settings.backends)),
    )
    for name, what, changed in lost:
        if changed:
            raise InputError(
                f"{option(name)}: {what}: vllm-router does not have it in this way; leave it out,"
                " or use this gateway"
            )
    urls = [f"http://{target.authority}" for target, _ in settings.backends]
    limits, port = settings.limits, settings.port or free_ports(1, settings.host)[0]
    argv = (
        program,
        "--worker-urls",
        *urls,
        "--policy",
        POLICIES[settings.policy],
        "--host",
        settings.host,
        "--port",
        str(port),
    )
    bounds = ("--max-concurrent-requests", limits.in_flight, "--max-payload-size", limits.body)
    waits = (
        "--request-timeout-secs",
        max(1, round(limits.first_byte_s)),
        "--prometheus-port",
        free_ports(1)[0],
    )
    return (*argv, *map(str, (*bounds, *waits)), *BACK)
