"""vllm-router in place of the gateway: the command that starts it with the same settings."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError, UnknownName, option

if TYPE_CHECKING:
    from tonnage.gateway.settings import Settings

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
    from tonnage.gateway.settings import Limits, Settings

    if settings.policy not in POLICIES:
        raise InputError(f"{option('policy')}: vllm-router has no {settings.policy}; it has {', '.join(POLICIES)}")
    plain = Settings(backends=settings.backends)
    lost = [
        *((option("config"), name) for name in ("keys", "aliases") if getattr(settings, name)),
        *((option(name), name) for name in ("access_log", "workers") if getattr(settings, name) != getattr(plain, name)),
        *([(option("tls_cert"), "TLS")] if settings.tls != plain.tls or any(target.tls for target, _ in settings.backends) else []),
        *([(option("hedge_after"), "hedging")] if settings.limits.hedge_s else []),
        *([(option("idle_timeout"), "idle timeout")] if settings.limits.idle_s != Limits().idle_s else []),
        *([(option("backend"), "weights")] if any(weight != 1 for _, weight in settings.backends) else []),
    ]
    if lost:
        where, what = lost[0]
        raise InputError(f"{where}: {what.replace('_', ' ')}: vllm-router does not have it in this way; leave it out, or use this gateway")
