"""The gateway's Prometheus metrics, read off its counts when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.gateway.core import Core

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
        core, now = self._core, self._core.loop.time()
        requests = CounterMetricFamily(
            "tonnage_gateway_requests", "Requests to backends, by how they ended.", labels=["backend", "outcome"]
        )
        connects = CounterMetricFamily("tonnage_gateway_connects", "Connections opened to a backend.", labels=["backend"])
        up = GaugeMetricFamily("tonnage_gateway_up", "1 where a backend takes requests.", labels=["backend"])
        outstanding = GaugeMetricFamily("tonnage_gateway_outstanding_requests", "Requests at a backend now.", labels=["backend"])
        tokens = GaugeMetricFamily("tonnage_gateway_outstanding_tokens", "Their tokens still to come, estimated.", labels=["backend"])
        for i, backend in enumerate(core.backends):
            for outcome, count in backend.outcomes.items():
                requests.add_metric([backend.name, outcome], count)
            connects.add_metric([backend.name], backend.connects)
            up.add_metric([backend.name], float(backend.takes(now)))
            outstanding.add_metric([backend.name], core.balancer.requests[i])
            tokens.add_metric([backend.name], core.balancer.tokens[i])
        cut = sum(backend.outcomes["cut"] for backend in core.backends)
        refused = CounterMetricFamily("tonnage_gateway_refused", "Requests that the gateway answered with an error.", labels=["status"])
        for status, count in sorted(core.refused.items()):
            refused.add_metric([str(status)], count)
        policy = GaugeMetricFamily("tonnage_gateway_policy", "1 for the policy in use.", labels=["policy"])
        policy.add_metric([core.balancer.policy], 1)
        yield from (requests, connects, up, outstanding, tokens, refused, policy)
        by_key = CounterMetricFamily("tonnage_gateway_key_requests", "Requests by key, admitted or not.", labels=["key", "admitted"])
        for account in core.keys.accounts:
            by_key.add_metric([account.key.name, "yes"], account.admitted)
            by_key.add_metric([account.key.name, "no"], account.denied)
        yield by_key
        yield CounterMetricFamily("tonnage_gateway_retries", "Requests sent to a second backend.", value=core.retries)
        yield CounterMetricFamily("tonnage_gateway_cut_streams", "Responses that broke off after their first byte.", value=cut)
        yield GaugeMetricFamily("tonnage_gateway_in_flight", "Requests that are being served.", value=core.in_flight)
        yield GaugeMetricFamily("tonnage_gateway_clients", "Connections of clients.", value=len(core.clients))
        yield from core.first_byte.collect()


def text(core: Core) -> bytes:
    """All of it in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(Counts(core))
    return generate_latest(registry)
