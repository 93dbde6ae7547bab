"""What one instance has done since it started, and what it holds at this moment, read off its metrics page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tonnage.deploy.signals import SIGNALS, Signals
from tonnage.spec.deployment import LimitMetric
from tonnage.watch.buckets import Buckets, buckets_of
from tonnage.watch.page import Page

FAILED = "5xx"
"""The status under which vLLM counts responses that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One instance.

    Attributes:
        running, waiting: requests with a slot and in the queue; None where the engine does not publish them.
        kv_used: share of the KV cache in use; None where it is not published.
        prompt_tokens, output_tokens: since its start; None where they are not published.
        responses, failures: HTTP responses since its start, and those with a status of 500 or more; None where they are not published.
        histograms: of seconds, by metric.
    """

    running: float | None = None
    waiting: float | None = None
    kv_used: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    responses: float | None = None
    failures: float | None = None
    histograms: Mapping[LimitMetric, Buckets] = field(default_factory=dict)


def signals_on(page: Page) -> Signals | None:
    """The engine whose metrics a page has; None for none of those that are known."""
    return next((one for one in SIGNALS.values() if f"{one.histograms['e2e'].name}_count" in page), None)


def counts_of(page: Page, signals: Signals) -> Counts:
    """What a page says by the names of an engine."""

    def total(name: str) -> float | None:
        return page.total(name) if name and name in page else None

    used = page.values(signals.kv_used) if signals.kv_used else ()
    answered = [one for one in page.of(signals.responses) if one.labels.get("handler", "/v1/").startswith("/v1/")]
    return Counts(
        running=total(signals.running),
        waiting=total(signals.waiting),
        kv_used=sum(used) / len(used) if used else None,
        prompt_tokens=total(signals.prompt_tokens),
        output_tokens=total(signals.output_tokens),
        responses=sum(one.value for one in answered) if answered else None,
        failures=sum(one.value for one in answered if one.labels.get("status") == FAILED) if answered else None,
        histograms={metric: buckets_of(page, one.name) for metric, one in signals.histograms.items() if f"{one.name}_count" in page},
    )
