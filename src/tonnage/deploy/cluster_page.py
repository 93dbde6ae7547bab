"""The page of a target on a cluster, in the form that all of them share."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.service import Service
from tonnage.deploy.testing import bench_command, compare_command
from tonnage.deploy.told import paragraph, summary

HALVES = (
    "An engine of either pool sees one half of a request, so the files have no rules on the plan's limits and no dashboard; bench measures "
    "whole requests. The numbers of both pools belong together, so nothing scales them."
)


def cluster_page(
    service: Service,
    *,
    runs_on: str,
    needs: str,
    commands: Sequence[str],
    url: str,
    instances: int,
    rows: Sequence[tuple[str, str]],
    further: str = "",
) -> str:
    """The page in Markdown: five commands, the last two of which test and compare.

    Args:
        service: what is deployed.
        runs_on: name of the target.
        needs: what the cluster needs, as sentences.
        commands: the first three.
        url: where bench sends its requests after them.
        instances: how many of them get those requests.
        rows: files, each with what is in it.
        further: what a reader must know, as a paragraph.
    """
    asked = instances if instances != service.pool.instances else None
    block = "\n".join([*commands, bench_command(service, url, instances=instances), compare_command(instances=asked)])
    table = "\n".join(f"| {name} | {what} |" for name, what in rows)
    if service.local:
        needs += f" The claim `{service.name}-model-cache` is mounted at {FOLDER}: put the checkpoint's folder into it."
    dashboard = "| `dashboard.json` | for Grafana, with the plan's capacity and limits as dashed lines |\n"
    if len(service.halves) > 1:
        further, dashboard = f"{further} {HALVES}".strip(), ""
    told = f"\n{paragraph(further)}\n" if further else ""
    return f"""# {service.served} with {runs_on}

{summary(service)}

{paragraph(needs)}

```sh
{block}
```
{told}
| file | what |
|---|---|
{table}
| `pod-monitor.yaml`, `alerts.yaml` | for the Prometheus operator: what is scraped, and the rules |
{dashboard}| `plan.json` | the plan |
"""
