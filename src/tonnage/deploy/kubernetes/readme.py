"""The page that says how to apply the files, test what runs, and compare it with the plan."""

from __future__ import annotations

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.service import PORT, Service
from tonnage.deploy.testing import bench_command, compare_command
from tonnage.deploy.told import gpu_words, paragraph, summary


def readme(service: Service) -> str:
    """The page in Markdown."""
    name, peak = service.name, service.plan.demand.sizing_requests_per_second
    return f"""# {service.served} on Kubernetes

{summary(service)}

{paragraph(_needs(service))}

```sh
kubectl apply --kustomize .
kubectl rollout status deployment/{name} --timeout {service.startup_seconds + 300}s
kubectl port-forward deployment/{name} 8080:{PORT} &
{bench_command(service, "http://127.0.0.1:8080", instances=1)}
{compare_command(instances=1)}
```

A gated model needs a token first: `kubectl create secret generic hf-token --from-literal=token="$HF_TOKEN"`.

The port-forward leads to one pod, which gets its share of the plan's peak. To measure all of them, run `tonnage bench` in a pod of the
cluster, with the address `http://{name}` and `--request-rate {peak:.6g}`, and leave `--instances` out of `compare` if all of the
plan's instances run.

| file | what |
|---|---|
| `deployment.yaml` | {service.pool.instances} pods with {gpu_words(service)} each, the engine's arguments, probes, resources |
| `service.yaml` | one address before them |
| `model-cache.yaml` | {service.cache_gib} GiB for the checkpoint |
| `disruption-budget.yaml` | one pod at a time |
{_scaling_rows(service)}| `pod-monitor.yaml`, `alerts.yaml` | for the Prometheus operator: what is scraped, and the rules |
| `dashboard.json` | for Grafana, with the plan's capacity and limits as dashed lines |
| `plan.json` | the plan |
"""


def _needs(service: Service) -> str:
    keda = "; autoscaling needs KEDA" if service.target_in_flight is not None else ""
    folder = f" The claim `{service.name}-model-cache` is mounted at {FOLDER}: put the checkpoint's folder into it."
    needs = f"The cluster needs NVIDIA's GPU operator, a storage class with ReadWriteMany and kube-prometheus-stack{keda}."
    return needs + (folder if service.local else "")


def _scaling_rows(service: Service) -> str:
    if service.target_in_flight is None:
        return ""
    told = f"{service.least_instances} to {service.pool.instances} pods, {service.target_in_flight} requests in flight each"
    rows = f"| `autoscaling.yaml` | {told}, by KEDA |\n"
    if service.signals.running:
        rows += "| `autoscaling-without-keda.yaml` | the same by prometheus-adapter; not applied by the second command |\n"
    return rows
