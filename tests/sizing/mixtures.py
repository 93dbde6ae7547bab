"""Use cases on one fleet."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from tests.questions import question
from tonnage.sizing.planner import size
from tonnage.sizing.use_cases import Asked

CHAT: dict[str, Any] = {
    "isl": 500,
    "osl": 100,
    "peak_rps": 100,
    "ttft": "p95<=400ms",
    "tpot": "p95<=40ms",
    "tp": "1",
}

DOCUMENTS: dict[str, Any] = {
    "isl": 6000,
    "osl": 200,
    "peak_rps": 7.2,
    "ttft": "p95<=3s",
    "e2e": "p95<=20s",
    "tp": "1",
}
SMALL: dict[str, Any] = {"model": "qwen2.5-0.5b", "isl": 1000, "tp": "1"}
KINDS = {"chat": CHAT, "documents": DOCUMENTS, "small": SMALL}


@cache
def asked(name: str, **changed: Any) -> Asked:
    of = replace(
        question(**(KINDS[name] | changed)),
        deepen=False,
        tune=False,
    )
    return Asked(name=name, question=of, plan=size(of))
