"""The files of a deployment with Docker Compose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.monitoring import dashboard_text, rules
from tonnage.deploy.plan_text import (
    argv_notes,
    bench_command,
    compare_command,
    gpu_words,
    head,
    image_note,
    page_text,
    startup_line,
)
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.workload import USE
from tonnage.deploy.yaml_comments import Alias, Noted, noted, plain, yaml_text
from tonnage.gateway.haproxy import BALANCE, configuration
from tonnage.gateway.settings import Limits


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name: of one machine all its services together, of several a
    file for each, and the router's.
    """
    gpus = f'{USE[service.gpu.vendor]}{{deployment="{service.name}"}}'
    source = {
        "name": "Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": "http://prometheus:9090",
        "isDefault": True,
    }
    boards = {"name": "plan", "type": "file", "options": {"path": "/var/lib/grafana/dashboards"}}
    texts = {
        **{
            name: yaml_text(document, head=head(service))
            for name, document in services(service).items()
        },
        **({"haproxy.cfg": haproxy(service)} if balanced(service) else {}),
        "gateway.yaml": yaml_text(gateway(service)),
        "nginx.conf": nginx(service),
        "envoy.yaml": yaml_text(envoy(service)),
        "prometheus.yaml": yaml_text(prometheus(service)),
        "alerts.yaml": yaml_text(
            rules(
                service,
                gpus,
                service.pool.instances,
                front="haproxy" if balanced(service) else "gateway",
            )
        ),
        "grafana/datasource.yaml": yaml_text({"apiVersion": 1, "datasources": [source]}),
        "grafana/provider.yaml": yaml_text({"apiVersion": 1, "providers": [boards]}),
        "grafana/dashboards/plan.json": dashboard_text(service),
        "README.md": readme(service),
    }
    if service.file_text:
        texts[service.file_name] = service.file_text
    return texts


def prometheus(service: Service) -> dict[str, Any]:
    """Write Prometheus' configuration: the targets to scrape, and the files of rules."""
    label = {"deployment": service.name}
    engines = [f"instance-{number}:{PORT}" for number in range(1, service.pool.instances + 1)]
    exporters = [f"gpu-exporter:{EXPORTER_PORTS[service.gpu.vendor]}"]
    if service.several:
        engines = [address(service, place) for place in range(service.pool.instances)]
        exporters = [f"{name}:{_exporter_port(service)}" for name in _placed(service)]
    path = {"metrics_path": service.signals.path} if service.signals.path != "/metrics" else {}
    front: Any = {
        "job_name": "gateway",
        "static_configs": [{"targets": [f"gateway:{GATEWAY_PORT}"]}],
    }
    if not balanced(service):
        where = (
            "It runs on the machine itself: down until `host` in gateway.yaml is an address that"
            " containers see, such as 172.17.0.1."
        )
        front = noted(
            {
                "job_name": "gateway",
                "static_configs": [{"targets": [f"host.docker.internal:{front_port(service)}"]}],
            },
            where,
        )
    gpus = {
        "job_name": "gpus",
        "honor_labels": True,
        "static_configs": [{"targets": exporters, "labels": label}],
    }
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {
                "job_name": "engines",
                **path,
                "static_configs": [{"targets": engines, "labels": label}],
            },
            *([] if service.simulated else [gpus]),
            front,
        ],
    }


# ``compose.yaml``: an engine for each instance, with own GPUs, and what watches them.


IMAGES = {
    "haproxy": "haproxy:3.2",
    "prometheus": "prom/prometheus:v3.5.0",
    "grafana": "grafana/grafana:12.1.0",
    "gpu-exporter": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04",
    "amd-exporter": "rocm/device-metrics-exporter:v1.5.0",
}
"""Recalled, 2026-11-22; AMD's exporter, its port and its devices as in public manifests,
2026-11-25."""

EXPORTER_PORT = 9400
EXPORTER_PORTS = {"NVIDIA": 9400, "AMD": 5000}  # Inside its container, by vendor

AMD_DEVICES = {
    "devices": ["/dev/kfd", "/dev/dri"],
    "group_add": ["video"],
    "security_opt": ["seccomp=unconfined"],
}
"""How a container gets AMD's GPUs (ROCm's documentation of Docker, recalled)."""

ENVIRONMENT = [f"HF_HOME={FOLDER}", "HF_TOKEN"]
ROUTER = "router.yaml"  # Of several machines: what runs next to the gateway


def services(service: Service) -> dict[str, dict[str, Any]]:
    """Compose's files by their names: one for one machine; of several one for each, and
    ``ROUTER``.
    """
    several, placed = service.several, _placed(service)
    watching = _moved(
        ({"gateway": GATEWAY} if balanced(service) else {}) | WATCHING, service.beside
    )
    documents = {}
    for machine, places in placed.items():
        instances = {f"instance-{place + 1}": _instance(service, place) for place in places}
        note = f"What all {len(places)} instances share." if len(places) > 1 else "The engine."
        exporter = {} if service.simulated else {"gpu-exporter": _exporter(service, places)}
        documents[f"{machine}.yaml" if several else "compose.yaml"] = {
            "x-engine": Noted(value=engine(service), anchor="engine", note=note),
            "services": instances | ({} if several else watching) | exporter,
            "volumes": {"model-cache": {}, **({} if several else {"prometheus": {}})},
        }
    return documents | (
        {ROUTER: {"services": watching, "volumes": {"prometheus": {}}}} if several else {}
    )


def _moved(services: Mapping[str, Any], by: int) -> dict[str, Any]:
    """Services whose published ports are so many further on, as several use cases on one machine
    need.
    """

    def moved(port: str) -> str:
        host, outside, inside = port.split(":")
        return f"{host}:{int(outside) + by}:{inside}"

    if not by:
        return dict(services)
    return {
        name: {**service, "ports": [moved(port) for port in plain(service["ports"])]}
        for name, service in services.items()
    }


def _placed(service: Service) -> dict[str, list[int]]:
    """The instances of each machine, counted from 0."""
    places_by_machine: dict[str, list[int]] = {}
    for place in range(service.pool.instances):
        places_by_machine.setdefault(service.machine_of(place), []).append(place)
    return places_by_machine


def engine(service: Service) -> dict[str, Any]:
    """The part of a service that all instances share."""
    command, *arguments = service.argv
    name = service.file_name
    command_words = [f"/etc/engine/{name}" if word == name else word for word in arguments]
    model_volume = f"./models:{FOLDER}" if service.local else f"model-cache:{FOLDER}"
    volumes = [model_volume, *([f"./{name}:/etc/engine/{name}:ro"] if service.file_text else [])]
    probe = (
        f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/health',"
        " timeout=5)"
    )
    return {
        "image": noted(service.image, image_note(service)),
        "entrypoint": [command],
        "command": noted(command_words, argv_notes(service)),
        "environment": noted(
            ENVIRONMENT, "HF_TOKEN is taken from your shell; gated models need it."
        ),
        "volumes": volumes,
        "shm_size": noted(
            f"{service.shared_memory_gib}gb", "Shared memory of NCCL and the engine's processes."
        ),
        "restart": "unless-stopped",
        "stop_grace_period": noted(
            f"{service.drain_seconds}s",
            "Running requests may end: the plan's p99 of E2E at the limit, at least 30 s.",
        ),
        "healthcheck": {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": noted(f"{service.startup_seconds}s", startup_line(service)),
        },
    }


def _instance(service: Service, place: int) -> dict[str, Any]:
    """Write one instance: the next GPUs of the machine, and a port on it."""
    ids = _gpu_ids(service, [place])
    resources: dict[str, Any] = {"limits": {"memory": f"{service.memory_gib}g"}}
    devices: dict[str, Any] = {}
    if service.gpu.vendor == "AMD" and not service.simulated:
        environment = noted(
            [*ENVIRONMENT, f"HIP_VISIBLE_DEVICES={','.join(ids)}"],
            "The instance's own GPUs, of those of the machine.",
        )
        devices = {**AMD_DEVICES, "environment": environment}
    elif not service.simulated:
        resources["reservations"] = {
            "devices": [{"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}]
        }
    return {
        "<<": Alias(name="engine"),
        "ports": [_published(FIRST_PORT + service.slot(place), PORT, several=service.several)],
        **devices,
        "deploy": {"resources": resources},
    }


def _published(port: int, inside: int, *, several: bool) -> str:
    """A published port: on 127.0.0.1, or on all interfaces if the plan has several machines."""
    return f"{port}:{inside}" if several else f"127.0.0.1:{port}:{inside}"


FRONT = (
    "This machine alone. For others, put nginx.conf or envoy.yaml before it: TLS, keys, rate"
    " limits."
)

GATEWAY: dict[str, Any] = {
    "image": IMAGES["haproxy"],
    "volumes": ["./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro"],
    "ports": noted(["127.0.0.1:8080:8080"], FRONT),
    "restart": "unless-stopped",
}
"""HAProxy before the instances."""

WATCHING: dict[str, Any] = {
    "prometheus": {
        "image": IMAGES["prometheus"],
        "command": [
            "--config.file=/etc/prometheus/prometheus.yaml",
            "--storage.tsdb.retention.time=30d",
        ],
        "volumes": [
            "./prometheus.yaml:/etc/prometheus/prometheus.yaml:ro",
            "./alerts.yaml:/etc/prometheus/alerts.yaml:ro",
            "prometheus:/prometheus",
        ],
        "extra_hosts": ["host.docker.internal:host-gateway"],
        "ports": ["127.0.0.1:9090:9090"],
        "restart": "unless-stopped",
    },
    "grafana": {
        "image": IMAGES["grafana"],
        "environment": noted(["GF_SECURITY_ADMIN_PASSWORD"], "Taken from your shell."),
        "volumes": [
            "./grafana/datasource.yaml:/etc/grafana/provisioning/datasources/plan.yaml:ro",
            "./grafana/provider.yaml:/etc/grafana/provisioning/dashboards/plan.yaml:ro",
            "./grafana/dashboards:/var/lib/grafana/dashboards:ro",
        ],
        "ports": ["127.0.0.1:3000:3000"],
        "restart": "unless-stopped",
    },
}
"""Prometheus and Grafana."""


def _gpu_ids(service: Service, places: Sequence[int]) -> list[str]:
    """The GPUs of some instances of one machine."""
    firsts = [service.first_gpu(place) for place in places]
    return [str(first + number) for first in firsts for number in range(service.gpus)]


def _exporter(service: Service, places: Sequence[int]) -> dict[str, Any]:
    """The vendor's GPU exporter of a machine, which the Prometheus of another machine reads where
    there are several; of a shared machine it reads the GPUs of these instances alone.
    """
    vendor = service.gpu.vendor
    which = {"device_ids": _gpu_ids(service, places)} if service.seats else {"count": "all"}
    gpus = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
    exporter: dict[str, Any] = {
        "image": IMAGES["gpu-exporter"],
        "cap_add": ["SYS_ADMIN"],
        "deploy": {"resources": {"reservations": {"devices": [gpus]}}},
    }
    if vendor == "AMD":
        exporter = {"image": IMAGES["amd-exporter"], **AMD_DEVICES}
    ports = (
        {"ports": [_published(_exporter_port(service), EXPORTER_PORTS[vendor], several=True)]}
        if service.several
        else {}
    )
    return {**exporter, **ports, "restart": "unless-stopped"}


# The settings of ``tonnage gateway`` before the instances, and of nginx or Envoy before it, for
# TLS, keys and rate limits.


FIRST_PORT = 8001  # Of the first instance on its machine; the others follow

GATEWAY_PORT = 8080

MACHINES = "Placeholder names: replace them by the addresses of the machines."


def front_port(service: Service) -> int:
    """The port for clients on the router's machine."""
    return GATEWAY_PORT + service.beside


def _exporter_port(service: Service) -> int:
    """The port of a GPU exporter on its machine, where there are several."""
    return EXPORTER_PORT + service.beside


def balanced(service: Service) -> bool:
    """Whether HAProxy has the plan's router; else ``tonnage gateway`` balances on the machine
    itself.
    """
    return service.router in BALANCE


def haproxy(service: Service) -> str:
    """``haproxy.cfg``: the plan's router, on all interfaces of its container."""
    places = range(service.pool.instances)
    addresses = [
        address(service, place) if service.several else f"instance-{place + 1}:{PORT}"
        for place in places
    ]
    limits = Limits()
    text = configuration(
        [(name, 1.0, 1) for name in addresses],
        service.router,
        host="0.0.0.0",
        port=GATEWAY_PORT,
        in_flight=most_in_flight(service.choice.concurrency_per_instance, service.pool.instances)
        or limits.in_flight,
        body=limits.body,
        first_byte_s=limits.first_byte_s,
        idle_s=limits.idle_s,
    )
    return f"# {MACHINES}\n{text}" if service.several else text


def gateway(service: Service) -> dict[str, Any]:
    """Write the file that ``tonnage gateway --config`` reads."""
    concurrency = service.choice.concurrency_per_instance
    value, bound = most_in_flight(concurrency, service.pool.instances), dict[str, Any]()
    if concurrency is not None:
        note = (
            f"Twice what all instances hold where the limits end, {concurrency:,.0f} each; further"
            " requests get 429."
        )
        bound = {"max_in_flight": noted(value, note)}
    backends: Any = [f"http://{address(service, place)}" for place in range(service.pool.instances)]
    if service.several:
        backends = noted(backends, MACHINES)
    return {
        "backends": backends,
        "policy": noted(service.router, "The router that the plan's number of systems rests on."),
        "host": noted("127.0.0.1", FRONT),
        "port": front_port(service),
        **bound,
    }


def address(service: Service, place: int) -> str:
    """Host and port of an instance, counted from 0."""
    return f"{service.machine_of(place)}:{FIRST_PORT + service.slot(place)}"


def most_in_flight(per_instance: float | None, instances: int) -> int | None:
    """Twice what all instances hold at the limit, at least 64; None where that is not known."""
    return None if per_instance is None else max(64, math.ceil(2 * per_instance * instances))


TLS_PORT = 8443
NGINX = """\
# TLS, API keys and a rate limit before the gateway: nginx -c "$PWD/nginx.conf"
# Put the certificate and its key into tls.crt and tls.key, and your keys into the map: until then every request gets 401.
events {{ worker_connections 4096; }}
http {{
  map $http_authorization $client {{
    default "";
    # "Bearer {{a key}}" "{{its client, such as team-a}}";
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
"""  # noqa: E501
"""Directives of nginx 1.22 (nginx.org/en/docs, read 2026-11-24); without buffering, tokens reach
the client as they come."""


def nginx(service: Service) -> str:
    """``nginx.conf``: who may ask, how often, and over TLS."""
    rate = _requests_per_second(service)
    return NGINX.format(
        rate=rate, burst=2 * rate, port=front_port(service), tls=TLS_PORT + service.beside
    )


def envoy(service: Service) -> dict[str, Any]:
    """``envoy.yaml``: the same with Envoy 1.34 (envoyproxy.io/docs, read 2026-11-24)."""
    rate = _requests_per_second(service)
    bucket = {"max_tokens": 2 * rate, "tokens_per_fill": rate, "fill_interval": "1s"}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    limit = {
        "stat_prefix": "rate_limit",
        "token_bucket": bucket,
        "filter_enabled": always,
        "filter_enforced": always,
    }
    keys = {
        "credentials": noted(
            [], "Your keys, such as [{key: …, client: team-a}]: until then every request gets 401."
        ),
        "key_sources": [{"header": "Authorization"}],
    }
    route = {
        "match": {"prefix": "/"},
        "route": noted(
            {"cluster": "gateway", "timeout": "0s"}, "A stream may take as long as it takes."
        ),
    }
    manager = {
        "stat_prefix": "ingress",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            _typed(
                "envoy.filters.http.api_key_auth", "filters.http.api_key_auth.v3.ApiKeyAuth", keys
            ),
            _typed(
                "envoy.filters.http.local_ratelimit",
                "filters.http.local_ratelimit.v3.LocalRateLimit",
                limit,
            ),
            _typed("envoy.filters.http.router", "filters.http.router.v3.Router", {}),
        ],
    }
    certificate = {
        "certificate_chain": {"filename": "tls.crt"},
        "private_key": {"filename": "tls.key"},
    }
    tls = {"common_tls_context": {"tls_certificates": [certificate]}}
    managed = "filters.network.http_connection_manager"
    chain = {
        "transport_socket": _typed(
            "envoy.transport_sockets.tls", "transport_sockets.tls.v3.DownstreamTlsContext", tls
        ),
        "filters": [_typed(f"envoy.{managed}", f"{managed}.v3.HttpConnectionManager", manager)],
    }
    endpoint = {"endpoint": {"address": _socket("127.0.0.1", front_port(service))}}
    cluster = {
        "name": "gateway",
        "connect_timeout": "2s",
        "load_assignment": {"cluster_name": "gateway", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    listener = {
        "name": "tls",
        "address": _socket("0.0.0.0", TLS_PORT + service.beside),
        "filter_chains": [chain],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _typed(name: str, kind: str, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "typed_config": {"@type": f"type.googleapis.com/envoy.extensions.{kind}", **values},
    }


def _socket(address: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": address, "port_value": port}}


def _requests_per_second(service: Service) -> int:
    """What the plan's instances carry together, rounded up: beyond it requests wait longer than the
    limits allow.
    """
    return max(1, math.ceil(service.capacity))


def readme(service: Service) -> str:
    """The page in Markdown."""
    per_instance, several = f"instances with {gpu_words(service)} each", service.several
    exporter = "" if service.simulated else " and an exporter"
    up = f"up --detach --wait --wait-timeout {service.startup_seconds + 120}"
    front = "HAProxy, Prometheus" if balanced(service) else "Prometheus"
    start, rows = (
        f"docker compose {up}",
        [("`compose.yaml`", f"{service.per_machine} {per_instance}, {front}, Grafana{exporter}")],
    )
    if several:
        project = f"{service.case}-router" if service.seats else "router"
        router = f"docker compose --file {ROUTER} --project-name {project} up --detach --wait"
        start = (
            f"docker compose --file {next(iter(_placed(service)))}.yaml {up}    # on each machine,"
            f" with its file\n{router}"
        )
        rows = [
            (f"`{name}.yaml`", f"{len(places)} {per_instance}{exporter}")
            for name, places in _placed(service).items()
        ]
        rows.append((f"`{ROUTER}`", f"{front} and Grafana, on the router's machine"))
    further = f"""\
Grafana is on port {3000 + service.beside} with the plan's capacity and limits as dashed lines, Prometheus on {9090 + service.beside}; both for the machine itself alone."""  # noqa: E501
    if not balanced(service):
        further += """
In Prometheus the target `gateway` is down, and the alert on failed requests without data, until `host` in `gateway.yaml` is an address
that containers see, such as 172.17.0.1, that of Docker's bridge."""  # noqa: E501
    commands = (
        (
            "export HF_TOKEN GF_SECURITY_ADMIN_PASSWORD    # their values: of the hub for gated"
            " models, and of your choice"
        ),
        start,
        *(() if balanced(service) else ("tonnage gateway --config gateway.yaml &",)),
        bench_command(
            service, f"http://127.0.0.1:{front_port(service)}", instances=service.pool.instances
        ),
        compare_command(instances=None),
    )
    return page_text(
        service,
        f"{service.served} with Docker Compose",
        _needs(service),
        commands,
        rows=[*rows, *ROWS],
        further=further,
    )


ROWS = (
    ("`haproxy.cfg`", "how HAProxy balances the instances, where it has the plan's router"),
    ("`gateway.yaml`", "the same for `tonnage gateway`, by which `deploy rehearse` balances"),
    (
        "`nginx.conf`, `envoy.yaml`",
        (
            "for clients on other machines: either of them before the gateway, with TLS, API keys"
            " and a rate limit"
        ),
    ),
    ("`prometheus.yaml`, `alerts.yaml`", "what is scraped, and the rules"),
    ("`grafana/`", "the dashboard and its data source"),
)
"""The files that are the same for one machine and for several."""


def _needs(service: Service) -> str:
    """Requirements of the machine, and the steps for several machines."""
    docker = (
        "Docker and AMD's driver"
        if service.gpu.vendor == "AMD"
        else "Docker with NVIDIA's container toolkit"
    )
    docker = "Docker" if service.simulated else docker
    if not service.several:
        return f"The machine needs {docker}, and tonnage."
    return (
        f"Docker Compose manages one machine, and the plan has {len(_placed(service))}: each has a"
        " file. Copy this folder to each machine, and replace `machine-1` and so on in"
        " `gateway.yaml` and `prometheus.yaml` by the machines' addresses. Start each machine's"
        " file on it; the other commands are for the router's machine, which may be one of them."
        f" Every machine needs {docker}, and the router's needs tonnage too. The engines' ports are"
        " not protected by keys: keep them on a private network."
    )
