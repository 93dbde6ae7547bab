"""``tonnage gateway``: the settings of a gateway, from addresses and names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, UnknownName, option

if TYPE_CHECKING:
    from tonnage.bench.wire.request import Target
    from tonnage.gateway.keys import Key
    from tonnage.gateway.settings import Settings
    from tonnage.gateway.tls import Tls

MAX_IN_FLIGHT = 1_024
MAX_BODY_MB = 32
MOST_BACKENDS = 256
MOST_WORKERS = 64


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
    keys: Sequence[Key] = (),
    aliases: Mapping[str, str] | None = None,
    access_log: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    backend_ca: str | Path | None = None,
    verify_backends: bool = True,
    workers: int = 1,
    hedge_after: str | None = None,
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
        keys: who may ask; everybody where there are none.
        aliases: further names of models, each with the one that the backends know.
        access_log: a file that gets a line for each request.
        tls_cert, tls_key: certificate and key of the gateway in PEM; without them clients speak plain HTTP.
        backend_ca: authorities of the certificates of https backends in PEM (default: the system's).
        verify_backends: whether those certificates are checked.
        workers: processes that serve; one for each core is of use.
        hedge_after: a duration such as "500ms" after which a request that has no answer is sent to a second backend too.
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
    if not 1 <= workers <= MOST_WORKERS:
        raise InputError(f"{option('workers')}: {workers} is not possible; write a number from 1 to {MOST_WORKERS}")
    limits = Limits(
        in_flight=max_in_flight,
        body=max_body_mb * 1_048_576,
        first_byte_s=float(first_byte_timeout),
        idle_s=float(idle_timeout),
        hedge_s=_hedge_s(hedge_after),
    )
    return Settings(
        backends=found,
        policy=policy,
        seed=seed,
        host=host,
        port=port,
        limits=limits,
        keys=tuple(keys),
        aliases=dict(aliases or {}),
        access_log=None if access_log is None else Path(access_log),
        workers=workers,
        tls=_tls(found, tls_cert, tls_key, backend_ca, verify_backends),
    )


def _planned(
    backends: Sequence[str], plan: str | Path, hosts: Sequence[str], max_in_flight: int | None
) -> tuple[Sequence[str], int | None]:
    """Addresses and bound of a plan; a bound that was asked for stands."""
    from tonnage.api.running.gateway_plan import planned_backends

    if backends:
        raise InputError(f"{option('backend')}: the plan says where its instances are; leave one of the two out")
    found = planned_backends(plan, hosts)
    return found.backends, found.max_in_flight if max_in_flight is None else max_in_flight


def _hedge_s(text: str | None) -> float:
    """Seconds; 0 for no hedging."""
    from tonnage.units import parse_duration

    seconds = 0.0 if text is None else parse_duration(text, option("hedge_after"))
    if text is not None and not seconds:
        raise InputError(f"{option('hedge_after')}: '{text}' would send every request twice; write for example 500ms, or leave it out")
    return seconds


def _tls(
    backends: Sequence[tuple[Target, float]], cert: str | Path | None, key: str | Path | None, ca: str | Path | None, verify: bool
) -> Tls:
    """The certificates, all of which have been read once."""
    from tonnage.gateway.tls import Tls

    encrypted = any(target.tls for target, _ in backends)
    if key is not None and cert is None:
        raise InputError(f"{option('tls_key')}: belongs to a certificate; give {option('tls_cert')} too")
    if ca is not None and not verify:
        raise InputError(f"{option('backend_ca')}: says nothing where certificates are not checked; leave one of the two out")
    if not encrypted and (ca is not None or not verify):
        name = "backend_ca" if ca is not None else "verify_backends"
        raise InputError(f"{option(name)}: no backend is https; leave it out, or write https:// before an address")
    paths = {name: None if path is None else Path(path) for name, path in (("certificate", cert), ("key", key), ("backend_ca", ca))}
    found = Tls(**paths, verify=verify)
    found.server_context()
    if encrypted:
        found.backend_context()
    return found


def _backend(text: str) -> tuple[Target, float]:
    """An address and its weight."""
    from tonnage.bench.wire.request import parse_url

    where = option("backend")
    url, equals, weight = text.partition("=")
    try:
        target = parse_url(url)
    except InputError as error:
        raise InputError(f"{where}: {error.reason}") from None
    if target.path:
        raise InputError(f"{where}: '{url}' has a path; give the address alone, such as http://{target.authority}")
    try:
        value = float(weight) if equals else 1.0
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"{where}: '{weight}' is no weight; write a number above 0, as in {url}=2")
    return target, value
