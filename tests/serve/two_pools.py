"""Two engines of which one hands its caches on."""

from __future__ import annotations

from tests.serve.engines import Asking
from tonnage.simulator.pools import KvLink

LINK = KvLink(bytes_per_token=1000, bytes_s=1e8, layers=4)
Sides = tuple[Asking, Asking]
