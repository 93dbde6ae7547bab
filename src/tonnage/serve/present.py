"""What engines hold at the moment of a scrape, as Prometheus metrics under the names of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tonnage.serve import published as at

if TYPE_CHECKING:
    from prometheus_client import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one engine holds at a moment.

    Attributes:
        engine: its name.
        running, waiting: requests with a slot, and in the queue.
        kv_used: share of the KV cache in use, from 0 to 1.
        preemptions: requests that lost their blocks since the start, counted every time.
        kv: the KV cache as vLLM describes it, such as its ``block_size``; empty where it is not known.
    """

    engine: str
    running: int
    waiting: int
    kv_used: float
    preemptions: int = 0
    kv: Mapping[str, str] | None = None


class Present(Collector):
    """What the engines hold at the moment of a scrape."""

    def __init__(self, loads: Callable[[], Iterable[Load]], labels: Mapping[str, str], names: at.Published) -> None:
        """Ask ``loads`` at each scrape."""
        self._loads, self._labels, self._names = loads, labels, names

    def collect(self) -> Iterator[Metric]:
        """Gauges for running, waiting and KV cache in use, and the preemptions: by instance, or over all of them."""
        names, loads = self._names, list(self._loads())
        for kind, values in self._values(loads).items():
            keys = [*self._labels, *([names.instance] if names.instance else [])]
            family = GaugeMetricFamily(names.gauges[kind], at.ABOUT[kind], labels=keys)
            for engine, value in values.items():
                family.add_metric([*self._labels.values(), *([engine] if names.instance else [])], value)
            yield family
        if "preemptions" in names.counters:
            count = CounterMetricFamily(names.counters["preemptions"], at.ABOUT["preemptions"], labels=[*self._labels, names.instance])
            for one in loads:
                count.add_metric([*self._labels.values(), one.engine], one.preemptions)
            yield count
        if names is at.VLLM:
            for one in loads:
                if one.kv is not None:
                    info = GaugeMetricFamily("vllm:cache_config_info", "The KV cache.", labels=[*one.kv, names.instance])
                    info.add_metric([*one.kv.values(), one.engine], 1)
                    yield info
                    break

    def _values(self, loads: list[Load]) -> dict[at.Gauge, dict[str, float]]:
        if self._names.instance:
            return {
                "running": {one.engine: one.running for one in loads},
                "waiting": {one.engine: one.waiting for one in loads},
                "kv_used": {one.engine: one.kv_used for one in loads},
            }
        return {
            "running": {"": sum(one.running for one in loads)},
            "waiting": {"": sum(one.waiting for one in loads)},
            "kv_used": {"": sum(one.kv_used for one in loads) / max(len(loads), 1)},
        }
