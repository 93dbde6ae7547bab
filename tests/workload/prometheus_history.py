"""A history of requests as a Prometheus answers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.watch.served_weeks import DAY, Weeks, weeks

MONDAY = 1_792_972_800.0  # 2026-10-26, a Monday


BOUNDS = (
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10_000.0,
    math.inf,
)


STEP = 600.0


NAMES = {"isl": "vllm:request_prompt_tokens", "osl": "vllm:request_generation_tokens"}


def series(name: str, times: np.ndarray, values: np.ndarray, **labels: str) -> dict[str, Any]:
    pairs = [[float(at), str(float(value))] for at, value in zip(times, values, strict=True)]
    return {"metric": {"__name__": name, **labels}, "values": pairs}


def answer(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": rows}}


def exported(
    some: Weeks, *, days: int, instance: str = "a", restart_s: float = 0.0
) -> list[dict[str, Any]]:
    """What an instance exports of requests that take no time, sampled every ten minutes; its
    counters begin again at a restart."""
    times = np.arange(0, days * DAY + 1, STEP)
    before = np.where(times >= restart_s, restart_s, 0.0) if restart_s else np.zeros_like(times)

    def counter(which: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        total = np.concatenate(
            [[0.0], np.cumsum(np.ones(which.sum()) if weights is None else weights[which])]
        )
        return (
            total[np.searchsorted(some.due[which], times)]
            - total[np.searchsorted(some.due[which], before)]
        )

    every = np.ones(some.due.size, dtype=bool)
    rows = [
        series(
            "vllm:e2e_request_latency_seconds_count",
            MONDAY + times,
            counter(every),
            instance=instance,
        )
    ]
    for side, name in NAMES.items():
        lengths = getattr(some, side)
        rows.append(
            series(f"{name}_sum", MONDAY + times, counter(every, lengths), instance=instance)
        )
        rows += [
            series(
                f"{name}_bucket",
                MONDAY + times,
                counter(lengths <= bound),
                le="+Inf" if bound == math.inf else f"{bound}",
                instance=instance,
            )
            for bound in BOUNDS
        ]
    return rows


TRUE = weeks(days=15, a_day=2_000, growth_per_day=0.03, seed=3)
