"""The settings of a gateway: its backends, its policy, and the bounds on everything that a client
or a backend could let grow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tonnage.bench.connection import Target
from tonnage.spec.typed_values import about, strict


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on sizes (bytes), numbers and seconds."""

    body: int = 32 * 1_048_576  # of a request; larger ones get 413
    in_flight: int = 1_024  # requests that are being served at once; further ones get 429
    keep_alive_s: int = 75  # between two requests on a client's connection
    connect_s: float = 2.0  # to connect to a backend
    # from a request to the first byte of the backend's response; slower ones get 504
    first_byte_s: float = 600.0
    # between two pieces of a request or a response, and for a client that reads nothing of it
    idle_s: float = 120.0
    # how long an idle connection to a backend is kept: less than the 5 s after which uvicorn closes
    # it
    pooled_s: float = 4.0
    health_s: float = 1.0  # between two health checks of a backend, and of each
    drain_s: int = 10  # how long running requests may go on after the gateway got SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One gateway."""

    backends: tuple[tuple[Target, float], ...]  # where each is, and its relative capacity, above 0
    policy: str = "least-outstanding"  # name of a router in ``simulator.router.ROUTERS``
    seed: int = 0  # of the policy's random choices
    host: str = "127.0.0.1"  # and port: where the gateway listens; port 0 takes a free one
    port: int = 8080
    limits: Limits = field(default_factory=Limits)


@strict
class GatewayArguments:
    """A gateway as people write it: the flags of the command, and the keys of its file."""

    backends: tuple[str, ...] = about(
        "Address of an instance, once for each, such as http://127.0.0.1:8001; =2 is its weight.",
        default=(),
    )
    plan: str | Path | None = about(
        "A plan that tonnage size wrote: its instances, on ports 8001, 8002, … of their systems."
    )
    plan_host: tuple[str, ...] = about(
        "Host of one of the plan's systems, once for each (default: this machine for a plan of"
        " one).",
        default=(),
    )
    policy: str = about(
        "Router between the instances: round-robin, weighted, least-tokens, power-of-two,"
        " prefix-aware, session and others (default: least-outstanding).",
        default="least-outstanding",
    )
    max_in_flight: int | None = about(
        "Requests at once; further ones get 429 with Retry-After (default: 1024, or by the plan)."
    )
    max_body_mb: int = about(
        "MiB of a request's body; larger ones get 413 (default: 32).", default=32
    )
    first_byte_timeout: float = about(
        "Seconds that an instance may take to begin a response (default: 600).", default=600.0
    )
    idle_timeout: float = about(
        "Close a connection after this many seconds without a byte from the instance or to the"
        " client (default: 120).",
        default=120.0,
    )
    seed: int = about("Seed of random choices (default: 0).", default=0)
    host: str = about("Address to listen on (default: 127.0.0.1).", default="127.0.0.1")
    port: int = about("Port to listen on; 0 takes a free one (default: 8080).", default=8080)
