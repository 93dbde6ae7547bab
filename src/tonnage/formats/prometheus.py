"""What Prometheus holds: the page of an exporter as samples, histograms over a stretch of time, and
series over days.

Series are the answers of ``/api/v1/query_range``. A counter may have been read as it is, or as its
growth over each step, by a query on ``increase``, which Tonnage names by the ending ``:increase``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.formats.table import inside, shown
from tonnage.spec.catalog.interfaces import Interface
from tonnage.spec.deployment import LimitMetric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# A page of Prometheus metrics as samples (text exposition format 0.0.4).


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a page."""

    name: str  # of the series
    labels: Mapping[str, str]  # by name
    value: float  # of the moment


class Page:
    """The samples of one page, by name."""

    def __init__(self, text: str) -> None:
        """Read a page; lines that are no samples are passed over, and so are values that are no
        numbers.
        """
        self._by_name: dict[str, list[Sample]] = {}
        for sample in _samples(text):
            self._by_name.setdefault(sample.name, []).append(sample)

    def __contains__(self, name: str) -> bool:
        """Whether the page has series of this name."""
        return name in self._by_name

    def of(self, name: str) -> tuple[Sample, ...]:
        """The samples of a name."""
        return tuple(self._by_name.get(name, ()))

    def total(self, name: str) -> float:
        """The sum of the samples of a name; 0 where there are none."""
        return math.fsum(sample.value for sample in self.of(name))

    def values(self, name: str) -> tuple[float, ...]:
        """The values of the samples of a name."""
        return tuple(sample.value for sample in self.of(name))


def _samples(text: str) -> Iterator[Sample]:
    """The samples of a page. A line that the library cannot read costs that line alone."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:
        lines = text.splitlines()
        if len(lines) > 1:
            yield from (sample for line in lines for sample in _samples(line))
        return
    for family in families:
        for name, labels, value, *_ in family.samples:
            if not math.isnan(value):
                yield Sample(name=name, labels=labels, value=value)


# A Prometheus histogram over a stretch of time: its mean, and its quantiles with the bucket that
# each is in.


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Counts of observations, cumulated over upper bounds."""

    # upper bounds in seconds, ascending, the last one infinite; empty where nothing was published
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()  # observations up to each bound
    total: float = 0.0  # sum of the observations in seconds

    @property
    def count(self) -> float:
        """How many observations there are."""
        return self.counts[-1] if self.counts else 0.0

    @property
    def mean(self) -> float:
        """The mean in seconds; NaN without observations."""
        return self.total / self.count if self.count else math.nan

    def since(self, before: Buckets) -> Buckets:
        """What came after an earlier state; everything, where the counters began again in
        between.
        """
        if before.bounds != self.bounds or before.count > self.count:
            return self
        counts = tuple(
            max(0.0, now - then) for now, then in zip(self.counts, before.counts, strict=True)
        )
        return Buckets(bounds=self.bounds, counts=counts, total=self.total - before.total)

    def bracket(self, share: float) -> tuple[float, float]:
        """The bounds of the bucket of the quantile, in seconds; NaN without observations."""
        if not self.count:
            return math.nan, math.nan
        rank = share * self.count
        place = next(place for place, count in enumerate(self.counts) if count >= rank)
        return (self.bounds[place - 1] if place else 0.0), self.bounds[place]

    def quantile(self, share: float) -> float:
        """The quantile in seconds, observations lying evenly in their bucket, as
        ``histogram_quantile`` of Prometheus takes them.

        Beyond the last finite bound it is that bound; NaN without observations.
        """
        low, high = self.bracket(share)
        if math.isnan(low) or math.isinf(high):
            return low
        place = self.bounds.index(high)
        before = self.counts[place - 1] if place else 0.0
        inside = self.counts[place] - before
        return low + (high - low) * ((share * self.count - before) / inside if inside else 1.0)

    def slower(self, seconds: float) -> float:
        """The share of observations above a limit, lying evenly in their bucket; NaN without
        observations.
        """
        if not self.count:
            return math.nan
        low, below = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if bound >= seconds:
                inside = (
                    0.0 if math.isinf(bound) else (count - below) * (seconds - low) / (bound - low)
                )
                return 1 - (below + inside) / self.count
            low, below = bound, count
        return 0.0


def buckets_of(page: Page, name: str) -> Buckets:
    """A histogram on a page, summed over its other labels."""
    counts_by_bound: dict[float, float] = {}
    for sample in page.of(f"{name}_bucket"):
        bound = float(sample.labels.get("le", "nan"))
        if not math.isnan(bound):
            counts_by_bound[bound] = counts_by_bound.get(bound, 0.0) + sample.value
    bounds = tuple(sorted(counts_by_bound))
    return Buckets(
        bounds=bounds,
        counts=tuple(counts_by_bound[bound] for bound in bounds),
        total=page.total(f"{name}_sum"),
    )


def together(parts: Sequence[Buckets]) -> Buckets:
    """The histograms of several instances as one; those with other bounds than the first are left
    out.
    """
    filled = [part for part in parts if part.bounds]
    if not filled:
        return Buckets()
    same = [part for part in filled if part.bounds == filled[0].bounds]
    counts = tuple(
        math.fsum(column) for column in zip(*(part.counts for part in same), strict=True)
    )
    return Buckets(
        bounds=filled[0].bounds, counts=counts, total=math.fsum(part.total for part in same)
    )


# Series over days, as /api/v1/query_range answers: {"status": "success", "data": {"resultType":
# "matrix", "result": [...]}}.


INCREASE = ":increase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One series."""

    name: str  # of the metric; its growth over each step where it ends in ``INCREASE``
    labels: Mapping[str, str]  # by name
    times: NDArray[np.float64]  # unix seconds, ascending
    values: NDArray[np.float64]  # at these times

    @property
    def step_s(self) -> float:
        """Seconds between two samples, as is usual in it."""
        import numpy as np

        return float(np.median(np.diff(self.times)))

    def grown(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """How much the counter grew between each two of the edges; a counter that fell began again
        at 0.
        """
        import numpy as np

        times, steps = self.times, np.diff(self.values)
        steps = np.where(steps >= 0, steps, self.values[1:])
        if self.name.endswith(INCREASE):
            times, steps = np.concatenate([[times[0] - self.step_s], times]), self.values
        return np.diff(np.interp(edges, times, np.concatenate([[0.0], np.cumsum(steps)])))


def curves(documents: Sequence[object], where: str) -> list[Curve]:
    """The series of answers; those with fewer than two samples that are numbers are left out.

    Raises:
        InputError: something else than a matrix, or an answer that says an error.
    """
    import numpy as np

    curves = []
    for place, document in enumerate(documents, start=1):
        at = where if len(documents) == 1 else f"{where}, answer {place}"
        if inside(document, "status") == "error":
            raise InputError(f"{at}: Prometheus says: {shown(str(inside(document, 'error')))}")
        rows = inside(document, "data", "result")
        if inside(document, "data", "resultType") != "matrix" or not isinstance(rows, list):
            raise InputError(
                f"{at}: is not a matrix of Prometheus; give the answer of /api/v1/query_range as"
                " it is"
            )
        for row in rows:
            labels = inside(row, "metric")
            try:
                pairs = np.array(row["values"], dtype=np.float64).reshape(-1, 2)
                name = str(labels["__name__"])
            except (KeyError, TypeError, ValueError):
                raise InputError(
                    f"{at}: a series has no __name__ or no values; ask for counters by their names"
                ) from None
            pairs = pairs[np.isfinite(pairs).all(axis=1)]
            if len(pairs) > 1:
                curves.append(
                    Curve(name=name, labels=labels, times=pairs[:, 0], values=pairs[:, 1])
                )
    return curves


_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.ASCII)


def selected(all_curves: Sequence[Curve], select: str, where: str) -> list[Curve]:
    """The series whose labels fit matchers such as ``model_name="llama",instance=~"10.*"``; all
    without any.

    Raises InputError: no matcher.
    """
    matchers = list(_MATCHER.finditer(select))
    if "".join(match[0] for match in matchers) != select:
        raise InputError(
            f"{where}: '{shown(select)}' is no list of label matchers; write such as"
            ' model_name="llama"'
        )
    curves = list(all_curves)
    for match in matchers:
        pattern = re.compile(match[3] if "~" in match[2] else re.escape(match[3]))
        positive = not match[2].startswith("!")
        curves = [
            curve
            for curve in curves
            if bool(pattern.fullmatch(str(curve.labels.get(match[1], "")))) == positive
        ]
    return curves


REPLICAS = ("prometheus_replica", "__replica__", "receive_replica", "thanos_replica")
"""Labels by which replicas of one Prometheus differ: they scrape the same targets."""
SCRAPES = ("job", "service", "endpoint", "container", "prometheus", "replica", "monitor")
"""Labels by which several scrapes of one target may differ, where they have its ``instance``."""
ALIKE = 0.03  # Share by which the growth of a counter may differ between two scrapes of a target


def once(curves: Sequence[Curve]) -> tuple[list[Curve], tuple[str, ...]]:
    """The series with each target once, and the labels by which the others of a target differed."""
    series_by_target: dict[tuple[tuple[str, str], ...], list[Curve]] = {}
    labels: dict[str, None] = {}
    for curve in sorted(curves, key=lambda curve: -len(curve.times)):
        further = SCRAPES if "instance" in curve.labels else ()
        identity = tuple(
            sorted(
                (name, str(value))
                for name, value in curve.labels.items()
                if name not in (*REPLICAS, *further)
            )
        )
        before = series_by_target.setdefault(identity, [])
        differing = next(
            (names for earlier in before if (names := _same_target(earlier, curve))), ()
        )
        labels.update(dict.fromkeys(differing))
        if not differing:
            before.append(curve)
    chosen_ids = {id(curve) for curves_of in series_by_target.values() for curve in curves_of}
    return [curve for curve in curves if id(curve) in chosen_ids], tuple(labels)


def _same_target(first_curve: Curve, second_curve: Curve) -> tuple[str, ...]:
    """The labels by which two series of one target differ; none where they are of two targets: they
    grew unlike.
    """
    names = {
        name
        for name in {*first_curve.labels, *second_curve.labels}
        if first_curve.labels.get(name) != second_curve.labels.get(name)
    }
    if first_curve.name != second_curve.name or not names:
        return ()
    begin, end = (
        max(first_curve.times[0], second_curve.times[0]),
        min(first_curve.times[-1], second_curve.times[-1]),
    )
    if begin >= end:
        return ()
    import numpy as np

    first, second = (
        float(curve.grown(np.array([begin, end]))[0]) for curve in (first_curve, second_curve)
    )
    alike = abs(first - second) <= ALIKE * max(first, second)
    return tuple(sorted(names)) if alike or names <= set(REPLICAS) else ()


# What each engine publishes for Prometheus, by what it is for; ``interfaces.yaml`` of the catalog
# says which of it a version has.


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The metrics of one family of engines; the name of one that it does not publish is empty."""

    path: str  # where they are
    # running, waiting: gauges of requests with a slot and in the queue
    running: str = ""
    waiting: str = ""
    kv_used: str = ""  # gauge of the share of the KV cache in use
    # prompt_tokens, output_tokens: counters
    prompt_tokens: str = ""
    output_tokens: str = ""
    # of seconds, of the metrics that limits are set on; one that is missing is not published
    histograms: Mapping[LimitMetric, str] = field(default_factory=dict)
    # queue, prefill: histograms of seconds until a request is first in a step, and from then to its
    # first token
    queue: str = ""
    prefill: str = ""
    # counter of HTTP responses of vLLM's instrumentator, with the label ``status``: "5xx" stands
    # for failures
    responses: str = ""
    # isl, osl: histograms of the prompt and output tokens of single requests
    isl: str = ""
    osl: str = ""
    # cache_queries, cache_hits: counters of the prompt tokens that a prefix cache looked up, and
    # had
    cache_queries: str = ""
    cache_hits: str = ""
    ended: str = ""  # counter of the requests that ended, where no histogram counts them
    failed: str = ""  # counter of the requests that failed, where ``responses`` does not tell

    @property
    def requests(self) -> str:
        """The counter of requests that ended."""
        return self.ended or f"{self.histograms['e2e']}_count"

    def of(self, interface: Interface) -> Signals:
        """The metrics of one version."""
        there = set(interface.metrics.split())
        histograms = {metric: name for metric, name in self.histograms.items() if name in there}
        gauges = {
            part: name if (name := getattr(self, part)) in there else ""
            for part in (
                "running",
                "waiting",
                "kv_used",
                "prompt_tokens",
                "output_tokens",
                "queue",
                "prefill",
            )
        }
        return replace(self, histograms=histograms, **gauges)


SIGNALS: dict[str, Signals] = {
    "vllm": Signals(
        path="/metrics",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_used="vllm:kv_cache_usage_perc",
        prompt_tokens="vllm:prompt_tokens_total",
        output_tokens="vllm:generation_tokens_total",
        histograms={
            "ttft": "vllm:time_to_first_token_seconds",
            "itl": "vllm:inter_token_latency_seconds",
            "tpot": "vllm:request_time_per_output_token_seconds",
            "e2e": "vllm:e2e_request_latency_seconds",
        },
        queue="vllm:request_queue_time_seconds",
        prefill="vllm:request_prefill_time_seconds",
        responses="http_requests_total",
        isl="vllm:request_prompt_tokens",
        osl="vllm:request_generation_tokens",
        cache_queries="vllm:prefix_cache_queries_total",
        cache_hits="vllm:prefix_cache_hits_total",
    ),
    "sglang": Signals(
        path="/metrics",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        kv_used="sglang:token_usage",
        prompt_tokens="sglang:prompt_tokens_total",
        output_tokens="sglang:generation_tokens_total",
        histograms={
            "ttft": "sglang:time_to_first_token_seconds",
            "itl": "sglang:inter_token_latency_seconds",
            "e2e": "sglang:e2e_request_latency_seconds",
        },
        queue="sglang:queue_time_seconds",
        isl="sglang:prompt_tokens_histogram",
        osl="sglang:generation_tokens_histogram",
        cache_queries="sglang:prompt_tokens_total",
        cache_hits="sglang:cached_tokens_total",
    ),
    "tensorrt-llm": Signals(
        path="/prometheus/metrics",
        prompt_tokens="trtllm_prompt_tokens_total",
        output_tokens="trtllm_generation_tokens_total",
        histograms={
            "ttft": "trtllm_time_to_first_token_seconds",
            "tpot": "trtllm_time_per_output_token_seconds",
            "e2e": "trtllm_e2e_request_latency_seconds",
        },
        queue="trtllm_request_queue_time_seconds",
    ),
}
"""By family of engines that Tonnage deploys."""

HISTORIES: dict[str, Signals] = {
    **SIGNALS,
    "nim": Signals(  # NVIDIA NIM for LLMs, Observability (docs.nvidia.com), read 2026-11-25
        path="/v1/metrics",
        running="num_requests_running",
        waiting="num_requests_waiting",
        kv_used="gpu_cache_usage_perc",
        prompt_tokens="prompt_tokens_total",
        output_tokens="generation_tokens_total",
        histograms={
            "ttft": "time_to_first_token_seconds",
            "itl": "time_per_output_token_seconds",
            "e2e": "e2e_request_latency_seconds",
        },
        isl="request_prompt_tokens",
        osl="request_generation_tokens",
        failed="request_failure_total",
    ),
    # Triton Inference Server user guide, Metrics (docs.nvidia.com), read 2026-11-25
    "triton": Signals(
        path="/metrics",
        waiting="nv_inference_pending_request_count",
        ended="nv_inference_request_success",
    ),
}
"""By what a history can be of: those, and servers that Tonnage reads and does not name the metrics
of in deployments."""
