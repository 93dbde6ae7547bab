"""The paths that the gateway answers itself: health, models, its Prometheus metrics, and a refusal of what it does not pass on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tonnage.gateway.backend import FIRST_BYTE
from tonnage.gateway.core import Core
from tonnage.gateway.request import Request
from tonnage.gateway.response import document, refusal, response
from tonnage.version import VERSION

if TYPE_CHECKING:
    from prometheus_client import Metric

PASSED = (b"/v1/", b"/v2/", b"/v2")
"""What the paths of OpenAI and of KServe begin with."""

READY = (b"/health", b"/v1/health/ready")
LIVE = b"/v1/health/live"
METRICS = (b"/metrics", b"/v1/metrics")
MODELS = b"/v1/models"
VERSIONS, METADATA = b"/v1/version", b"/v1/metadata"
"""As NIM has them (docs.nvidia.com/nim, read 2026-11-22), with those of their fields that a gateway can fill."""

_UPWARDS = re.compile(rb"(?:/|%2f|\\|%5c)(?:\.|%2e){1,2}(?:/|%2f|\\|%5c|$)", re.IGNORECASE)

Reply = Callable[[bytes], None]


class OwnPaths:
    """Answers requests for a gateway's own paths."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core

    def answer(self, request: Request, reply: Reply) -> bool:
        """Answer now or later; False where the request is one for a backend."""
        path, reads = request.path, request.method in (b"GET", b"HEAD")
        close, head = not request.keep, request.method == b"HEAD"
        if reads and path in (*READY, LIVE, *METRICS):
            reply(self._known(path, close, head))
        elif reads and path in (VERSIONS, METADATA):
            reply(document(200, self._about(path), close=close, head=head))
        elif reads and path == MODELS:
            reply(self._models(close, head))
        elif _UPWARDS.search(path):
            self._core.refused[400] += 1
            reply(refusal(400, "the path leads upwards", close=close, head=head))
        elif not (path.startswith(PASSED[:2]) or path == PASSED[2]):
            self._core.refused[404] += 1
            reply(refusal(404, "there is nothing at this path; the gateway passes on /v1/ and /v2/", close=close, head=head))
        else:
            return False
        return True

    def _known(self, path: bytes, close: bool, head: bool) -> bytes:
        if path in METRICS:
            return response(200, text(self._core), kind=TEXT, close=close, head=head)
        if path == LIVE:
            return document(200, {"object": "health.response", "message": "live"}, close=close, head=head)
        ready = self._core.ready
        message = "ready" if ready else "no backend takes requests" if not self._core.draining else "about to end"
        return document(200 if ready else 503, {"object": "health.response", "message": message}, close=close, head=head)

    def _about(self, path: bytes) -> dict[str, Any]:
        """The gateway's release; or that and the models that its backends have listed."""
        if path == VERSIONS:
            return {"release": VERSION, "api": VERSION}
        core, now = self._core, self._core.loop.time()
        known = {name for backend in core.backends if backend.takes(now) for name in backend.models or ()}
        return {"version": VERSION, "assetInfo": [], "modelInfo": [{"shortName": name, "modelUrl": ""} for name in sorted(known)]}

    def _models(self, close: bool, head: bool) -> bytes:
        """The models of all backends that take requests, each name once, as the health checks last read them."""
        core, now = self._core, self._core.loop.time()
        lists = [backend.models for backend in core.backends if backend.takes(now) and backend.models is not None]
        if not lists:
            core.refused[503] += 1
            return refusal(503, "no backend lists its models at the moment", close=close, head=head)
        found = {name: one for models in lists for name, one in models.items()}
        return document(200, {"object": "list", "data": list(found.values())}, close=close, head=head)


TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Counts(Collector):
    """The counts of a gateway as metric families."""

    def __init__(self, core: Core) -> None:
        """Of a gateway."""
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Everything, at this moment."""
        core, now, cut = self._core, self._core.loop.time(), 0
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
        for backend in core.backends:
            cut += backend.outcomes["cut"]
            for outcome, count in backend.outcomes.items():
                requests.add_metric([backend.name, outcome], count)
            connects.add_metric([backend.name], backend.connects)
            up.add_metric([backend.name], float(backend.takes(now)))
            outstanding.add_metric([backend.name], backend.requests)
            tokens.add_metric([backend.name], backend.tokens)
            bounds = [*(str(bound) for bound in FIRST_BYTE), "+Inf"]
            waits.add_metric([backend.name], *(list(zip(bounds, map(float, accumulate(backend.waits)), strict=True)), backend.waited))
        refused = CounterMetricFamily("tonnage_gateway_refused", "Requests that the gateway answered with an error.", labels=["status"])
        for status, count in sorted(core.refused.items()):
            refused.add_metric([str(status)], count)
        policy = GaugeMetricFamily("tonnage_gateway_policy", "1 for the policy in use.", labels=["policy"])
        policy.add_metric([core.balancer.policy], 1)
        yield from (requests, connects, up, outstanding, tokens, refused, policy)
        yield CounterMetricFamily("tonnage_gateway_retries", "Requests sent to a second backend.", value=core.retries)
        yield CounterMetricFamily("tonnage_gateway_cut_streams", "Responses that broke off after their first byte.", value=cut)
        yield GaugeMetricFamily("tonnage_gateway_in_flight", "Requests that are being served.", value=core.in_flight)
        yield GaugeMetricFamily("tonnage_gateway_clients", "Connections of clients.", value=len(core.clients))
        yield waits


def text(core: Core) -> bytes:
    """All of it in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(Counts(core))
    return generate_latest(registry)
