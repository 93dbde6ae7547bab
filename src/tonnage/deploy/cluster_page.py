"""The page of a target on a cluster, in the form that all of them share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from tonnage.deploy.checkpoint import FOLDER
from tonnage.deploy.plan_text import paragraph, summary
from tonnage.deploy.service import Service

# The commands that test a deployment against its plan, as every target's page gives them.


RUN = "run"
PLAN = "plan.json"
_TAKEN = re.compile(r"\d+|\d+\+-\d+|(lognormal|uniform):[\d,-]+")
"""Lengths that ``bench`` takes in the form in which the plan has them."""


def bench_command(service: Service, url: str, *, instances: int) -> str:
    """The plan's peak, or the share of it that so many instances get, for five minutes."""
    rate = service.plan.demand.sizing_requests_per_second * instances / service.pool.instances
    scenario = service.plan.scenario
    lengths = {"--isl": (scenario.isl, scenario.mean_isl), "--osl": (scenario.osl, scenario.mean_osl)}
    words = ["tonnage", "bench", "--url", url, "--model", service.served]
    for flag, (text, mean) in lengths.items():
        words += [flag, text if _TAKEN.fullmatch(text) else str(round(mean))]
    words += ["--request-rate", f"{rate:.6g}", "--benchmark-duration", "300s"]
    for limit in scenario.limits_that_count:
        words += ["--slo", f"{limit.metric} {limit.statistic}<={limit.milliseconds:g}ms"]
    return _folded([*words, "--artifact-dir", RUN])


def compare_command(*, instances: int | None) -> str:
    """What was measured next to what the plan predicts for the same requests; None for all of the plan's instances."""
    return f"tonnage compare {RUN} {PLAN}" + (f" --instances {instances}" if instances else "")


def _folded(words: list[str]) -> str:
    """The command on lines of at most 110 columns, broken before flags."""
    lines, line = [], ""
    for place, word in enumerate(words):
        text = word if word.startswith('"') else shlex.quote(word)  # with a variable of the shell in it
        if line and word.startswith("--") and len(" ".join([line, text, *words[place + 1 : place + 2]])) > 105:
            lines.append(line + " \\")
            line = f"    {text}"
        else:
            line = f"{line} {text}".lstrip() if not line.startswith("    ") else f"{line} {text}"
    return "\n".join([*lines, line])


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
