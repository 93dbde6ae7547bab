"""Pages of instances."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from tonnage.formats.prometheus import Buckets, Page, buckets_of

BOUNDS = (0.1, 0.2, 0.5, 1.0)


def observed(*rounds: list[float]) -> list[Buckets]:
    """A histogram of Prometheus' client after each round, read off its page."""
    registry = CollectorRegistry()
    histogram = Histogram("x:seconds", "", ["model"], buckets=BOUNDS, registry=registry).labels(
        'a "b" \\ c'
    )
    found = []
    for values in rounds:
        for value in values:
            histogram.observe(value)
        found.append(buckets_of(Page(generate_latest(registry).decode()), "x:seconds"))
    return found
