"""The configuration of HAProxy before the instances of a plan: what balances them where users
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BALANCE = {
    "least-outstanding": "leastconn",
    "round-robin": "roundrobin",
    "weighted": "roundrobin",
    "random": "random(1)",
    "power-of-two": "random(2)",
}
"""HAProxy's name for each policy of the simulator that it has (HAProxy 2.6's configuration manual,
``balance``, read 2026-11-28)."""

PASSED = (
    r"/v1/(?:chat/completions|completions|embeddings|responses|messages|messages/count_tokens|rerank|score|classify|pooling|moderations"
    r"|audio/(?:transcriptions|translations|speech)|images/generations|models/[^/]+(?:/[^/]+)?)"
    r"|/v2|/v2/models/[^/]+(?:/versions/[^/]+)?(?:/(?:infer|generate|generate_stream|ready|config|stats))?"
)
"""Paths that ask for answers; paths that change an engine, such as loading adapters or models, are
for its operator alone."""

BACKEND, LONG = "engines", "long"
IDLE = 1_000  # Connections of clients that wait between two requests
HEAVIEST = 256  # The largest weight of a server

CONFIGURATION = """\
# Balances requests between the instances. To try it: haproxy -c -f haproxy.cfg; SIGUSR1 lets running requests end.
global
    maxconn {connections}

# names may be resolved after the start, and again when an instance moves
resolvers names
    parse-resolv-conf
    hold valid 10s

defaults
    mode http
    # a token goes on as it comes: else small pieces wait up to 200 ms for more
    option http-no-delay
    timeout connect 2s
    timeout client {idle:g}s
    timeout server {first_byte:g}s
    timeout queue {first_byte:g}s
    # a request that drips in
    timeout http-request 10s
    timeout http-keep-alive 75s
    # a request goes to a second instance where no connection can be made; nothing that was sent is sent again
    retries 1
    option redispatch
    retry-on conn-failure

frontend clients
    bind {host}:{port}
    http-request use-service prometheus-exporter if {{ path /metrics }}
    http-request return status 200 if {{ path /v1/health/live }}
    http-request return status 200 if {{ path /health /v1/health/ready }} {ready}
    http-request return status 503 if {{ path /health /v1/health/ready }}
    # paths that ask for answers; paths that change an engine are for its operator alone
    http-request deny deny_status 404 unless {{ path /v1/models }} or {{ path_reg ^({passed})$ }}
    http-request deny deny_status 413 if {{ req.hdr_val(content-length) gt {body} }}
{refused}
    default_backend {backend}
{backends}"""  # noqa: E501
"""Directives of HAProxy 2.6, Debian's (docs.haproxy.org, read 2026-11-28)."""

SERVING = """
backend {backend}
    balance {balance}
    option httpchk
    http-check send meth GET uri /health
    # any other answer passes, since not every engine has that path
    http-check expect ! rstatus ^5
    default-server check inter 1s fall 2 rise 1 resolvers names init-addr libc,none
{servers}
"""

BY_LENGTH = """\
    # long prompts go to their own instances; their tokens are not known here, their bytes are
    option http-buffer-request
    acl long req.body_size gt {over_bytes}
"""
"""The length that a request announces, or of one that announces none the bytes that have come."""

Servers = Sequence[tuple[str, float, int]]
"""Host and port of instances, the weight of each, and how many it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Long:
    """Instances for requests of more than so many bytes, and how many of these at once."""

    servers: Servers
    over_bytes: int
    in_flight: int


def whole_weights(weights: Sequence[float]) -> list[int]:
    """Weights of servers as whole numbers up to ``HEAVIEST``, by the largest one for which none is
    off by more of itself than it has to be.
    """

    def scaled(largest: int) -> list[int]:
        return [max(1, round(largest * weight / max(weights))) for weight in weights]

    def error(largest: int) -> float:
        shares = scaled(largest)
        return max(
            abs(share * max(weights) / largest / weight - 1)
            for share, weight in zip(shares, weights, strict=True)
        )

    return scaled(min(range(HEAVIEST, 0, -1), key=error))


def configuration(
    servers: Servers,
    policy: str,
    *,
    host: str,
    port: int,
    in_flight: int,
    body: int,
    first_byte_s: float,
    idle_s: float,
    long: Long | None = None,
) -> str:
    """The text of ``haproxy.cfg``.

    Args:
        servers: the instances, or where ``long`` has some, those for all other requests.
        policy: a name of ``BALANCE``.
        host, port: where clients connect.
        in_flight: requests at once; further ones get 429.
        body: bytes of a request at most.
        first_byte_s, idle_s: as in ``gateway.settings.Limits``.
        long: instances for long requests alone; None for none.
    """
    pools = {BACKEND: (servers, in_flight, " !long")}
    if long is not None:
        pools[LONG] = (long.servers, long.in_flight, " long")
    refused = [
        f"    http-request return status 429 hdr Retry-After 1 if {{ be_conn({name}) ge {limit} }}"
        + ("" if long is None else which)
        for name, (_, limit, which) in pools.items()
    ]
    if long is not None:
        refused = [BY_LENGTH.format(over_bytes=long.over_bytes).rstrip(), *refused]
        refused.append(f"    use_backend {LONG} if long")
    return CONFIGURATION.format(
        backend=BACKEND,
        ready=" ".join(f"{{ nbsrv({name}) gt 0 }}" for name in pools),
        refused="\n".join(refused),
        backends="".join(
            SERVING.format(
                backend=name, balance=BALANCE[policy], servers="\n".join(_lines(members))
            )
            for name, (members, _, _) in pools.items()
        ),
        passed=PASSED.replace("(?:", "("),
        host=host,
        port=port,
        connections=sum(limit for _, limit, _ in pools.values()) + IDLE,
        body=body,
        first_byte=first_byte_s,
        idle=idle_s,
    )


def _lines(servers: Servers) -> Iterator[str]:
    shares = whole_weights([weight for _, weight, _ in servers])
    for place, (address, _, count) in enumerate(servers):
        name = f"kind-{place + 1}" if "$" in address else address
        server = f"server {name}" if count == 1 else f"server-template kind-{place + 1}- {count}"
        yield f"    {server} {address} weight {shares[place]}"
