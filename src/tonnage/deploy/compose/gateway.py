"""The settings of ``tonnage gateway`` before the instances, and of nginx or Envoy before it, for TLS, keys and rate limits."""

from __future__ import annotations

import math
from typing import Any

from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted

FIRST_PORT = 8001
"""Of the first instance on its machine; the others follow."""

GATEWAY_PORT = 8080

MACHINES = "Placeholder names: replace them by the addresses of the machines."


def gateway(service: Service) -> dict[str, Any]:
    """What ``tonnage gateway --config`` reads."""
    bound = _bound(service)
    backends: Any = [f"http://{address(service, place)}" for place in range(service.pool.instances)]
    if service.pool.systems > 1:
        backends = noted(backends, MACHINES)
    return {
        "backends": backends,
        "policy": noted(service.router, "The router that the plan's number of systems rests on."),
        "host": noted("127.0.0.1", "This machine alone. For others, put nginx.conf or envoy.yaml before it: TLS, keys, rate limits."),
        "port": GATEWAY_PORT,
        **bound,
    }


def address(service: Service, place: int) -> str:
    """Host and port of an instance, counted from 0."""
    return f"{service.machine_of(place)}:{FIRST_PORT + place % service.per_machine}"


def _bound(service: Service) -> dict[str, Any]:
    """Requests at once; nothing where the plan knows no concurrency."""
    most = service.choice.concurrency_per_instance
    value = most_in_flight(most, service.pool.instances)
    if most is None or value is None:
        return {}
    return {
        "max_in_flight": noted(value, f"Twice what all instances hold where the limits end, {most:,.0f} each; further requests get 429.")
    }


def most_in_flight(per_instance: float | None, instances: int) -> int | None:
    """Twice what all instances hold at the limit, at least 64; None where that is not known."""
    return None if per_instance is None else max(64, math.ceil(2 * per_instance * instances))


TLS_PORT = 8443
NGINX = """\
# TLS, API keys and a rate limit before tonnage gateway: nginx -c "$PWD/nginx.conf"
# Put the certificate and its key into tls.crt and tls.key, and your keys into the map.
events {{ worker_connections 4096; }}
http {{
  map $http_authorization $client {{
    default "";
    "Bearer replace-this-key" "team-a";
  }}
  limit_req_zone $client zone=by_client:10m rate={rate}r/s;
  upstream gateway {{ server 127.0.0.1:{port}; keepalive 64; }}
  server {{
    listen {tls} ssl;
    ssl_certificate tls.crt;
    ssl_certificate_key tls.key;
    client_max_body_size 32m;
    location / {{
      if ($client = "") {{ return 401; }}
      limit_req zone=by_client burst={burst} nodelay;
      limit_req_status 429;
      proxy_pass http://gateway;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""
"""Directives of nginx 1.22 (nginx.org/en/docs, read 2026-11-24); without buffering, tokens reach the client as they come."""


def nginx(service: Service) -> str:
    """``nginx.conf``: who may ask, how often, and over TLS."""
    rate = _requests_per_second(service)
    return NGINX.format(rate=rate, burst=2 * rate, port=GATEWAY_PORT, tls=TLS_PORT)


def envoy(service: Service) -> dict[str, Any]:
    """``envoy.yaml``: the same with Envoy 1.34 (envoyproxy.io/docs, read 2026-11-24)."""
    rate = _requests_per_second(service)
    bucket = {"max_tokens": 2 * rate, "tokens_per_fill": rate, "fill_interval": "1s"}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    limit = {"stat_prefix": "rate_limit", "token_bucket": bucket, "filter_enabled": always, "filter_enforced": always}
    keys = {
        "credentials": noted([{"key": "replace-this-key", "client": "team-a"}], "Your keys, one for each client."),
        "key_sources": [{"header": "Authorization"}],
    }
    route = {"match": {"prefix": "/"}, "route": noted({"cluster": "gateway", "timeout": "0s"}, "A stream may take as long as it takes.")}
    manager = {
        "stat_prefix": "ingress",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            _typed("envoy.filters.http.api_key_auth", "filters.http.api_key_auth.v3.ApiKeyAuth", keys),
            _typed("envoy.filters.http.local_ratelimit", "filters.http.local_ratelimit.v3.LocalRateLimit", limit),
            _typed("envoy.filters.http.router", "filters.http.router.v3.Router", {}),
        ],
    }
    certificate = {"certificate_chain": {"filename": "tls.crt"}, "private_key": {"filename": "tls.key"}}
    tls = {"common_tls_context": {"tls_certificates": [certificate]}}
    chain = {
        "transport_socket": _typed("envoy.transport_sockets.tls", "transport_sockets.tls.v3.DownstreamTlsContext", tls),
        "filters": [
            _typed(
                "envoy.filters.network.http_connection_manager",
                "filters.network.http_connection_manager.v3.HttpConnectionManager",
                manager,
            )
        ],
    }
    endpoint = {"endpoint": {"address": _socket("127.0.0.1", GATEWAY_PORT)}}
    cluster = {
        "name": "gateway",
        "connect_timeout": "2s",
        "load_assignment": {"cluster_name": "gateway", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {"name": "tls", "address": _socket("0.0.0.0", TLS_PORT), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _typed(name: str, kind: str, values: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"type.googleapis.com/envoy.extensions.{kind}", **values}}


def _socket(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _requests_per_second(service: Service) -> int:
    """What the plan's instances carry together, rounded up: beyond it requests wait longer than the limits allow."""
    return max(1, math.ceil(service.capacity))
