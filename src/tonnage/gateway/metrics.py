"""The gateway's Prometheus metrics, read off the counts of all workers when somebody asks one of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tonnage.gateway.core import Core
from tonnage.gateway.counts import FIRST_BYTE

if TYPE_CHECKING:
    from prometheus_client import Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Counts(Collector):
    """The counts of a gateway as metric families."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Everything, at this moment."""
        core, counts, now, cut = self._core, self._core.counts, self._core.loop.time(), 0
        requests = CounterMetricFamily(
            "tonnage_gateway_requests", "Requests to backends, by how they ended.", labels=["backend", "outcome"]
        )
        connects = CounterMetricFamily("tonnage_gateway_connects", "Connections opened to a backend.", labels=["backend"])
        up = GaugeMetricFamily("tonnage_gateway_up", "1 where a backend takes requests.", labels=["backend"])
        outstanding = GaugeMetricFamily("tonnage_gateway_outstanding_requests", "Requests at a backend now.", labels=["backend"])
        tokens = GaugeMetricFamily("tonnage_gateway_outstanding_tokens", "Their tokens still to come, estimated.", labels=["backend"])
        waits = HistogramMetricFamily(
            "tonnage_gateway_first_byte_seconds", "From a complete request to the first byte of its response.", labels=["backend"]
        )
        for i, backend in enumerate(core.backends):
            ended = counts.outcomes(i)
            cut += ended["cut"]
            for outcome, count in ended.items():
                requests.add_metric([backend.name, outcome], count)
            connects.add_metric([backend.name], counts.connects.total(i))
            up.add_metric([backend.name], float(backend.takes(now)))
            outstanding.add_metric([backend.name], counts.requests.total(i))
            tokens.add_metric([backend.name], counts.tokens.total(i))
            waits.add_metric([backend.name], *_cumulated(*counts.waits(i)))
        refused = CounterMetricFamily("tonnage_gateway_refused", "Requests that the gateway answered with an error.", labels=["status"])
        for status, count in sorted(core.refused.items()):
            refused.add_metric([str(status)], count)
        policy = GaugeMetricFamily("tonnage_gateway_policy", "1 for the policy in use.", labels=["policy"])
        policy.add_metric([core.balancer.policy], 1)
        yield from (requests, connects, up, outstanding, tokens, refused, policy)
        by_key = CounterMetricFamily("tonnage_gateway_key_requests", "Requests by key, admitted or not.", labels=["key", "admitted"])
        for i, account in enumerate(core.keys.accounts):
            by_key.add_metric([account.key.name, "yes"], counts.admitted.total(i))
            by_key.add_metric([account.key.name, "no"], counts.denied.total(i))
        yield by_key
        yield CounterMetricFamily("tonnage_gateway_retries", "Requests sent to a second backend.", value=core.retries)
        hedges = counts.hedges.total(0)
        yield CounterMetricFamily("tonnage_gateway_hedges", "Requests sent to a second backend before the first failed.", value=hedges)
        yield CounterMetricFamily("tonnage_gateway_cut_streams", "Responses that broke off after their first byte.", value=cut)
        yield GaugeMetricFamily("tonnage_gateway_in_flight", "Requests that are being served.", value=counts.in_flight.total(0))
        yield GaugeMetricFamily("tonnage_gateway_clients", "Connections of clients.", value=counts.clients.total(0))
        yield GaugeMetricFamily("tonnage_gateway_workers", "Processes of the gateway.", value=counts.place.workers)
        yield waits


def _cumulated(counts: list[int], seconds: float) -> tuple[list[tuple[str, float]], float]:
    """Buckets as Prometheus counts them: each holds those below it too."""
    bounds = [*(str(bound) for bound in FIRST_BYTE), "+Inf"]
    return list(zip(bounds, map(float, accumulate(counts)), strict=True)), seconds


def text(core: Core) -> bytes:
    """All of it in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(Counts(core))
    return generate_latest(registry)
