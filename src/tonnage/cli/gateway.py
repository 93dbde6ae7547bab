"""``tonnage gateway``: a load balancer before instances that speak the OpenAI API."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.cli.flags import about, flags_of, given, with_flags
from tonnage.errors import TonnageError, spelled

if TYPE_CHECKING:
    from tonnage.gateway.server import Running
    from tonnage.gateway.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What is balanced, and how."""

    backend: list[str] | None = about("Address of an instance, once for each, such as http://127.0.0.1:8001; =2 is its weight.")
    config: Path | None = about("YAML file with all of this, API keys and aliases; read again on SIGHUP. Flags stand in its place.")
    policy: str | None = about(
        "Which instance gets a request: round-robin, weighted, least-tokens, power-of-two, prefix-aware, session and others "
        "(default: least-outstanding)."
    )
    max_in_flight: int | None = about("Requests at once; further ones get 429 with Retry-After (default: 1024).")
    max_body_mb: int | None = about("MiB of a request's body; larger ones get 413 (default: 32).")
    first_byte_timeout: float | None = about("Seconds that an instance may take to begin a response (default: 600).")
    idle_timeout: float | None = about(
        "Seconds without a byte after which a response is cut, and for which a client may read nothing (default: 120)."
    )
    access_log: Path | None = about("File that gets a JSON line for each request, without its text.")
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

    config = asked.pop("config", None)
    said = {"backends" if name == "backend" else name: value for name, value in given(asked).items()}
    settings = _settings(config, said)

    def ready(running: Running) -> None:
        _told(settings, running.port, sum(one.up for one in running.core.backends))

    def again() -> Settings | None:
        """The file once more; what is wrong with it leaves everything as it is."""
        if config is None:
            return None
        try:
            found = _settings(config, said)
        except TonnageError as error:
            print(f"tonnage: {spelled(error.marked, '.'.join)}; the settings stay as they were", file=sys.stderr, flush=True)
            return None
        print(f"tonnage: settings read again: {found.policy} before {len(found.backends)} backends", file=sys.stderr, flush=True)
        return found

    serve(settings, ready, again)


def _settings(config: Path | None, said: dict[str, Any]) -> Settings:
    from tonnage import api

    return api.gateway_settings(**{"backends": (), **said}) if config is None else api.gateway_from(config, said)


def _told(settings: Settings, port: int, up: int) -> None:
    count = len(settings.backends)
    kind = "backend" if count == 1 else "backends"
    where = f"http://{settings.host}:{port}/v1"
    print(f"tonnage: {settings.policy} before {count} {kind}, {up} up, on {where}", file=sys.stderr, flush=True)
