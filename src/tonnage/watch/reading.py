"""All instances of a deployment at one moment, with the gateway before them and the exporters of their GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tonnage.watch.counts import Counts, counts_of, signals_on
from tonnage.watch.page import Page

GATEWAY_UP = "tonnage_gateway_up"
GATEWAY_REQUESTS = "tonnage_gateway_requests_total"
BROKEN = ("error", "cut", "failed")
ENDED = ("ok", *BROKEN)
"""How requests end that a gateway passed on, as it counts them (``gateway.backend.OUTCOMES``)."""

USE = ("DCGM_FI_DEV_GPU_UTIL", "nv_gpu_utilization", "nvml:utilization_percent")
WATTS = ("DCGM_FI_DEV_POWER_USAGE", "nv_gpu_power_usage", "nvml:power_w")
"""Of NVIDIA's DCGM exporter, of Triton, and of this machine's driver (names recalled, 2026-11-22)."""

SHARES = ("nv_gpu_utilization",)
"""Triton publishes a share where the others publish per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One moment.

    Attributes:
        at_s: seconds of a clock that never goes back.
        instances: what each instance that answered says, by its address.
        asked: the addresses that were asked.
        ended: requests that a gateway has passed on, by how they ended; empty without one.
        use: share of the time in which each GPU worked, one value a GPU; empty where nobody says it.
        watts: power of each GPU.
    """

    at_s: float
    instances: Mapping[str, Counts]
    asked: tuple[str, ...]
    ended: Mapping[str, float]
    use: tuple[float, ...] = ()
    watts: tuple[float, ...] = ()


def backends_on(page: Page) -> tuple[str, ...]:
    """The addresses of the backends of a gateway; none where a page is no gateway's."""
    return tuple(f"http://{one.labels['backend']}" for one in page.of(GATEWAY_UP) if "backend" in one.labels)


def reading(at_s: float, instances: Mapping[str, Page], others: Sequence[Page] = ()) -> Reading:
    """One moment.

    Args:
        at_s: seconds of a clock that never goes back.
        instances: the page of each instance that was asked; an empty one where it did not answer.
        others: pages of a gateway and of exporters.
    """
    found: dict[str, Counts] = {}
    for url, page in instances.items():
        signals = signals_on(page)
        if signals is not None:
            found[url] = counts_of(page, signals)
    pages = (*instances.values(), *others)
    ended = {outcome: 0.0 for page in others if GATEWAY_UP in page for outcome in ENDED}
    for one in (sample for page in others for sample in page.of(GATEWAY_REQUESTS)):
        if one.labels.get("outcome") in ended:
            ended[one.labels["outcome"]] += one.value
    return Reading(
        at_s=at_s,
        instances=found,
        asked=tuple(instances),
        ended=ended,
        use=tuple(value for page in pages for value in _use(page)),
        watts=tuple(value for page in pages for name in WATTS for value in page.values(name)),
    )


def _use(page: Page) -> Iterator[float]:
    for name in USE:
        for value in page.values(name):
            yield value if name in SHARES else value / 100
