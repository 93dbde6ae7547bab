"""Simulated instances as what answers the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.serve.answer import Answer, Piece
from tonnage.serve.metrics import Load, Metrics
from tonnage.serve.published import VLLM, Published
from tonnage.simulator.router import draw

if TYPE_CHECKING:
    from tonnage.serve.fleet import Fleet
    from tonnage.serve.instance import Instance
    from tonnage.serve.request import Asked


# The text of simulated answers: one common English word for each token, the same for the same request.


_TEXT = """
time year people way day man thing woman life child world school state family student group country problem hand part place case
week company system program question work government number night point home water room mother area money story fact month lot
right study book eye job word business issue side kind head house service friend father power hour game line end
"""
WORDS = tuple(_TEXT.split())


def word(request: int, token: int) -> str:
    """The text of an output token, counted from 0; every one but the first begins with a space."""
    chosen = WORDS[draw(0, request, token) % len(WORDS)]
    return chosen if token == 0 else " " + chosen


class Simulated:
    """A fleet, as the application sees it.

    Attributes:
        fleet: the instances.
        metrics: of the server.
    """

    def __init__(self, fleet: Fleet, model: str, names: Published = VLLM) -> None:
        """Answer with the instances of a fleet.

        Args:
            fleet: of idle instances.
            model: the name that clients use.
            names: of the metrics.
        """
        self.fleet = fleet
        self.metrics = Metrics(self._loads, model, names)

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""
        return self.fleet.waiting

    @property
    def broken(self) -> str:
        """A simulated engine does not break."""
        return ""

    def close(self) -> None:
        """Nothing runs next to the server's loop."""

    def answers(self, asked: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet."""
        return [
            Answer(
                source=SimulatedSource(self.fleet, isl=prompt.tokens, osl=asked.osl, session=asked.session),
                metrics=self.metrics,
                isl=prompt.tokens,
                osl=asked.osl,
                choices=asked.choices,
                stop=asked.stop,
            )
            for prompt in asked.prompts
            for _ in range(asked.choices)
        ]

    def _loads(self) -> Iterator[Load]:
        for one in self.fleet.instances:
            engine = one.member.engine
            blocks = engine.kv_blocks_used + engine.kv_blocks_free
            yield Load(
                engine=one.name,
                running=len(engine.running),
                waiting=len(engine.waiting),
                kv_used=one.member.kv_used,
                preemptions=engine.preemptions(),
                kv={"block_size": str(engine.tokens_per_block), "num_gpu_blocks": str(blocks)},
            )


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
        self._at: Instance | None = None

    @property
    def engine(self) -> str:
        """The instance that has it; "0" before it is sent."""
        return self._at.name if self._at is not None else "0"

    @property
    def slot_at(self) -> float | None:
        """When it had a slot; None while it waits."""
        return None if self._at is None else self._at.slot_at.get(self._number)

    @property
    def preemptions(self) -> int:
        """How often it lost its blocks."""
        return 0 if self._at is None else self._at.member.engine.preemptions(self._number)

    def begin(self, answer: Answer) -> None:
        """Send the request to an instance."""
        self._answer = answer
        self._number = self._fleet.submit(isl=self._isl, osl=self._osl, deliver=self._deliver, session=self._session)
        self._at = self._fleet.instance_of(self._number)

    def end(self) -> None:
        """The instance lets go of it."""
        self._answer = None
        if self._number >= 0:
            self._fleet.cancel(self._number)
            self._fleet.ended(self._number).slot_at.pop(self._number, None)

    def _deliver(self, tokens: int, status: int) -> None:
        if self._answer is None:
            return
        if status == REJECTED:
            self._answer.take(Piece(error=f"a request of {self._isl} and {self._osl} tokens does not fit the KV cache of this deployment"))
            return
        text = "".join(word(self._number, self._made + i) for i in range(tokens))
        self._made += tokens
        self._answer.take(Piece(text=text, tokens=tokens, finish="length" if status == COMPLETED else ""))
