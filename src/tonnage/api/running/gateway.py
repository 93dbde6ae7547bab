"""A fleet in its own processes, and the gateway before them: its settings, from addresses, a file or a plan."""

from __future__ import annotations

import math
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tonnage.errors import InputError, InputErrors, UnknownName, option
from tonnage.spec.typed_values import parse_yaml, read_as

if TYPE_CHECKING:
    from tonnage.bench.connection import Target
    from tonnage.gateway.settings import GatewayArguments, Settings
    from tonnage.plan.candidate import Candidate
    from tonnage.serve.supervisor import Program, Supervisor

READY_S = 120.0  # seconds that simulated instances or a gateway may take to serve: far more than they need

Seen = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """A fleet that serves."""

    supervisor: Supervisor
    url: str  # of the gateway
    instances: tuple[str, ...]  # the names of the instances


def served_instances(arguments: Sequence[str], instances: int, own: Sequence[Sequence[str]] = ()) -> list[Program]:
    """The programs of instances that ``tonnage serve`` runs, each on a free port of 127.0.0.1, with its ``own`` further arguments."""
    from tonnage.serve.supervisor import Program, free_ports

    command = (sys.executable, "-m", "tonnage", "serve", *arguments, "--host", "127.0.0.1")
    return [
        Program(name=f"instance-{i}", argv=(*command, *(own[i] if own else ()), "--port", str(port)), address=f"127.0.0.1:{port}")
        for i, port in enumerate(free_ports(instances))
    ]


def gateway_before(instances: Sequence[Program], *, policy: str, host: str = "127.0.0.1", port: int = 0) -> Program:
    """The program of a gateway before instances; port 0 takes a free one.

    Its health path is the one that says that it lives, so that it counts as ready before its instances are.
    """
    from tonnage.serve.supervisor import Program, free_ports

    port = port or free_ports(1, host)[0]
    backends = [word for one in instances for word in ("--backend", one.url)]
    argv = (sys.executable, "-m", "tonnage", "gateway", *backends, "--policy", policy, "--host", host, "--port", str(port))
    return Program(name="gateway", argv=argv, address=f"{host}:{port}", path="/v1/health/live")


@contextmanager
def processes(
    instances: Sequence[Program], gateway: Program, logs: Path, *, ready_s: float, grace_s: float, told: Callable[[str], None], seen: Seen
) -> Iterator[Processes]:
    """The fleet for as long as the block lasts; it ends with the gateway first. Raises InputError, TonnageError: one does not serve."""
    from tonnage.serve.supervisor import Supervisor

    with Supervisor(instances, logs, grace_s=grace_s, told=told) as supervisor:
        supervisor.wait_until_ready(timeout_s=ready_s, seen=seen)
        with Supervisor([gateway], logs, grace_s=grace_s, told=told) as front:
            front.wait_until_ready(timeout_s=READY_S)
            yield Processes(supervisor=supervisor, url=gateway.url, instances=tuple(one.name for one in instances))


@contextmanager
def served(**flags: object) -> Iterator[str]:
    """The address of a simulated endpoint in a separate process, by flags of ``tonnage serve``. Raises InputError, TonnageError."""
    from tonnage.serve.supervisor import Supervisor

    arguments = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    (program,) = served_instances(arguments, 1)
    with tempfile.TemporaryDirectory(prefix="tonnage-served-") as logs, Supervisor([program], Path(logs)) as supervisor:
        supervisor.wait_until_ready(timeout_s=READY_S)
        yield program.url


# ``tonnage serve --processes``: every instance in its own process, and the gateway before them.


GRACE_S = 15.0  # seconds that a process has to end: more than the 10 in which its streams may go on

LOADING_S = 600.0  # seconds that an instance may take to load its model


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

    ``arguments`` of ``tonnage serve`` are for each instance, ``faults`` for the one that they name, the rest for the gateway.
    Raises InputError, TonnageError: a process does not serve.
    """
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

    ``logs`` holds what they print (default: a folder that is removed at the end). Raises InputError, TonnageError: one does not serve.
    """
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


MAX_IN_FLIGHT = 1_024
MOST_BACKENDS = 256
ABOVE_0 = ("max_body_mb", "first_byte_timeout", "idle_timeout")


def gateway_settings(**asked: Any) -> Settings:
    """The settings of a gateway, from the fields of ``GatewayArguments`` by name. Raises InputError: what cannot be used."""
    from tonnage.gateway.settings import GatewayArguments

    return _settings(GatewayArguments(**asked))


def _settings(a: GatewayArguments) -> Settings:
    from tonnage.gateway.settings import Limits, Settings
    from tonnage.simulator.router import ROUTERS

    if a.policy not in ROUTERS:
        raise UnknownName("policy", a.policy, ROUTERS)
    backends, most = (a.backends, a.max_in_flight) if a.plan is None else _planned(a, a.plan)
    if a.plan is None and a.plan_host:
        raise InputError(f"{option('plan_host')}: belongs to a plan; give {option('plan')} too")
    most = MAX_IN_FLIGHT if most is None else most
    for name, value in {"max_in_flight": most, **{name: getattr(a, name) for name in ABOVE_0}}.items():
        if not 0 < value < math.inf:
            raise InputError(f"{option(name)}: {value} is not possible; write a number above 0")
    if not 0 <= a.port <= 65_535:
        raise InputError(f"{option('port')}: {a.port} is no port; write a number from 0 to 65535")
    if not 0 < len(backends) <= MOST_BACKENDS:
        raise InputError(f"{option('backend')}: give from 1 to {MOST_BACKENDS} of them, such as http://127.0.0.1:8001")
    found = tuple(_backend(text) for text in backends)
    names = [target.authority for target, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{option('backend')}: {twice} is given twice; a weight makes one count for more, as in http://{twice}=2")
    limits = Limits(in_flight=most, body=a.max_body_mb * 1_048_576, first_byte_s=float(a.first_byte_timeout), idle_s=float(a.idle_timeout))
    return Settings(backends=found, policy=a.policy, seed=a.seed, host=a.host, port=a.port, limits=limits)


def _planned(a: GatewayArguments, plan: str | Path) -> tuple[Sequence[str], int | None]:
    """Addresses and bound of a plan; a requested bound is kept."""
    if a.backends:
        raise InputError(f"{option('backend')}: the plan says where its instances are; leave one of the two out")
    found, in_flight = planned_backends(plan, a.plan_host)
    return found, in_flight if a.max_in_flight is None else a.max_in_flight


def _backend(text: str) -> tuple[Target, float]:
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


def gateway_from(path: str | Path, given: Mapping[str, Any]) -> Settings:
    """The settings in a file, with ``given`` fields of ``GatewayArguments`` in place of its own. Raises InputErrors."""
    from tonnage.gateway.settings import GatewayArguments

    said = read_as(GatewayArguments, _values(Path(path)), str(path), InputErrors)
    if {"backends", "plan"} & set(given):  # a flag of either kind stands in place of both
        said = replace(said, backends=(), plan=None, plan_host=())
    return _settings(replace(said, **given))


def _values(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option('config')}: {path} cannot be read ({error})") from None
    return parse_yaml(text, str(path)) or {}


# Where the instances of a plan run, for the gateway before them.


HERE = "127.0.0.1"


def planned_backends(path: str | Path, hosts: Sequence[str] = ()) -> tuple[tuple[str, ...], int | None]:
    """The addresses of a plan's instances, from port 8001 on as for Compose, and the requests in flight at once; None where not known.

    ``hosts`` are the plan's systems, in order. Raises InputError: nothing chosen, separate pools, or not one host for each system.
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
    return backends, most_in_flight(choice.concurrency_per_instance, pool.instances)


# vllm-router in place of the gateway: the command that starts it with the same settings.


PROXIES = ("vllm-router",)
VERSION = "0.1.17"  # of vllm-router, whose flags these are (read from its own help, 2026-11-22)

# Its name for each policy that both have
POLICIES = {
    "round-robin": "round_robin",
    "random": "random",
    "power-of-two": "power_of_two",
    "prefix-aware": "cache_aware",
    "session": "consistent_hash",
}

# Without these, a worker that has come back stays out for a minute, and one that is not up at the start is looked for every 30 s
BACK = ("--cb-timeout-duration-secs", "3", "--health-check-interval-secs", "2", "--worker-startup-check-interval", "1")


def proxy_command(proxy: str, settings: Settings) -> tuple[str, ...]:
    """The command that balances by another program. Raises InputError: not installed, or settings that it does not have."""
    if proxy not in PROXIES:
        raise UnknownName("proxy", proxy, PROXIES)
    found = shutil.which(proxy) or shutil.which(proxy, path=str(Path(sys.executable).parent))
    if found is None:
        raise InputError(
            f"{option('proxy')}: {proxy} is not installed; pip install vllm-router=={VERSION} into an environment whose bin is on PATH, "
            "or leave it out"
        )
    _check(settings)
    from tonnage.serve.supervisor import free_ports

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
