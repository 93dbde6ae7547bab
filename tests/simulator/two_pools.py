"""Two pools and the link between them."""

from __future__ import annotations

COLUMNS = (
    "due_ns",
    "admitted_ns",
    "prefilled_ns",
    "first_token_ns",
    "last_token_ns",
    "isl",
    "osl",
    "instance",
    "status",
    "preemptions",
    "gaps",
)
