"""Prometheus rules on the plan's limits, failures, load and idle GPUs, and a Grafana dashboard with
the plan drawn into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tonnage.deploy.plan_text import carries_line, choice_line
from tonnage.deploy.service import Service
from tonnage.deploy.yaml_comments import noted
from tonnage.plan.limit import Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """One pair of windows, over both of which a budget must burn faster than its rate."""

    long: str  # and short: windows
    short: str
    rate: float  # budgets of 30 days that would be spent in 30 days at this pace
    severity: str  # "page" or "ticket"
    hours: int  # of the long window


BURNS = (
    Burn(long="1h", short="5m", rate=14.4, severity="page", hours=1),
    Burn(long="6h", short="30m", rate=6, severity="page", hours=6),
    Burn(long="1d", short="2h", rate=3, severity="ticket", hours=24),
    Burn(long="3d", short="6h", rate=1, severity="ticket", hours=72),
)
"""Google, The Site Reliability Workbook (2018), chapter 5, "Alerting on SLOs", table of
multi-window, multi-burn-rate alerts."""

MONTH_HOURS = 720

LONGER, SLOWER, AHEAD_DAYS = 0.1, 0.25, 14
"""Shares by which lengths and times per token may exceed the plan's for a day, and the days ahead
for which the load is extrapolated."""

WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")

HIGHEST_SHARE = 0.9
"""A rate that only more than this share of slow requests could reach is lowered to it: with a
budget of half of the requests, 14.4 times that is more than all."""

# Share of failed responses that wakes somebody; bench calls a run with more of them invalid
ERRORS = 0.01

GPU_USE = "tonnage:gpu_use:percent"

IDLE = 0.1  # Share of the time in which a GPU works, below which it is called idle


def rules(service: Service, gpus: str, least: int, *, front: str = "") -> dict[str, Any]:
    """The groups of rules, as a rule file or a ``PrometheusRule`` holds them; ``least`` instances
    are always there.

    Of two pools there are none on limits and load: each engine's histograms hold one half of a
    request. ``gpus`` is PromQL of the use of the GPUs in percent, one series each, from NVIDIA's
    DCGM exporter. ``front``: the balancer that is scraped before them and counts failures where the
    engine does not: "gateway" for ``tonnage gateway``, or "haproxy".
    """
    service_objectives = objectives(service) if len(service.halves) == 1 else ()
    shares = [objective for objective in service_objectives if objective.budget is not None]
    use = {"record": GPU_USE, "labels": {"deployment": service.name}, "expr": gpus}
    groups: list[Any] = [{"name": f"{service.name}-gpus", "rules": [use]}]
    if shares:
        recorded = [
            {
                "record": _slow(objective, window),
                "labels": {"deployment": service.name},
                "expr": objective.slow_share(window),
            }
            for objective in shares
            for window in WINDOWS
        ]
        about = (
            "The share of requests, or of gaps between tokens, that were slower than a limit, over"
            " each window."
        )
        groups.append(
            noted(
                {"name": f"{service.name}-slow-share", "interval": "30s", "rules": recorded}, about
            )
        )
    burning = [rule for objective in service_objectives for rule in _burning(service, objective)]
    if burning:
        lines = [
            "The plan's limits over 30 days: "
            + "; ".join(objective.label for objective in service_objectives)
            + "."
        ]
        lines.append(
            "A rate of 14.4 spends 2 % of the month's budget in an hour. Both windows must burn:"
            " the short one ends the alert soon."
        )
        if any(objective.stands_in for objective in service_objectives):
            lines.append(
                "The engine publishes no TPOT of single requests; the gaps between tokens stand in"
                " for it."
            )
        groups.append(noted({"name": f"{service.name}-limits", "rules": burning}, "\n".join(lines)))
    groups.append(
        {"name": f"{service.name}-service", "rules": list(_service_rules(service, least, front))}
    )
    if len(service.halves) == 1:
        about = "Drift since the plan; `tonnage diff plan.json URL` says how many systems it takes."
        groups.append(
            noted(
                {
                    "name": f"{service.name}-drift",
                    "interval": "30m",
                    "rules": list(_drift_rules(service)),
                },
                about,
            )
        )
    return {"groups": groups}


def _slow(objective: Objective, window: str) -> str:
    """Name of the recorded share of a limit over a window."""
    return f"tonnage:{objective.key}_slow:ratio_rate{window}"


def _burning(service: Service, objective: Objective) -> Iterator[Any]:
    """The alerts of one limit, the fastest first; none twice at the same share."""
    if objective.budget is None:
        yield _mean(service, objective)
        return
    before = 1.0
    for burn in BURNS:
        share = min(burn.rate * objective.budget, HIGHEST_SHARE)
        if share >= before:
            continue
        before = share
        selector = f'{{deployment="{service.name}"}}'
        expr = (
            f"{_slow(objective, burn.long)}{selector} > {share:g} and"
            f" {_slow(objective, burn.short)}{selector} > {share:g}"
        )
        summary = (
            f"{objective.label} for {service.served}: more than {share:.0%} of the"
            f" {objective.counted} of {burn.long} and of {burn.short} were slower"
        )
        spent = share / objective.budget * burn.hours / MONTH_HOURS
        alert = _alert(service, f"{objective.title}_{burn.long}", expr, burn.severity, summary)
        yield noted(
            alert,
            f"{burn.severity}: {spent:.0%} of the month's budget, which is {objective.budget:.0%}"
            f" of the {objective.counted}, in {burn.long}",
        )


def _mean(service: Service, objective: Objective) -> dict[str, Any]:
    """A limit on a mean has no budget: it is broken or it holds."""
    limit_s = f"{objective.limit.seconds:g}"
    expr = f"{objective.mean('1h')} > {limit_s} and {objective.mean('5m')} > {limit_s}"
    summary = f"{objective.label} for {service.served}: the means of 1h and of 5m are above it"
    return _alert(service, f"{objective.title}_1h", expr, "page", summary)


def _service_rules(service: Service, least: int, front: str) -> Iterator[Any]:
    """Failures, missing instances, load beyond the plan, idle GPUs."""
    at = f'deployment="{service.name}"'
    if share := _failing(service, at, front):
        summary = (
            f"more than {ERRORS:.0%} of the responses of {service.served} failed in the last 5"
            " minutes"
        )
        rule = _alert(
            service, "FailingRequests", f"{share[0]} > {ERRORS:g}", "page", summary, wait="2m"
        )
        yield noted(rule, share[1])
    summary = (
        f"fewer than {least} instances of {service.served} answer their health checks and scrapes"
    )
    yield _alert(
        service,
        "InstancesMissing",
        f"(sum(up{{{at}}}) or vector(0)) < {least}",
        "page",
        summary,
        wait="10m",
    )
    if len(service.halves) == 1:
        yield from _load_rules(service, at)
    used = gpu_use(service)
    summary = f"the GPUs of {service.served} worked less than {IDLE:.0%} of the last 6 hours"
    yield _alert(
        service,
        "IdleGpus",
        f"avg(avg_over_time({used}[6h])) < {100 * IDLE:g}",
        "ticket",
        summary,
        wait="30m",
    )


def _failing(service: Service, at: str, front: str) -> tuple[str, str] | None:
    """PromQL of the share of requests that fail, and what it counts; None where nothing counts
    them.
    """
    signals = service.signals
    if signals.responses:
        total = f'sum(rate({signals.responses}{{{at},handler=~"/v1/.*"}}[5m]))'
        failed = f'sum(rate({signals.responses}{{{at},handler=~"/v1/.*",status="5xx"}}[5m]))'
        return (
            f"{failed} / {total}",
            (
                "Streams that break after their first byte have status 200 and are not counted by"
                " the engine."
            ),
        )
    if signals.failed:
        failed = f"sum(rate({signals.failed}{{{at}}}[5m]))"
        return (
            f"{failed} / ({failed} + sum(rate({signals.requests}{{{at}}}[5m])))",
            "NIM's own count of requests that failed.",
        )
    if front == "haproxy":
        counted = 'haproxy_backend_http_responses_total{proxy="engines"'
        failed, total = (f"sum(rate({counted}{code}}}[5m]))" for code in (',code="5xx"', ""))
        return (
            f"{failed} / {total}",
            (
                "The engine counts no failures: HAProxy's count of its responses, without streams"
                " that broke off."
            ),
        )
    if front:
        counted = "tonnage_gateway_requests_total"
        failed, total = (
            f'sum(rate({counted}{{outcome=~"{ends}"}}[5m]))'
            for ends in ("error|cut|failed", "ok|error|cut|failed")
        )
        return (
            f"{failed} / {total}",
            (
                "The engine counts no failures: the gateway's count of its responses, with streams"
                " that broke off."
            ),
        )
    return None


def _load_rules(service: Service, at: str) -> Iterator[Any]:
    """Load beyond what the plan counts on, per instance that runs."""
    counted = service.choice.sized_rate
    histogram = service.signals.histograms["e2e"]
    expr = f"sum(rate({histogram}_count{{{at}}}[10m])) / sum(up{{{at}}}) > {counted:.4g}"
    summary = (
        f"an instance of {service.served} gets more than the {counted:.4g} requests/s that the plan"
        " counts on"
    )
    rule = _alert(service, "LoadBeyondPlan", expr, "ticket", summary, wait="10m")
    yield noted(
        rule,
        f"The plan counts on {counted:.4g} requests/s of an instance; beyond that its limits may"
        " break.",
    )


def _drift_rules(service: Service) -> Iterator[Any]:
    """Write the alerts for longer prompts and outputs, slower steps, and a load that outgrows the
    plan within two weeks.
    """
    signals, at, understood = service.signals, f'deployment="{service.name}"', service.plan.scenario
    requests = f"{signals.histograms['e2e']}_count{{{at}}}"
    sides = (
        ("Prompts", signals.prompt_tokens, understood.mean_isl),
        ("Outputs", signals.output_tokens, understood.mean_osl),
    )
    for side, counter, tokens in sides:
        if counter and tokens:
            expr = (
                f"sum(increase({counter}{{{at}}}[1d])) / sum(increase({requests}[1d])) >"
                f" {(1 + LONGER) * tokens:.6g}"
            )
            summary = (
                f"{side.lower()} of {service.served} are {LONGER:.0%} longer than the {tokens:,.0f}"
                " tokens of the plan, over a day"
            )
            yield _alert(service, f"Longer{side}", expr, "ticket", summary, wait="1h")
    peak = service.choice.at_peak
    gap = next((metric for metric in ("tpot", "itl") if metric in signals.histograms), None)
    predicted = (
        None
        if peak is None or gap is None
        else (peak.tpot_ms if gap == "tpot" else peak.itl_ms).mean
    )
    if predicted is not None and gap is not None:
        name = signals.histograms[gap]  # type: ignore[index]
        expr = (
            f"sum(increase({name}_sum{{{at}}}[1d])) / sum(increase({name}_count{{{at}}}[1d])) >"
            f" {(1 + SLOWER) * predicted / 1e3:.4g}"
        )
        summary = (
            f"tokens of {service.served} take {SLOWER:.0%} longer than the {predicted:.3g} ms that"
            " the plan predicts at its peak"
        )
        yield _alert(service, "SlowerSteps", expr, "ticket", summary, wait="1h")
    day = f"sum(rate({requests}[1d]))"
    busiest = f"max_over_time(sum(rate({requests}[1h]))[1d:15m])"
    ahead = (
        f"{busiest} * predict_linear({day}[7d:1h], {AHEAD_DAYS * 86_400}) / {day} >"
        f" {service.capacity:.4g}"
    )
    summary = (
        f"at last week's growth {service.served} gets more than the plan's {service.capacity:.4g}"
        f" requests/s in {AHEAD_DAYS} days"
    )
    yield _alert(service, "LoadOutgrowsPlan", ahead, "ticket", summary, wait="6h")


def gpu_use(service: Service) -> str:
    """The series with how much of the time each GPU of the deployment works, in percent."""
    return f'{GPU_USE}{{deployment="{service.name}"}}'


def _alert(
    service: Service, name: str, expr: str, severity: str, description: str, *, wait: str = ""
) -> dict[str, Any]:
    pending = {"for": wait} if wait else {}
    labels = {"severity": severity, "deployment": service.name}
    return {
        "alert": name,
        "expr": expr,
        **pending,
        "labels": labels,
        "annotations": {"summary": description},
    }


# The plan's latency limits as service-level objectives: so large a share of requests may be slower,
# and what Prometheus asks for it.


# The share of requests that may be slower than a limit, by its statistic
SHARES = {"p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01}


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One limit of the plan."""

    limit: Limit  # as the plan has it
    histogram: str  # of the engine that shows it, without the ending "_bucket"
    bounds: tuple[float, ...]  # upper bounds of its buckets in seconds, ascending, without infinity
    # whether the histogram is one of gaps (ITL) where the limit is on the mean gap of a request
    # (TPOT)
    stands_in: bool
    selector: str  # of the deployment's series, such as 'deployment="x"'

    @property
    def key(self) -> str:
        """Such as "ttft_p95", or "ttft_of_95" of a joint limit."""
        return f"{self.limit.metric}_{self._part}"

    @property
    def _part(self) -> str:
        share = self.limit.share
        return self.limit.statistic if share is None else f"of_{100 * share:g}".replace(".", "_")

    @property
    def counted(self) -> str:
        """The quantity that the histogram counts."""
        return "gaps between tokens" if self.limit.metric == "itl" or self.stands_in else "requests"

    @property
    def title(self) -> str:
        """The beginning of its alerts' names, such as "SlowTtftP95", or "SlowTtftOf95" of a joint
        limit.
        """
        return f"Slow{self.limit.metric.capitalize()}{self._part.capitalize().replace('_', '')}"

    @property
    def label(self) -> str:
        """Such as "TTFT p95 ≤ 500 ms", or "TTFT ≤ 500 ms for 95% of the requests" of a joint
        limit.
        """
        metric, bound, share = (
            self.limit.metric.upper(),
            f"{self.limit.milliseconds:,g} ms",
            self.limit.share,
        )
        return (
            f"{metric} {self.limit.statistic} ≤ {bound}"
            if share is None
            else f"{metric} ≤ {bound} for {100 * share:g}% of the requests"
        )

    @property
    def budget(self) -> float | None:
        """Share of requests that may be slower than the limit; None for a limit on the mean, which
        is no share.
        """
        return (
            SHARES.get(self.limit.statistic)
            if self.limit.share is None
            else round(1 - self.limit.share, 9) or None
        )

    def slow_share(self, window: str) -> str:
        """PromQL of the share slower than the limit; between two bounds requests lie evenly, as
        ``histogram_quantile`` takes them.
        """
        name, seconds = self.histogram, self.limit.seconds
        below = max((bound for bound in self.bounds if bound <= seconds), default=0.0)
        above = min((bound for bound in self.bounds if bound >= seconds), default=None)
        if above is None:
            fast = self._bucket(below, window)
        elif above == below:
            fast = self._bucket(above, window)
        else:
            share = (seconds - below) / (above - below)
            upper = f"{share:.4g} * {self._bucket(above, window)}"
            fast = (
                upper
                if below == 0
                else f"{1 - share:.4g} * {self._bucket(below, window)} + {upper}"
            )
        return f"1 - ({fast}) / sum(rate({name}_count{{{self.selector}}}[{window}]))"

    def mean(self, window: str) -> str:
        """PromQL of the mean, in seconds."""
        name = self.histogram
        return (
            f"sum(rate({name}_sum{{{self.selector}}}[{window}])) /"
            f" sum(rate({name}_count{{{self.selector}}}[{window}]))"
        )

    def quantile(self, window: str) -> str:
        """PromQL of the limit's own statistic, in seconds."""
        if self.budget is None:
            return self.mean(window)
        name = self.histogram
        return (
            f"histogram_quantile({1 - self.budget:g}, sum by (le)"
            f" (rate({name}_bucket{{{self.selector}}}[{window}])))"
        )

    def _bucket(self, bound: float, window: str) -> str:
        return f'sum(rate({self.histogram}_bucket{{{self.selector},le="{bound}"}}[{window}]))'


def objectives(service: Service) -> tuple[Objective, ...]:
    """The limits that count, of which the engine publishes a histogram; the strictest of those with
    one name.
    """
    strictest: dict[str, Objective] = {}
    for objective in _all(service):
        if (
            objective.key not in strictest
            or objective.limit.milliseconds < strictest[objective.key].limit.milliseconds
        ):
            strictest[objective.key] = objective
    return tuple(strictest.values())


def _all(service: Service) -> Iterator[Objective]:
    histograms = service.signals.histograms
    selector = f'deployment="{service.name}"'
    for limit in (
        part
        for plan_limit in service.plan.scenario.limits_that_count
        for part in _parts(plan_limit)
    ):
        exact = histograms.get(limit.metric)
        stand_in = histograms.get("itl") if limit.metric == "tpot" else None
        shown = exact or stand_in
        if shown is not None:
            bounds = service.interface.buckets[shown]
            yield Objective(
                limit=limit,
                histogram=shown,
                bounds=bounds,
                stands_in=exact is None,
                selector=selector,
            )


def _parts(limit: Limit) -> Iterator[Limit]:
    """The limit itself, or each of a joint one: where one alone is missed by more than the share,
    the joint limit is missed too.
    """
    if limit.parts is None:
        yield limit
        return
    for metric, milliseconds in limit.parts:
        # of a request's mean gap, which no engine has a histogram of under that name
        if metric != "itl":
            yield replace(limit, metric=metric, milliseconds=milliseconds, parts=None)


def in_flight(service: Service) -> str:
    """The requests in flight over all instances; without gauges by Little's law, from the
    request-seconds of two minutes.
    """
    signals, at = service.signals, f'deployment="{service.name}"'
    if signals.running:
        return f"sum({signals.running}{{{at}}}) + sum({signals.waiting}{{{at}}})"
    return f"sum(rate({signals.histograms['e2e']}_sum{{{at}}}[2m]))"


# Of Grafana's dashboards, as version 11 writes them (recalled, 2026-11-22); later versions read it
SCHEMA = 39

COLUMNS, WIDE, HIGH = 24, 12, 8


def dashboard_text(service: Service) -> str:
    """The dashboard as JSON."""
    return json.dumps(dashboard(service), indent=2, ensure_ascii=False) + "\n"


def dashboard(service: Service) -> dict[str, Any]:
    """The dashboard; its data source is requested when it is opened."""
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }
    placed = [
        {
            "id": i + 1,
            "gridPos": {
                "x": i * WIDE % COLUMNS,
                "y": i // (COLUMNS // WIDE) * HIGH,
                "w": WIDE,
                "h": HIGH,
            },
            **panel,
        }
        for i, panel in enumerate(_panels(service))
    ]
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
    for objective in objectives(service):
        yield _panel(
            objective.label,
            "s",
            {
                "measured": objective.quantile("5m"),
                "plan: limit": _line(objective.limit.seconds),
                **_predicted(service, objective),
            },
        )
        if objective.budget is not None:
            budget = objective.budget or 0.0
            share = f"tonnage:{objective.key}_slow:ratio_rate"
            yield _panel(
                f"Share of {objective.counted} slower than {objective.limit.metric.upper()}"
                f" {objective.limit.milliseconds:,g} ms",
                "percentunit",
                {
                    "of 5 minutes": f"{share}5m{{{at}}}",
                    "of 1 hour": f"{share}1h{{{at}}}",
                    "budget": _line(budget),
                    "a page": _line(min(14.4 * budget, HIGHEST_SHARE)),
                },
            )
    yield _panel(
        "Instances", "short", {"answering": running, "plan": _line(service.pool.instances)}
    )
    gpus = {
        "measured": f"avg({gpu_use(service)}) / 100",
        "plan: utilisation at the peak": _line(choice.utilisation),
    }
    yield _panel(
        "GPUs at work (not how well: a GPU that decodes one request is at work)",
        "percentunit",
        gpus,
    )
    if service.signals.kv_used:
        yield _panel(
            "KV cache in use",
            "percentunit",
            {"{{pod}}{{instance}}": f"{service.signals.kv_used}{{{at}}}"},
        )
    if service.signals.output_tokens:
        yield _panel(
            "Output tokens a second",
            "short",
            {"measured": f"sum(rate({service.signals.output_tokens}{{{at}}}[5m]))"},
        )


def _predicted(service: Service, objective: Objective) -> dict[str, str]:
    """The panel of what the plan predicts at the peak; nothing where it predicts nothing."""
    peak = service.choice.at_peak
    if peak is None:
        return {}
    latencies = {
        "ttft": peak.ttft_ms,
        "itl": peak.itl_ms,
        "tpot": peak.tpot_ms,
        "e2e": peak.e2e_ms,
    }[objective.limit.metric]
    value = getattr(latencies, objective.limit.statistic, None)  # none of a share
    return {} if value is None else {"plan: at the peak": _line(value / 1e3)}


def _line(value: float) -> str:
    return f"vector({value:.6g})"


def _panel(title: str, unit: str, series: dict[str, str]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + place), "datasource": source, "expr": expr, "legendFormat": name}
        for place, (name, expr) in enumerate(series.items())
    ]
    dashes = [
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
        {"id": "custom.lineWidth", "value": 2},
    ]
    drawn = {
        "matcher": {"id": "byRegexp", "options": "/^(plan:? ?|budget|a page)/"},
        "properties": dashes,
    }
    return {
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "fieldConfig": {
            "defaults": {"unit": unit, "min": 0, "custom": {"lineWidth": 1}},
            "overrides": [drawn],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": targets,
    }
