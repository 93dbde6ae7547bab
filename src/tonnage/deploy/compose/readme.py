"""The page that says how to start the machine, test what runs, and compare it with the plan."""

from __future__ import annotations

from tonnage.deploy.cluster_page import bench_command, compare_command
from tonnage.deploy.compose.engines import WATCHING
from tonnage.deploy.compose.gateway import GATEWAY_PORT
from tonnage.deploy.plan_text import gpu_words, paragraph, summary
from tonnage.deploy.service import Service


def readme(service: Service) -> str:
    """The page in Markdown."""
    each = f"{service.per_machine} instances with {gpu_words(service)} each"
    return f"""# {service.served} with Docker Compose

{summary(service)}

{_needs(service)}

```sh
export HF_TOKEN GF_SECURITY_ADMIN_PASSWORD    # their values: of the hub for gated models, and of your choice
{_start(service)}
tonnage gateway --config gateway.yaml &
{bench_command(service, f"http://127.0.0.1:{GATEWAY_PORT}", instances=service.pool.instances)}
{compare_command(instances=None)}
```

Grafana is on port 3000 with the plan's capacity and limits as dashed lines, Prometheus on 9090; both for the machine itself alone.
Prometheus reaches the gateway's metrics once the gateway listens on an address that containers see (`host` in `gateway.yaml`).

| file | what |
|---|---|
| `compose.yaml` | {each}, Prometheus, Grafana and an exporter |
| `gateway.yaml` | what `tonnage gateway` balances, and how |
| `nginx.conf`, `envoy.yaml` | for clients on other machines: either of them before the gateway, with TLS, API keys and a rate limit |
| `prometheus.yaml`, `alerts.yaml` | what is scraped, and the rules |
| `grafana/` | the dashboard and its data source |
| `plan.json` | the plan |
"""


def _start(service: Service) -> str:
    profile = f" --profile {WATCHING}" if service.pool.systems > 1 else ""
    return f"docker compose{profile} up --detach --wait --wait-timeout {service.startup_seconds + 120}"


def _needs(service: Service) -> str:
    """Requirements of the machine, and the steps for several machines."""
    if service.pool.systems == 1:
        return "The machine needs Docker with NVIDIA's container toolkit, and tonnage."
    last = service.pool.instances % service.per_machine
    fewer = f" On the last machine, start only {last} instances: add `instance-1` to `instance-{last}` after `up`." if last else ""
    return paragraph(
        f"Docker Compose manages one machine, and the plan has {service.pool.systems}. Copy this folder to each machine, and replace "
        "`machine-1` and so on in `gateway.yaml` and `prometheus.yaml` by the machines' addresses. Run the commands below on the first "
        f"machine, which also runs the gateway, Prometheus and Grafana; on the others run `docker compose up` without `--profile`.{fewer} "
        "Every machine needs Docker with NVIDIA's container toolkit; the first one also needs tonnage. The engines' ports are not "
        "protected by keys: keep them on a private network."
    )
