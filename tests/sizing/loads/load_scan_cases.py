"""What the tests of load scan share with others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tonnage.sizing.loads.load_scan import Broken, Highest, LoadScan, on_lattice, place_of
from tonnage.sizing.loads.runs import Seen
from tonnage.spec.deployment import Limit

if TYPE_CHECKING:
    from collections.abc import Callable


class Curve(LoadScan):
    """A scan whose values are those of a function of the load and of the length of a run."""

    def __init__(
        self,
        value: Callable[[float, int], float],
        most: float = 1000.0,
        begin: float = 1000.0,
        measured: bool = False,
    ) -> None:
        """Loads settle up to ``most``, which is ``measured`` already or not; the search begins at
        ``begin``."""
        traffic = SimpleNamespace(sharing=None)
        fake: Any = SimpleNamespace(
            traffic=traffic,
            follows=False,
            held_rate=lambda rate: rate,
            recorded_sessions=None,
            saturation_estimate=lambda: most / 0.98,
        )
        super().__init__(
            SimpleNamespace(
                saturation=lambda instance: most / 0.98,
                knows_saturation=lambda instance: measured,
                open=self._open,
            ),  # type: ignore[arg-type]
            fake,
        )
        self.value, self.begin, self.runs_made = value, begin, list[tuple[int, float]]()

    def start(self, slo: Any) -> int:
        return min(self.top, place_of(self.begin))

    @property
    def top(self) -> int:  # type: ignore[override]
        return place_of(1.1 * self.most)

    def seen(self, place: int, length: int) -> Seen:
        return self._open(self.instance, 1, on_lattice(place), length)

    def _open(self, instance: Any, instances: int, rate: float, length: int) -> Seen:
        self.runs_made.append((length, rate))
        value = self.value(rate, length)
        found: Any = SimpleNamespace(limit_s=lambda limit: value)
        return Seen(summary=found, requests=1)


def limit(seconds: float) -> tuple[Limit, ...]:
    return (Limit(metric="ttft", statistic="p95", seconds=seconds),)


def rate_of(found: Highest | Broken) -> float:
    return found.rate if isinstance(found, Highest) else 0.0
