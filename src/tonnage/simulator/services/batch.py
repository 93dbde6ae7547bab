"""Requests that one instance of a model computes together."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.simulator.services.queue import Ticket


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """One batch on its GPU."""

    model: str
    gpu: int
    tickets: list[Ticket]

    @property
    def items(self) -> int:
        """Its size."""
        return sum(ticket.items for ticket in self.tickets)
