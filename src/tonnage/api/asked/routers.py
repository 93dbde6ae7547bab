"""The router that is asked for, by name."""

from __future__ import annotations

from tonnage.errors import InputError, option
from tonnage.simulator.router import DEFAULT_ROUTER, ROUTERS

BY_CONTENT = ("prefix-aware", "session")
"""Routers that look at what requests have in common."""


def router_of(name: str | None, *, by_content: bool = False, default: str = DEFAULT_ROUTER) -> str:
    """A router by its name; the default where none is named.

    Args:
        name: of ``simulator.router``.
        by_content: whether the requests may have something in common, which ``BY_CONTENT`` look at.
        default: where none is named.

    Raises:
        InputError: no router that the requests can be routed by.
    """
    known = [each for each in ROUTERS if by_content or each not in BY_CONTENT]
    plain = None if name is None else name.strip().lower().replace("_", "-").replace(" ", "-")
    if plain is not None and plain not in known:
        raise InputError(f"{option('router')}: '{name}' is not a router; choose from {', '.join(known)}")
    return plain or default
