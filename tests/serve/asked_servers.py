"""Servers, asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.serve.engines import SERVED
from tonnage.serve.server import Served


def served(**more: Any) -> Served:
    return replace(SERVED, instances=1, max_context=2048, speed=50.0, most_waiting=0, **more)
