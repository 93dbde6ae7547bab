"""``tonnage gateway``: a load balancer before instances that speak the OpenAI API."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli.flags import flags_of, given, with_flags
from tonnage.spec.typed_values import about

if TYPE_CHECKING:
    from tonnage.gateway.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What is balanced, and how."""

    backend: list[str] | None = about("Address of an instance, once for each, such as http://127.0.0.1:8001; =2 is its weight.")
    plan: Path | None = about("A plan that tonnage size --output wrote: its instances, on ports 8001, 8002, … of their systems.")
    plan_host: list[str] | None = about("Host of one of the plan's systems, once for each (default: this machine for a plan of one).")
    config: Path | None = about("YAML file with all of this; flags override it.")
    policy: str | None = about(
        "Which instance gets a request: round-robin, weighted, least-tokens, power-of-two, prefix-aware, session and others "
        "(default: least-outstanding)."
    )
    max_in_flight: int | None = about("Requests at once; further ones get 429 with Retry-After (default: 1024, or by the plan).")
    max_body_mb: int | None = about("MiB of a request's body; larger ones get 413 (default: 32).")
    first_byte_timeout: float | None = about("Seconds that an instance may take to begin a response (default: 600).")
    idle_timeout: float | None = about(
        "Close a connection after this many seconds without a byte from the instance or to the client (default: 120)."
    )
    proxy: str | None = about("Balance by another program, which must be installed: vllm-router.")
    seed: int | None = about("Seed of random choices (default: 0).")
    host: str | None = about("Address to listen on (default: 127.0.0.1).")
    port: int | None = about("Port to listen on; 0 takes a free one (default: 8080).")


@with_flags(*flags_of(Gateway))
def gateway(**asked: Any) -> None:
    """Balance requests between instances, with the routers that the simulator has; bodies and streams pass through byte for byte.

    A request whose instance fails before its response has begun is sent to another one. Ends on Ctrl-C or SIGTERM, when running
    requests have ended or after 10 seconds.
    """
    from tonnage.gateway.server import serve

    config, proxy = asked.pop("config", None), asked.pop("proxy", None)
    settings = _settings(config, {"backends" if name == "backend" else name: value for name, value in given(asked).items()})
    if proxy is not None:
        _become(proxy, settings)
    serve(settings, lambda port, faults: _report_start(settings, port, faults))


def _become(proxy: str, settings: Settings) -> None:
    """Run another program in place of this one: signals reach it, and nothing stands between."""
    from tonnage import api

    command = api.proxy_command(proxy, settings)
    _say(f"{proxy} takes over: {' '.join(command)}")
    os.execv(command[0], command)


def _settings(config: Path | None, values: dict[str, Any]) -> Settings:
    from tonnage import api

    return api.gateway_settings(**values) if config is None else api.gateway_from(config, values)


def _report_start(settings: Settings, port: int, faults: Mapping[str, str]) -> None:
    kind = "backend" if len(faults) == 1 else "backends"
    up = sum(not fault for fault in faults.values())
    _say(f"{settings.policy} before {len(faults)} {kind}, {up} up, on http://{settings.host}:{port}/v1")
    for name, fault in faults.items():
        if fault:
            _say(f"{name} is not up: {fault}")


def _say(line: str) -> None:
    print(f"tonnage: {line}", file=sys.stderr, flush=True)
