"""Simulates and sizes services of models that are not LLMs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tonnage.errors import InputError, option
from tonnage.results.metrics import Latencies, latencies
from tonnage.results.requests import COMPLETED, FAILED, REJECTED
from tonnage.results.services import ModelResult, ServiceResult, SizedService, StreamResult
from tonnage.simulator.services import ServiceRun, run_service
from tonnage.sizing.services import Met, ServiceAnswer, size_service
from tonnage.spec.service import Service, read_service
from tonnage.units import format_duration

REQUESTS = 20_000
"""Requests of one simulation where none are requested."""


def simulate_service(path: Path | str, *, requests: int | None = None, seed: int | None = None) -> ServiceResult:
    """What a service does under its traffic.

    Args:
        path: YAML or JSON file with a service (docs/services.md).
        requests: how many are simulated (default: 20,000).
        seed: of the arrivals (default: 0).

    Raises:
        InputError: a file or a number that cannot be used.
    """
    service = read_service(path)
    return _result(service, run_service(service, requests=_count(requests), seed=seed or 0))


def size_servers(
    path: Path | str, *, requests: int | None = None, seed: int | None = None, progress: Callable[[str], None] | None = None
) -> SizedService:
    """How many servers a service needs for its traffic inside its limits.

    Args:
        path: YAML or JSON file with a service, its traffic and ``latency``.
        requests: of each simulation (default: 20,000).
        seed: of the arrivals (default: 0).
        progress: is told what is looked at.

    Raises:
        InputError: a file or a number that cannot be used.
    """
    answer = size_service(read_service(path), requests=_count(requests), seed=seed or 0, progress=progress)
    return _sized(answer)


def _count(requests: int | None) -> int:
    count = REQUESTS if requests is None else requests
    if count < 1:
        raise InputError(f"{option('requests')}: {count} is not a number of requests; write 1 or more")
    return count


def _sized(answer: ServiceAnswer) -> SizedService:
    return SizedService(
        run=_result(answer.service, answer.run),
        servers=answer.servers,
        gpus=answer.gpus,
        gpus_each=answer.service.gpus,
        least=answer.least,
        met=tuple(map(_words, answer.met)),
        one_fewer=tuple(map(_words, answer.one_fewer)),
        looked=answer.looked,
    )


def _words(one: Met) -> str:
    limit = one.limit
    seen = "not every request that counts is answered" if one.seconds == float("inf") else format_duration(one.seconds)
    verdict = "holds" if one.holds else "does not hold"
    return f"{one.stream}: {limit.statistic} ≤ {format_duration(limit.seconds)} {verdict} ({seen})"


def _result(service: Service, run: ServiceRun) -> ServiceResult:
    record = run.requests
    ended = record.last_token_ns[record.status == COMPLETED]
    seconds = (int(ended.max()) - int(record.due_ns.min())) / 1e9 if ended.size else 0.0
    streams = []
    for place, stream in enumerate(service.streams):
        status = record.status[run.stream == place]
        done = int((status == COMPLETED).sum())
        streams.append(
            StreamResult(
                name=stream.name,
                asked=f"{stream.concurrency} clients" if stream.concurrency else f"{stream.rate:.6g}/s",
                answered_per_second=done / seconds if seconds > 0 else 0.0,
                latencies=_latencies(run, place),
                requests=len(status),
                rejected=int((status == REJECTED).sum()),
                expired=int((status == FAILED).sum()),
            )
        )
    return ServiceResult(title=service.title, streams=tuple(streams), models=_models(run), busy=run.busy)


def _models(run: ServiceRun) -> tuple[ModelResult, ...]:
    return tuple(
        ModelResult(
            name=name,
            batches=batches,
            mean_batch=sum(size * count for size, count in batches.items()) / sum(batches.values()),
            waited_ms=run.waited_s[name] * 1e3,
        )
        for name, batches in run.batches.items()
    )


def _latencies(run: ServiceRun, place: int) -> Latencies:
    seconds = run.latencies_s(place)
    answered = seconds[np.isfinite(seconds)] * 1e3
    if not answered.size:
        return Latencies()
    p50, p90, p95, p99 = (float(value) for value in np.percentile(answered, (50, 90, 95, 99)))
    return latencies(mean=float(answered.mean()), p50=p50, p90=p90, p95=p95, p99=p99)
