"""``tonnage gateway``: a load balancer before instances that speak the OpenAI API."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from tonnage.gateway.server import Running


def gateway(
    *,
    backend: Annotated[
        list[str], Parameter(help="Address of an instance, once for each, such as http://127.0.0.1:8001; =2 is its weight.")
    ],
    policy: Annotated[
        str,
        Parameter(
            help="Which instance gets a request; round-robin, weighted, least-tokens, power-of-two, prefix-aware, session and others."
        ),
    ] = "least-outstanding",
    max_in_flight: Annotated[int, Parameter(help="Requests at once; further ones get 429 with Retry-After.")] = 1024,
    max_body_mb: Annotated[int, Parameter(help="MiB of a request's body; larger ones get 413.")] = 32,
    first_byte_timeout: Annotated[float, Parameter(help="Seconds that an instance may take to begin a response.")] = 600.0,
    idle_timeout: Annotated[
        float, Parameter(help="Seconds without a byte after which a response is cut, and for which a client may read nothing.")
    ] = 120.0,
    seed: Annotated[int, Parameter(help="Seed of random choices.")] = 0,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes a free one.")] = 8080,
) -> None:
    """Balance requests between instances, with the routers that the simulator has; bodies and streams pass through byte for byte.

    A request whose instance fails before its response has begun is sent to another one. Ends on Ctrl-C or SIGTERM, when running
    requests have ended or after 10 seconds.
    """
    from tonnage import api
    from tonnage.gateway.server import serve

    settings = api.gateway_settings(
        backends=backend,
        policy=policy,
        max_in_flight=max_in_flight,
        max_body_mb=max_body_mb,
        first_byte_timeout=first_byte_timeout,
        idle_timeout=idle_timeout,
        seed=seed,
        host=host,
        port=port,
    )

    def ready(running: Running) -> None:
        core = running.core
        up = sum(one.up for one in core.backends)
        kind = "backend" if len(core.backends) == 1 else "backends"
        print(
            f"tonnage: {policy} before {len(core.backends)} {kind}, {up} up, on http://{host}:{running.port}/v1",
            file=sys.stderr,
            flush=True,
        )

    serve(settings, ready)
