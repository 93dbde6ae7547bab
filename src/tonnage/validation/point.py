"""A row of a measured table as a point that can be predicted: its deployment and its load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tonnage.perf.pipeline import EstimatedInstance, estimated_instance
from tonnage.spec.calibration import Calibration
from tonnage.spec.catalog import find_engine, find_gpu, find_model, system_of
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import find_precision

STATIC_ENGINE = "tensorrt-llm-0.9"
"""The preset of a row with a ``batch`` that names no engine."""

LOADED_ENGINE = "tensorrt-llm-0.15"
"""The preset of a row with ``concurrency`` or ``request_rate`` that names no engine: tables without one are of 2024."""

IN_FLIGHT_OF_OLD = "tensorrt-llm-0.10"
"""The preset of a row under load whose engine has a preset of static batches alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of a measured table with its names looked up in the catalogs.

    Attributes:
        deployment: the model, GPUs, precision and engine, with the engine's default knobs.
        isl, osl: prompt and output lengths in tokens.
        batch, concurrency, request_rate: the load: a static batch, clients of a closed loop, or requests per second; two are None.
        requests, window_s: how many requests were sent, or for how many seconds; None where the row does not say.
    """

    deployment: Deployment
    isl: int
    osl: int
    batch: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    requests: int | None = None
    window_s: float | None = None

    @property
    def load(self) -> str:
        """The kind of load: "static", "closed" or "open"."""
        return "static" if self.batch is not None else "closed" if self.concurrency is not None else "open"

    @property
    def ranks(self) -> int:
        """How many attention ranks share the load."""
        return self.deployment.parallelism.dp

    @property
    def instance(self) -> EstimatedInstance:
        """What the steps of the instance cost and what its memory holds, over all its pipeline stages.

        Raises:
            DoesNotFit: the memory does not hold the model.
            InputError: the parallelism is not one that can be predicted.
        """
        return estimated_instance(self.deployment, gpus_per_system=system_of(self.deployment.gpu).gpus, prompt_tokens=self.isl)

    @property
    def of_rank(self) -> Point:
        """The share of the load that one attention rank has; the fullest rank where the load does not divide evenly."""
        dp = self.ranks
        if dp == 1:
            return self
        batch, clients, requests = (None if n is None else math.ceil(n / dp) for n in (self.batch, self.concurrency, self.requests))
        rate = None if self.request_rate is None else self.request_rate / dp
        return replace(self, batch=batch, concurrency=clients, requests=requests, request_rate=rate)


def read_point(row: Mapping[str, Any], calibration: Calibration | None = None) -> Point:
    """The point of a row of ``results.measured_rows.read_measured``, under a calibration if there is one.

    A row may hold ``knobs``, the ``EngineKnobs`` that the engine ran with; without them it is taken to have run with its defaults.

    Raises:
        UnknownName: the model, GPU, precision or engine is in no catalog; ``kind`` says which.
    """
    model, gpu = find_model(str(row["model"])), find_gpu(str(row["gpu"]))
    precision = find_precision(str(row["precision"]))
    static = row.get("batch") is not None
    engine = find_engine(str(row.get("engine") or (STATIC_ENGINE if static else LOADED_ENGINE)))
    if not static and engine.knobs.scheduler == "static":
        engine = find_engine(IN_FLIGHT_OF_OLD)
    knobs = row.get("knobs") or default_knobs(engine, gpu)
    if static and knobs.scheduler != "static":
        knobs = replace(knobs, scheduler="static", max_num_tokens=max(knobs.max_num_tokens, row["batch"] * row["isl"]))
    deployment = Deployment(
        model=model,
        gpu=gpu,
        precision=precision,
        parallelism=Parallelism(tp=row["tp"], pp=row.get("pp") or 1, dp=row.get("dp") or 1, ep=row.get("ep") or 1),
        engine=engine.name,
        knobs=knobs,
        calibration=calibration,
    )
    return Point(
        deployment=deployment,
        isl=row["isl"],
        osl=row["osl"],
        batch=row.get("batch"),
        concurrency=row.get("concurrency"),
        request_rate=row.get("request_rate"),
        requests=row.get("requests"),
        window_s=row.get("window_s"),
    )
