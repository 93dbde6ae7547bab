"""A Grafana dashboard with the predicted capacity, limits and target drawn into it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tonnage.deploy.alerts import HIGHEST_SHARE, Objective, gpu_use, in_flight, objectives
from tonnage.deploy.plan_text import carries_line, choice_line
from tonnage.deploy.service import Service

SCHEMA = 39
"""Of Grafana's dashboards, as version 11 writes them (recalled, 2026-11-22); later versions read it."""

COLUMNS, WIDE, HIGH = 24, 12, 8


def dashboard_text(service: Service) -> str:
    """The dashboard as JSON."""
    return json.dumps(dashboard(service), indent=2, ensure_ascii=False) + "\n"


def dashboard(service: Service) -> dict[str, Any]:
    """The dashboard; its data source is requested when it is opened."""
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    placed = [_placed(panel, place) for place, panel in enumerate(_panels(service))]
    return {
        "uid": f"tonnage-{service.name}"[:40],
        "title": f"{service.served}: the plan and what is",
        "description": f"{choice_line(service)}. {carries_line(service)}",
        "tags": ["tonnage", service.family],
        "schemaVersion": SCHEMA,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": placed,
    }


def _placed(panel: dict[str, Any], place: int) -> dict[str, Any]:
    at = {"x": place * WIDE % COLUMNS, "y": place // (COLUMNS // WIDE) * HIGH, "w": WIDE, "h": HIGH}
    return {"id": place + 1, "gridPos": at, **panel}


def _panels(service: Service) -> Iterator[dict[str, Any]]:
    at = f'deployment="{service.name}"'
    choice, counted = service.choice, service.choice.sized_rate
    done = f"sum(rate({service.signals.histograms['e2e']}_count{{{at}}}[5m]))"
    running = f"sum(up{{{at}}})"
    yield _panel(
        "Requests a second",
        "reqps",
        {
            "measured": done,
            "plan: carried by the instances that run": f"{counted:.6g} * {running}",
            "plan: carried by all its instances": _line(service.capacity),
            "plan: peak": _line(service.plan.demand.sizing_requests_per_second),
        },
    )
    flight = {"measured": in_flight(service)}
    if service.target_in_flight is not None:
        flight["plan: another instance is wanted"] = f"{service.target_in_flight} * {running}"
        flight["plan: the limits end"] = f"{choice.concurrency_per_instance:.6g} * {running}"
    if service.signals.waiting:
        flight["waiting"] = f"sum({service.signals.waiting}{{{at}}})"
    yield _panel("Requests in flight", "short", flight)
    for one in objectives(service):
        yield _panel(one.label, "s", {"measured": one.quantile("5m"), "plan: limit": _line(one.limit.seconds), **_predicted(service, one)})
        if one.budget is not None:
            yield _panel(
                f"Share of {one.counted} slower than {one.limit.metric.upper()} {one.limit.milliseconds:,g} ms",
                "percentunit",
                _burning(one, at),
            )
    yield _panel("Instances", "short", {"answering": running, "plan": _line(service.pool.instances)})
    gpus = {"measured": f"avg({gpu_use(service)}) / 100", "plan: utilisation at the peak": _line(choice.utilisation)}
    yield _panel("GPUs at work (not how well: a GPU that decodes one request is at work)", "percentunit", gpus)
    if service.signals.kv_used:
        yield _panel("KV cache in use", "percentunit", {"{{pod}}{{instance}}": f"{service.signals.kv_used}{{{at}}}"})
    if service.signals.output_tokens:
        yield _panel("Output tokens a second", "short", {"measured": f"sum(rate({service.signals.output_tokens}{{{at}}}[5m]))"})


def _predicted(service: Service, one: Objective) -> dict[str, str]:
    """What the plan predicts at the peak; nothing where it does not."""
    peak = service.choice.at_peak
    if peak is None:
        return {}
    latencies = {"ttft": peak.ttft_ms, "itl": peak.itl_ms, "tpot": peak.tpot_ms, "e2e": peak.e2e_ms}[one.limit.metric]
    value = getattr(latencies, one.limit.statistic, None)  # none of a share
    return {} if value is None else {"plan: at the peak": _line(value / 1e3)}


def _burning(one: Objective, at: str) -> dict[str, str]:
    budget = one.budget or 0.0
    share = f"tonnage:{one.key}_slow:ratio_rate"
    return {
        "of 5 minutes": f"{share}5m{{{at}}}",
        "of 1 hour": f"{share}1h{{{at}}}",
        "budget": _line(budget),
        "a page": _line(min(14.4 * budget, HIGHEST_SHARE)),
    }


def _line(value: float) -> str:
    return f"vector({value:.6g})"


def _panel(title: str, unit: str, series: dict[str, str]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + place), "datasource": source, "expr": expr, "legendFormat": name}
        for place, (name, expr) in enumerate(series.items())
    ]
    dashes = [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}, {"id": "custom.lineWidth", "value": 2}]
    drawn = {"matcher": {"id": "byRegexp", "options": "/^(plan:? ?|budget|a page)/"}, "properties": dashes}
    return {
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"lineWidth": 1}}, "overrides": [drawn]},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }
