"""What a person sees on standard error while a measurement runs: rate, in flight, percentiles, errors, time left."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from tonnage.bench.client import Client
from tonnage.bench.conductor import Conductor, TalkConductor
from tonnage.bench.measure import Live
from tonnage.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EVERY_S = 0.5


def live_view(words: str) -> LiveView | None:
    """A view of one load, or None where standard error is not a terminal."""
    return LiveView(words) if sys.stderr.isatty() else None


class LiveView(Live):
    """A table that a thread of its own draws twice a second; the loop only adds numbers to it."""

    def __init__(self, words: str, console: Console | None = None) -> None:
        """Set up for a load, described in words."""
        super().__init__()
        self._words = words
        self._console = console
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, conductor: Conductor | TalkConductor, client: Client) -> None:
        """Begin to draw."""
        super().begin(conductor, client)
        self._thread = threading.Thread(target=self._draw, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Draw no more, and leave the terminal as it was."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live as Drawn

        console = self._console or Console(stderr=True)
        with Drawn(self.picture(), console=console, transient=True, auto_refresh=False) as drawn:
            while not self._stop.wait(EVERY_S):
                drawn.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """The table as it stands."""
        from rich.table import Table

        table = Table(title=self._words, title_justify="left", box=None, pad_edge=False)
        for name in ("sent", "in flight", "requests/s", "TTFT p50", "TTFT p95", "TPOT p50", "TPOT p95", "failed", "left"):
            table.add_column(name, justify="right")
        table.add_row(*self._cells())
        return table

    def _cells(self) -> list[str]:
        now = self.reading()
        if now is None:
            return ["–"] * 9
        rate = "–" if now.requests_per_second is None else f"{now.requests_per_second:,.1f}"
        latencies = [text for pair in (now.ttft_s, now.tpot_s) for text in (("–", "–") if pair is None else map(format_duration, pair))]
        left = "–" if now.left_s is None else format_duration(now.left_s)
        return [f"{now.sent:,}", f"{now.in_flight:,}", rate, *latencies, f"{now.failed:,}", left]
