"""Which points of a deployment to measure, so that a calibration on them tells most about one load: a c-optimal design, found greedily.

Every point that could be measured, and the load itself, are simulated as rows of a calibration (``sample``), which gives how each metric
changes with each factor. The prior of the factors and the scatter of the metrics are those of the calibration too. Of all points the one is
taken that leaves the least variance to the deciding metric at the load, then the best one beside it, and so on (Fedorov, "Theory of Optimal
Experiments", 1972). Each further point can only lower that variance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tonnage.evidence.predict import Point
from tonnage.evidence.rows import SIGMA, LoadedRows
from tonnage.evidence.sample import WEIGHT, Sample
from tonnage.perf.residuals import FEWEST_OWN
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.sizing.loads.instance import Instance

    Floats = NDArray[np.float64]


POINTS = 10
"""Points of a design: as many as the curves had from which the errors of calibrated predictions were learned (docs/intervals.md)."""

SHAPES = ((1.0, 1.0), (0.25, 1.0), (1.0, 0.25), (0.25, 4.0))
"""Lengths that may be measured, of prompts and outputs, in times those of the question; no request is longer than its longest."""

SHORTEST = 16
"""Fewest tokens of a length that is shorter than that of the question."""

ABOVE, MOST_CLIENTS = 2, 512
"""Clients of a point at most: in times the requests in flight at the answer's load, and what one benchmark client is asked to keep up."""

ROUNDS, LOAD_REQUESTS = 3, 1_000
"""Requests of each client of a simulated point, and those of the load."""

METRICS = ("ttft_ms", "ttft_p95_ms", "itl_ms", "e2e_ms", "requests_s")
"""What a benchmark measures of each point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoad:
    """A closed loop: prompt and output tokens of every request, and clients."""

    isl: int
    osl: int
    clients: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Points to measure.

    Attributes:
        points: in the order in which they were chosen.
        e2e_s: the mean time of a request of each of them, in seconds, as predicted.
        left: share of the variance of the deciding metric at the load that is left after so many of the points, from none (1.0) on.
        left_of: the same after all of them, of each metric.
    """

    points: tuple[ClosedLoad, ...]
    e2e_s: tuple[float, ...]
    left: tuple[float, ...]
    left_of: Mapping[str, float]


class _PredictedRows(LoadedRows):
    """Points that nobody has measured: each row holds its ``Point``."""

    def point(self, row: dict[str, Any]) -> Point:
        found: Point = row["point"]
        return found


class _PredictedSample(Sample):
    loaded: ClassVar[type[LoadedRows]] = _PredictedRows


def design(instance: Instance, deciding: str, *, rate: float | None, clients: float) -> Design | None:
    """The points that tell most about a metric of an instance under the load of an answer; None where fewer than six can be measured.

    Args:
        instance: what is measured.
        deciding: the metric, such as "itl_ms" or "requests_s".
        rate: requests per second of the instance's open loop; None where it is a closed one.
        clients: requests in flight under that load.
    """
    grid = tuple(_grid(instance, clients))
    if len(grid) < FEWEST_OWN:
        return None
    deployment, (isl, osl) = instance.deployment, _lengths(instance)
    requests = max(LOAD_REQUESTS, round(ROUNDS * clients))
    load = Point(
        deployment=deployment,
        isl=isl,
        osl=osl,
        request_rate=rate,
        concurrency=None if rate is not None else max(round(clients), 1),
        requests=requests,
    )
    points = [
        Point(deployment=deployment, isl=one.isl, osl=one.osl, concurrency=one.clients, requests=ROUNDS * one.clients) for one in grid
    ]
    rows = [_row(point) for point in (*points, load)]
    sample = _PredictedSample(rows, shipped(), preset=find_engine(deployment.engine).coefficients, gpu=deployment.gpu.name)
    slopes = {name: values * sample.widths for name, values in sample.slopes().items()}
    told = np.stack([values[:-1] * WEIGHT / SIGMA[name] for name, values in slopes.items()], axis=2)
    wanted = {name: values[-1] for name, values in slopes.items()}
    chosen, left, information = greedy(told, wanted[deciding])
    e2e_s = sample.parts[0].rows.simulated("e2e_ms") / 1e3  # type: ignore[union-attr]
    return Design(
        points=tuple(grid[place] for place in chosen),
        e2e_s=tuple(float(e2e_s[place]) for place in chosen),
        left=tuple(left),
        left_of={name: _left(information, vector) for name, vector in wanted.items()},
    )


def _lengths(instance: Instance) -> tuple[int, int]:
    """The mean prompt, as far as it has to be computed, and the mean output, which has a second token."""
    return max(round(instance.computed), 1), max(round(instance.traffic.osl.mean), 2)


def _grid(instance: Instance, clients: float) -> Iterator[ClosedLoad]:
    """Every point that could be measured: what the KV cache and the slots hold, from one client to beyond the load of the answer."""
    traffic, memory, ranks = instance.traffic, instance.memory, instance.deployment.parallelism.dp
    longest = traffic.pairs.longest if traffic.pairs is not None else traffic.isl.longest + traffic.osl.longest
    for isl, osl in dict.fromkeys(_shapes(*_lengths(instance))):
        if isl + osl > longest:
            continue
        held = ranks * min(memory.blocks // memory.request_blocks(isl + osl), instance.knobs.max_batch_size)
        count = 1
        while count <= min(held, ABOVE * max(clients, 1.0), MOST_CLIENTS):
            yield ClosedLoad(isl=isl, osl=osl, clients=count)
            count *= 2


def _shapes(isl: int, osl: int) -> Iterable[tuple[int, int]]:
    for prompt, output in SHAPES:
        yield max(round(prompt * isl), min(isl, SHORTEST)), max(round(output * osl), min(osl, SHORTEST))


def _row(point: Point) -> dict[str, Any]:
    """A row of a calibration in which each metric is said to be measured, which its slopes do not look at."""
    d = point.deployment
    load = {"batch": None, "concurrency": point.concurrency, "request_rate": point.request_rate}
    return {"point": point, "model": d.model.name, "isl": point.isl, "osl": point.osl, **load, **dict.fromkeys(METRICS, 1.0)}


def greedy(told: Floats, wanted: Floats) -> tuple[list[int], list[float], Floats]:
    """Points in the order in which each leaves the least variance, the share left after each, and the information of all.

    Args:
        told: float64 (points, terms, metrics), slopes in units of each metric's scatter and each factor's width.
        wanted: float64 (terms,), the slopes of what is to be known.
    """
    information, chosen = np.eye(wanted.size), list[int]()
    left = [1.0]
    each = told @ told.transpose(0, 2, 1)
    while len(chosen) < min(POINTS, len(told)):
        vectors = np.broadcast_to(wanted[:, None], (len(told), wanted.size, 1))
        variances = (np.linalg.solve(information + each, vectors)[:, :, 0] * wanted).sum(axis=1)
        variances[chosen] = np.inf
        place = int(np.argmin(variances))
        chosen.append(place)
        information = information + each[place]
        left.append(min(_left(information, wanted), left[-1]))
    return chosen, left, information


def _left(information: Floats, wanted: Floats) -> float:
    """The share of a variance that is left; all of it where no factor acts on it."""
    before = float((wanted * wanted).sum())
    return min(float((wanted * np.linalg.solve(information, wanted)).sum()) / before, 1.0) if before > 0 else 1.0
