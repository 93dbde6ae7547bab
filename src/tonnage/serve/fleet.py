"""Simulated instances behind one router, as one service; an instance may have several attention ranks, which take turns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.simulator.member import view_of_groups
from tonnage.simulator.router import ROUTERS, Request, memory_of

if TYPE_CHECKING:
    from tonnage.serve.instance import Deliver, Instance


class Fleet:
    """Sends each request to one of its instances, by the simulator's own router."""

    def __init__(self, instances: Sequence[Instance], router: str = "least-outstanding", seed: int = 0, ranks: int = 1) -> None:
        """Start with idle instances.

        Args:
            instances: one or more; with attention ranks each of them, those of one instance side by side.
            router: a name of ``simulator.router.ROUTERS``.
            seed: of the router's random choices.
            ranks: attention ranks of an instance; as in the simulator (``simulator.spec``), requests go to them in turn.
        """
        self.instances = tuple(instances)
        self._groups = [[one.member for one in self.instances[at : at + ranks]] for at in range(0, len(self.instances), ranks)]
        self._turns = [itertools.cycle(range(at, at + ranks)) for at in range(0, len(self.instances), ranks)]
        self._members = [instance.member for instance in self.instances]
        self._choose = ROUTERS[router]
        self._memory = memory_of(len(self._groups), seed)
        self._numbers = itertools.count()
        self._where: dict[int, Instance] = {}

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""
        return sum(len(member.engine.waiting) for member in self._members)

    def submit(self, *, isl: int, osl: int, deliver: Deliver, session: int = -1) -> int:
        """Send a request to an instance; its number.

        Args:
            isl, osl: prompt and output tokens.
            deliver: called for every piece of the answer.
            session: of the client, for session affinity; -1 for none.
        """
        number = next(self._numbers)
        chosen = self._choose(view_of_groups(self._groups), Request(number=number, session=session, isl=isl), self._memory)
        instance = self.instances[next(self._turns[chosen])]
        self._where[number] = instance
        instance.submit(number, isl=isl, osl=osl, deliver=deliver)
        return number

    def instance_of(self, number: int) -> Instance:
        """The instance that has a request."""
        return self._where[number]

    def ended(self, number: int) -> Instance:
        """Forget a request; the instance that had it."""
        return self._where.pop(number)

    def cancel(self, number: int) -> None:
        """Let go of a request whose client has left."""
        instance = self._where.get(number)
        if instance is not None:
            instance.cancel(number)
