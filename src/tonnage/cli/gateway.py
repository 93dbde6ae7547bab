"""``tonnage gateway``: a load balancer before instances that speak the OpenAI API."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tonnage.cli.flags import flags_of, given, with_flags
from tonnage.gateway.settings import GatewayArguments, Settings
from tonnage.spec.typed_values import about


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the settings are, and what balances."""

    config: Path | None = about("YAML file with all of this; flags override it.")
    proxy: str | None = about("Balance by another program, which must be installed: vllm-router.")


FLAGS = (*(replace(flag, name=flag.name.replace("backends", "backend")) for flag in flags_of(GatewayArguments)), *flags_of(Place))


@with_flags(*FLAGS)
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
