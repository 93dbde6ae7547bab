"""Simulated instances as what answers the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.serve.answer import Answer, Piece
from tonnage.serve.metrics import Load, Metrics
from tonnage.serve.words import word

if TYPE_CHECKING:
    from tonnage.serve.asked import Asked
    from tonnage.serve.fleet import Fleet


class Simulated:
    """A fleet, as the application sees it.

    Attributes:
        fleet: the instances.
        metrics: of the server.
    """

    def __init__(self, fleet: Fleet, model: str) -> None:
        """Answer with the instances of a fleet.

        Args:
            fleet: of idle instances.
            model: the name that clients use.
        """
        self.fleet = fleet
        self.metrics = Metrics(self._loads, model)

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""
        return self.fleet.waiting

    @property
    def broken(self) -> str:
        """A simulated engine does not break."""
        return ""

    def close(self) -> None:
        """Nothing runs beside the server's loop."""

    def answers(self, asked: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet."""
        return [
            Answer(
                source=SimulatedSource(self.fleet, isl=prompt.tokens, osl=asked.osl, session=asked.session),
                metrics=self.metrics,
                isl=prompt.tokens,
                stop=asked.stop,
            )
            for prompt in asked.prompts
            for _ in range(asked.choices)
        ]

    def _loads(self) -> Iterator[Load]:
        for one in self.fleet.instances:
            engine = one.member.engine
            yield Load(engine=one.name, running=len(engine.running), waiting=len(engine.waiting), kv_used=one.member.kv_used)


class SimulatedSource:
    """One request in the fleet; its words are made up."""

    def __init__(self, fleet: Fleet, *, isl: int, osl: int, session: int) -> None:
        """Not begun yet.

        Args:
            fleet: where it is sent.
            isl, osl: prompt and output tokens.
            session: of the client, for session affinity; -1 for none.
        """
        self._fleet, self._isl, self._osl, self._session = fleet, isl, osl, session
        self._number = -1
        self._made = 0
        self._answer: Answer | None = None

    def begin(self, answer: Answer) -> None:
        """Send the request to an instance."""
        self._answer = answer
        self._number = self._fleet.submit(isl=self._isl, osl=self._osl, deliver=self._deliver, session=self._session)

    def end(self) -> None:
        """The instance lets go of it."""
        self._answer = None
        if self._number >= 0:
            self._fleet.cancel(self._number)
            self._fleet.ended(self._number)

    def _deliver(self, tokens: int, status: int) -> None:
        if self._answer is None:
            return
        if status == REJECTED:
            self._answer.take(Piece(error=f"a request of {self._isl} and {self._osl} tokens does not fit the KV cache of this deployment"))
            return
        text = "".join(word(self._number, self._made + i) for i in range(tokens))
        self._made += tokens
        self._answer.take(Piece(text=text, tokens=tokens, finish="length" if status == COMPLETED else ""))
