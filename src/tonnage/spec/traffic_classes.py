"""Classes of requests: each has a share of the traffic, a priority and, where one is given, a limit on its first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.workload import Trace

NO_LIMIT = -1
"""In place of a limit in picoseconds."""

STREAM = 3
"""Which of the random streams of a seed draws the classes; those before it draw gaps and lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """Some of the requests. Of several classes the one that is named first has the highest priority (0).

    Attributes:
        name: in one word.
        share: of the requests, above 0; those of all classes sum to 1.
        ttft_s: the time to first token that its requests should have, in seconds; None for none.
    """

    name: str
    share: float
    ttft_s: float | None = None


def drawn(classes: Sequence[TrafficClass], count: int, seed: int) -> NDArray[np.int64]:
    """The class of each of ``count`` requests, as int64 places in ``classes``; independent of one another, of arrivals and of lengths."""
    import numpy as np

    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(STREAM + 1)[STREAM])
    bounds = np.cumsum([one.share for one in classes])[:-1]
    return np.searchsorted(bounds, rng.random(count), side="right").astype(np.int64)


def with_classes(trace: Trace, classes: Sequence[TrafficClass], seed: int) -> Trace:
    """A trace whose requests have classes; the same trace without any."""
    from dataclasses import replace

    import numpy as np

    from tonnage.units import to_ps

    if not classes:
        return trace
    places = drawn(classes, len(trace), seed)
    limits = np.array([NO_LIMIT if one.ttft_s is None else to_ps(one.ttft_s) for one in classes], np.int64)
    return replace(trace, priority=places, ttft_ps=limits[places])
