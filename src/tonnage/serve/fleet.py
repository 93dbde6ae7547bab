"""Simulated instances behind one router, as one service; an instance may have several attention ranks, which take turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tonnage.serve.prefix import Content, names_of
from tonnage.simulator.member import view_of_groups
from tonnage.simulator.router import ROUTERS, Request, memory_of

if TYPE_CHECKING:
    from tonnage.serve.instance import Deliver, Instance
    from tonnage.simulator.member import Member


class Fleet:
    """Sends each request to one of its instances, by the simulator's own router."""

    def __init__(self, instances: Sequence[Instance], router: str = "least-outstanding", seed: int = 0, ranks: int = 1) -> None:
        """Start with idle instances; with attention ranks each of them, those of one instance side by side.

        Requests go to the ranks in turn, as in the simulator (``simulator.spec``).
        """
        self.instances = tuple(instances)
        self._groups = [[one.member for one in self.instances[at : at + ranks]] for at in range(0, len(self.instances), ranks)]
        self._turns = [itertools.cycle(range(at, at + ranks)) for at in range(0, len(self.instances), ranks)]
        self._members = [instance.member for instance in self.instances]
        self._choose, self._by_prefix = ROUTERS[router], router == "prefix-aware"
        self._memory = memory_of(len(self._groups), seed)
        self._numbers = itertools.count()
        self._where: dict[int, Instance] = {}

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""
        return sum(len(member.engine.waiting) for member in self._members)

    def submit(
        self,
        *,
        isl: int,
        osl: int,
        deliver: Deliver,
        session: int = -1,
        content: Content | None = None,
        came_at: float | None = None,
        received: bool = False,
        rank: int | None = None,
        sent: Callable[[int, Instance], None] | None = None,
    ) -> int:
        """Send a request to an instance, or to the ``rank`` that the client chose; its number.

        Arguments are those of ``Instance.submit``, the client's ``session`` for session affinity (-1 for none), and ``sent``, which is told
        number and instance before anything is delivered: on a slow machine before this returns.
        """
        number = next(self._numbers)
        if rank is None:
            rank = self._chosen(number, isl, session, content)
        instance = self.instances[rank]
        self._where[number] = instance
        if sent is not None:
            sent(number, instance)
        instance.submit(number, isl=isl, osl=osl, deliver=deliver, content=content, came_at=came_at, received=received)
        return number

    def _chosen(self, number: int, isl: int, session: int, content: Content | None) -> int:
        """The engine that the router chooses."""
        view = view_of_groups(self._groups)
        if self._by_prefix and content is not None:
            view = view._replace(matched=[self._matched(group, content) for group in self._groups])
        chosen = self._choose(view, Request(number=number, session=session, isl=isl), self._memory)
        return next(self._turns[chosen])

    def _matched(self, group: Sequence[Member], content: Content) -> int:
        """Tokens of a prompt that the cache of an instance has, or that of one of its ranks."""
        engines: list[Any] = [member.engine for member in group]
        return max(int(one.matched(names_of(content.ids, one.tokens_per_block, content.salt))) for one in engines)

    def ended(self, number: int) -> Instance:
        """Forget a request; the instance that had it."""
        return self._where.pop(number)

    def cancel(self, number: int) -> None:
        """Let go of a request whose client has left."""
        instance = self._where.get(number)
        if instance is not None:
            instance.cancel(number)
