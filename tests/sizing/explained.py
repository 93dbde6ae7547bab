"""What explains a chosen point."""

from __future__ import annotations

from tests.questions import SMALL, contenders, question
from tonnage.sizing.search.deployment_capacity import Contender, Sized

ASKED = {
    **SMALL,
    "tp": "1,2",
    "precision": "fp8",
    "engine": "tensorrt-llm-0.15",
    "peak_rps": 500,
    "ttft": "p95<=100ms",
}


def sized(one: Contender) -> Sized:
    return Sized(contender=one, level=None, systems=1, capacity=one.capacity(1))


def carried(**changed: object) -> Sized:
    return sized(contenders(question(**changed))[0])
