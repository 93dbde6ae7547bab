"""Rows of ``silicon_sample.csv`` as residuals: with the knobs and the lengths that their benchmarks
had.

Mean TTFT and TPOT are over ten requests per client, the opening burst included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tonnage.evidence.predict import ROUNDS, Point, read_point
from tonnage.evidence.rows import LoadedRows
from tonnage.perf.memory import MemoryPlan
from tonnage.perf.step import StepModel
from tonnage.spec.precision import KV, find_precision
from tonnage.spec.workload import ClosedLoop, Lengths, Workload
from tools.fit.silicon.sample import Row

LIKE_PROMPTS, LIKE_DECODES, LIKE_MIXED, LEAST = 1.12, 1.2, 1.5, 1e-9
"""Steps are alike whose prompt tokens, and decodes without and with prompts, are within these
factors; weight of what no metric sees."""


class SiliconRows(LoadedRows):
    """Such rows as residuals, with the knobs and the lengths that their benchmarks had."""

    sigma: ClassVar[Mapping[str, float]] = {"ttft_ms": 0.18, "itl_ms": 0.06}

    def point(self, row: Row) -> Point:
        """The point of a row, with the knobs of its run."""
        return point_of(row)

    def workload(self, i: int, model: StepModel, *, turnaround_s: float) -> Workload:
        """A closed loop with the lengths of the benchmark."""
        point, spread = self.points[i], self.rows[i]["spread"]
        arrivals = ClosedLoop(concurrency=point.concurrency or 1, turnaround_s=turnaround_s)
        isl, osl = (lengths(nominal, spread) for nominal in (point.isl, point.osl))
        return Workload(isl=isl, osl=osl, arrivals=arrivals, requests=ROUNDS * arrivals.concurrency)

    def simulate(self, terms: dict[str, Any]) -> None:
        """As for all rows; output lengths differ, so the mean gap is that of the simulation."""
        super().simulate(terms)
        self._gather_like_steps(terms)
        self.gaps = 1e3 * self.base[:, 1] / self.simulated("itl_ms")

    def _gather_like_steps(self, terms: dict[str, Any]) -> None:
        """Bins of like steps as one, at their weighted mean: the fit is several times faster, and
        the sums stay those of the simulation.
        """
        tokens, starting, decoding, share = self.shape
        width = np.where(tokens > 0, np.log(LIKE_MIXED), np.log(LIKE_DECODES))
        like = np.array(
            [
                self.row,
                np.round(np.log(np.maximum(tokens, 1)) / np.log(LIKE_PROMPTS)),
                starting,
                np.round(np.log(np.maximum(decoding, 1)) / width) + (decoding > 0),
                np.round(np.log(share) / np.log(LIKE_DECODES)),
            ]
        )
        _, first, group = np.unique(
            like.astype(np.int64), axis=1, return_index=True, return_inverse=True
        )
        group, count = group.ravel(), first.size
        weight = self.weights[0, 0] + self.weights[1, 0] + LEAST * (1.0 + self.weights[2, 0])
        total = np.bincount(group, weight, count)
        self.shape = np.array(
            [np.bincount(group, weight * values, count) / total for values in self.shape]
        )
        self.weights = np.array(
            [[np.bincount(group, values, count) for values in span] for span in self.weights]
        )
        self.row = self.row[first]
        c, _ = self.deployments.coefficients(terms)
        self.rest = self.base - self._sums(c)

    def cache_holds_all(self) -> list[bool]:
        """Whether the KV cache holds the longest request of every client at once."""
        pools = zip([point.of_rank for point in self.points], self.memory, strict=True)
        return [
            (p.concurrency or 1) * _held(memory, p.isl + p.osl) <= memory.tokens
            for p, memory in pools
        ]


def point_of(row: Row) -> Point:
    """The point of a row, with the knobs of its run."""
    point = read_point(with_cache_named(row))
    own = point.deployment.knobs
    knobs = replace(
        own,
        max_batch_size=row["slots"],
        max_num_tokens=row["budget"] or own.max_num_tokens,
        scheduler=row.get("scheduler", own.scheduler),
        stream_interval=row.get("stream", own.stream_interval),
        receive_interval=row.get("receive", own.receive_interval),
        rank_wait_steps=row.get("rank_wait", own.rank_wait_steps),
        batch_wait_steps=row.get("wait_steps", own.batch_wait_steps),
        batch_wait_ratio=row.get("wait_ratio", own.batch_wait_ratio),
        kv_fraction=row.get("kv_fraction", own.kv_fraction),
        piecewise_graphs=row.get("piecewise", own.piecewise_graphs),
        overlap_schedule=row.get("overlap", own.overlap_schedule),
        graph_tokens=row.get("graphs", own.graph_tokens),
    )
    return replace(point, deployment=replace(point.deployment, knobs=knobs))


def with_cache_named(row: Row) -> Row:
    """The row with a format that names the KV cache: the rules of a file say what it was, and no
    engine's default is taken.
    """
    precision = find_precision(row["precision"])
    return row | {"precision": f"{precision.weights}+{KV}{precision.kv}"}


def _held(memory: MemoryPlan, tokens: int) -> int:
    """How many tokens of the KV cache a request takes, its windows included."""
    return tokens + memory.windows.of(tokens) * memory.deployment.knobs.tokens_per_block


def lengths(nominal: int, spread: float) -> Lengths:
    """Lengths that are uniform in (1 − spread … 1) × nominal tokens."""
    if spread == 0:
        return Lengths(mean=nominal)
    return Lengths(
        kind="uniform", mean=nominal * (1 - spread / 2), std=nominal * spread / math.sqrt(12)
    )
