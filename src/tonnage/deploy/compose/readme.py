"""The page that says how to start the machine, test what runs, and compare it with the plan."""

from __future__ import annotations

from tonnage.deploy.compose.gateway import GATEWAY_PORT
from tonnage.deploy.service import Service
from tonnage.deploy.testing import bench_command, compare_command
from tonnage.deploy.told import carries_line, choice_line, gpu_words, limits_line


def readme(service: Service) -> str:
    """The page in Markdown."""
    return f"""# {service.served} with Docker Compose

{choice_line(service)}.
Limits: {limits_line(service)}.
{carries_line(service)}

The engine loads `{service.checkpoint}`. The machine needs Docker with NVIDIA's container toolkit, and tonnage.

```sh
export HF_TOKEN GF_SECURITY_ADMIN_PASSWORD    # their values: of the hub for gated models, and of your choice
docker compose up --detach --wait --wait-timeout {service.startup_seconds + 120}
tonnage gateway --config gateway.yaml &
{bench_command(service, f"http://127.0.0.1:{GATEWAY_PORT}", instances=service.pool.instances)}
{compare_command(instances=None)}
```

Grafana is on port 3000 with the plan's capacity and limits as dashed lines, Prometheus on 9090; both for the machine itself alone.
Prometheus reaches the gateway's metrics once the gateway listens on an address that containers see (`host` in `gateway.yaml`).

| file | what |
|---|---|
| `compose.yaml` | {service.pool.instances} instances with {gpu_words(service)} each, Prometheus, Grafana and an exporter |
| `gateway.yaml` | what `tonnage gateway` balances, and how |
| `prometheus.yaml`, `alerts.yaml` | what is scraped, and the rules |
| `grafana/` | the dashboard and its data source |
| `plan.json` | the plan |
"""
