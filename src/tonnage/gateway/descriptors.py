"""Open files: how many this process may have, and how many clients that leaves."""

from __future__ import annotations

import contextlib
import resource
from dataclasses import replace

from tonnage.gateway.settings import Settings

OWN = 64
"""Descriptors beside those of clients and backends: health checks, logs, what Python itself holds."""


def more_descriptors() -> int:
    """Raise the limit of open files as far as this user may, and return it."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        soft = most
    return soft


def fitting(settings: Settings, descriptors: int) -> Settings:
    """The same with no more connections of clients than leave a descriptor for every request's connection to its backend.

    Where even that is too many, requests get a third of the descriptors and clients the rest.
    """
    limits = settings.limits
    backends = min(limits.in_flight, descriptors // 3)
    return replace(settings, limits=replace(limits, connections=min(limits.connections, max(descriptors - backends - OWN, 1))))
