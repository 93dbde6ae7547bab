"""What a deployment does at present: the difference of two readings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tonnage.spec.deployment import LimitMetric
from tonnage.watch.reading import BROKEN, Buckets, Counts, Reading, together

METRICS: tuple[LimitMetric, ...] = ("ttft", "itl", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A stretch of time, over all instances that answered at both of its ends.

    Attributes:
        seconds: how long it is.
        answering, asked: instances.
        requests: that ended in it.
        requests_per_second, output_tokens_per_second: over all instances; None for tokens where they are not published.
        running, waiting: requests with a slot and in the queue at its end, over all instances; None where they are not published.
        kv_used: share of the KV cache in use at its end, the mean of the instances; None where it is not published.
        error_share: of the requests that ended, those that failed: by the gateway where there is one, else by the engines' responses;
            None where nobody says it.
        mean_isl, mean_osl: tokens of the requests that ended; None where they are not published, or none ended.
        latencies: histograms of seconds, by metric.
        gpu_use: share of the time in which a GPU worked, the mean; None where nobody says it.
        gpu_watts: power of all GPUs; None where nobody says it.
    """

    seconds: float
    answering: int
    asked: int
    requests: float
    requests_per_second: float
    output_tokens_per_second: float | None
    running: float | None
    waiting: float | None
    kv_used: float | None
    error_share: float | None
    mean_isl: float | None
    mean_osl: float | None
    latencies: Mapping[LimitMetric, Buckets]
    gpu_use: float | None
    gpu_watts: float | None


def present(before: Reading, now: Reading) -> Present:
    """What happened between two readings."""
    pairs = [(before.instances[url], counts) for url, counts in now.instances.items() if url in before.instances]
    seconds = now.at_s - before.at_s
    latencies = {metric: together([_since(then, counts, metric) for then, counts in pairs]) for metric in METRICS}
    latencies = {metric: found for metric, found in latencies.items() if found.bounds}
    requests = latencies["e2e"].count if "e2e" in latencies else 0.0
    prompt = _grown((then.prompt_tokens, counts.prompt_tokens) for then, counts in pairs)
    output = _grown((then.output_tokens, counts.output_tokens) for then, counts in pairs)
    each = list(now.instances.values())
    used = [counts.kv_used for counts in each if counts.kv_used is not None]
    return Present(
        seconds=seconds,
        answering=len(each),
        asked=len(now.asked),
        requests=requests,
        requests_per_second=requests / seconds,
        output_tokens_per_second=None if output is None else output / seconds,
        running=_sum(counts.running for counts in each),
        waiting=_sum(counts.waiting for counts in each),
        kv_used=sum(used) / len(used) if used else None,
        error_share=_error_share(before, now, pairs),
        mean_isl=None if prompt is None or not requests else prompt / requests,
        mean_osl=None if output is None or not requests else output / requests,
        latencies=latencies,
        gpu_use=sum(now.use) / len(now.use) if now.use else None,
        gpu_watts=math.fsum(now.watts) if now.watts else None,
    )


def _since(then: Counts, now: Counts, metric: LimitMetric) -> Buckets:
    found = now.histograms.get(metric, Buckets())
    return found.since(then.histograms.get(metric, Buckets()))


def _sum(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return math.fsum(found) if found else None


def _grown(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """How much counters have grown; one that is smaller than before began again."""
    return _sum(None if now is None else now - then if then is not None and now >= then else now for then, now in pairs)


def _error_share(before: Reading, now: Reading, pairs: list[tuple[Counts, Counts]]) -> float | None:
    if now.ended and before.ended:
        grown = {outcome: max(0.0, count - before.ended.get(outcome, 0.0)) for outcome, count in now.ended.items()}
        total, broken = math.fsum(grown.values()), math.fsum(grown[outcome] for outcome in BROKEN)
    else:
        counted = _grown((then.responses, counts.responses) for then, counts in pairs)
        failed = _grown((then.failures, counts.failures) for then, counts in pairs)
        if counted is None or failed is None:
            return None
        total, broken = counted, failed
    return broken / total if total else None
