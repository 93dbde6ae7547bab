"""A server that answers as Prometheus does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from email.message import Message
from typing import Any
from urllib.parse import parse_qs

import numpy as np

from tests.workload.prometheus_history import MONDAY, answer, series

COUNT = "vllm:e2e_request_latency_seconds_count"


class Stand:
    """One request a second, of 600 and 40 tokens, on two instances; scraped every 30 s."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str]] = []

    def reply(self, path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        form = {name: values[0] for name, values in parse_qs(data.decode()).items()}
        query, start, end, step = (
            form["query"],
            *(float(form[name]) for name in ("start", "end", "step")),
        )
        self.asked.append((query, headers.get("Authorization", "")))
        wrong = 'pod="none"' in query
        found = (
            {"status": "error", "data": None, "error": "parse error"}
            if wrong
            else answer(list(self.rows(query, start, end, step)))
        )
        return 400 if wrong else 200, json.dumps(found).encode()

    def rows(self, query: str, start: float, end: float, step: float) -> Iterator[dict[str, Any]]:
        times = np.arange(start, end + 1, step)
        named = re.search(r'"__name__", "([^"]+)", "", ""\)$', query)
        if query.startswith("count by (__name__)"):
            yield series(COUNT, times, np.full(times.size, 2.0))
        elif named is None:
            assert query == f'{{__name__="{COUNT}",model_name="llama"}}'
            yield from (series(COUNT, times, (times - MONDAY) / 2, pod=pod) for pod in "ab")
        elif named[1] == "often":
            yield series("often", times, np.full(times.size, 120.0))
        elif "prompt_tokens" in named[1] or "generation_tokens" in named[1]:
            tokens = 600 if "prompt" in named[1] else 40
            if "_bucket" in named[1]:
                bounds = (("500.0", 500), ("1000.0", 1_000), ("+Inf", 1e9))
                yield from (
                    series(named[1], times, np.full(times.size, 3_600.0 * (bound >= tokens)), le=le)
                    for le, bound in bounds
                )
            else:
                yield series(named[1], times, np.full(times.size, 3_600.0 * tokens))
