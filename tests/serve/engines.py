"""A simulated engine with round numbers, for tests of what serves it."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.deployments import knobs_of
from tonnage.perf.step import StepModel
from tonnage.perf.step_terms import COEFFICIENTS, HOST_STEP, NORM
from tonnage.serve.prefix import CachedEngine
from tonnage.serve.server import Served
from tonnage.serve.tokens import Fours
from tonnage.simulator.spec import EngineSpec
from tonnage.spec.lengths import Lengths

STEP_S = 0.004
"""Every step of the engine takes this long."""


KNOBS = knobs_of(4, 256, prefix_caching=False)


def engine(kv_blocks: int = 200, *, prefix_caching: bool = False) -> CachedEngine:
    """An engine of four slots."""
    c = np.zeros(COEFFICIENTS)
    c[NORM], c[HOST_STEP] = 1.0, STEP_S
    return CachedEngine(
        EngineSpec(
            step=StepModel(coefficients=c, frontend_s=0.0),
            knobs=replace(KNOBS, prefix_caching=prefix_caching),
            blocks=kv_blocks,
        )
    )


SERVED = Served(
    engine=engine,
    instances=2,
    router="least-outstanding",
    model="toy",
    max_context=1000,
    lengths=Lengths(mean=40),
    most_waiting=3,
    tokens=Fours(8_000),
    speed=1.0,
    host="127.0.0.1",
    port=0,
)
"""Two of them, whose answers have 40 words and a token that ends them."""


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    """Status and text of an answer; bytes are sent as they stand."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, {"content-type": "application/json", **headers})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Asking:
    """A server that is asked."""

    port: int

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        status, text = ask(self.port, "POST", path, body)
        return status, json.loads(text)

    def get(self, path: str) -> tuple[int, str]:
        return ask(self.port, "GET", path)
