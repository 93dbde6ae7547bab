"""Simulated instances as what answers the API."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from weakref import WeakSet

from tonnage.results.requests import COMPLETED, REJECTED
from tonnage.serve.answer import Answer, Call, Piece
from tonnage.serve.dialect import Refused
from tonnage.serve.instance import Fleet, Instance
from tonnage.serve.metric_names import VLLM, Published
from tonnage.serve.metrics import Load, Metrics
from tonnage.serve.prefix import Content, Publisher
from tonnage.serve.request import Asked
from tonnage.serve.script import Script, script_of
from tonnage.serve.tokens import Prompt, Tokens
from tonnage.serve.transfer import Transfers
from tonnage.spec.lengths import Lengths


class Simulated:
    """A fleet, as the application sees it."""

    broken = ""  # it never is

    def __init__(
        self,
        fleet: Fleet,
        model: str,
        *,
        tokens: Tokens,
        lengths: Lengths,
        names: Published = VLLM,
        max_context: int = 0,
    ) -> None:
        """Answer with the idle instances of a fleet; a request has at most ``max_context`` tokens,
        0 for no limit.
        """
        self.publishers: list[Publisher] = []  # of the events of the engines' caches
        # of KV caches from and to other servers; None for none
        self.transfers: Transfers | None = None
        # what an adapter of a rank takes: KV blocks of each engine, and seconds to be loaded
        self.adapter_cost: Callable[[int], tuple[int, float]] = lambda rank: (0, 0.0)
        self.weights_s = 0.0  # seconds in which the weights leave the GPUs or come back
        self._live: WeakSet[Answer] = WeakSet()
        self.fleet, self._tokens, self._lengths = fleet, tokens, lengths  # fleet: the instances
        self.metrics = Metrics(self._loads, model, names, max_context=max_context)
        self.metrics.state.adapters = self._adapters

    @property
    def waiting(self) -> int:
        """Requests in the engines' queues."""
        return self.fleet.waiting

    def close(self) -> None:
        """Close what publishes events of the caches."""
        for publisher in self.publishers:
            publisher.close()

    def answers(self, wish: Asked) -> list[Answer]:
        """An answer for each choice to each prompt, not begun yet."""
        if wish.rank is not None and not 0 <= wish.rank < len(self.fleet.instances):
            words = (
                f"data_parallel_rank {wish.rank} is out of range [0, {len(self.fleet.instances)})."
            )
            raise Refused(words)
        return [
            self._answer(wish, prompt, choice)
            for prompt in wish.prompts
            for choice in range(wish.choices)
        ]

    def _answer(self, wish: Asked, prompt: Prompt, choice: int) -> Answer:
        unseeded = secrets.randbits(60)
        script = script_of(
            wish, prompt, choice, tokens=self._tokens, lengths=self._lengths, unseeded=unseeded
        )
        source = SimulatedSource(self.fleet, wish, prompt, script, self.transfers)
        answer = Answer(
            source=source, metrics=self.metrics, asked=wish, prompt=prompt, script=script
        )
        self._live.add(answer)
        return answer

    @property
    def busy(self) -> bool:
        """Whether any engine has a request."""
        return any(instance.member.live for instance in self.fleet.instances)

    def abort(self) -> None:
        """Give up every request."""
        for answer in self._live:
            answer.abort()

    def clear(self) -> bool:
        """Empty the prefix caches; False where something is held."""
        cleared = [instance.engine.clear() for instance in self.fleet.instances]
        return all(cleared)

    def hold(self, blocks: int) -> bool:
        """Take KV blocks of every engine for something else; False, and none taken, where an engine
        has too few free.
        """
        holds = [member.engine.hold(blocks) for member in self.fleet.instances]
        if min(holds) == blocks:
            return True
        for instance, count in zip(self.fleet.instances, holds, strict=True):
            instance.release(count)
        return False

    def release(self, blocks: int) -> None:
        """Give them back."""
        for instance in self.fleet.instances:
            instance.release(blocks)

    def _adapters(self) -> tuple[set[str], set[str]]:
        """The adapters of waiting requests, and of running ones."""
        live = [answer for answer in self._live if answer.asked.adapter and not answer.finish]
        running = {answer.asked.adapter for answer in live if answer.source.slot_at is not None}
        return {answer.asked.adapter for answer in live if answer.source.slot_at is None}, running

    def _loads(self) -> Iterator[Load]:
        for instance in self.fleet.instances:
            engine = instance.engine
            blocks = engine.kv_blocks_used + engine.kv_blocks_free
            yield Load(
                engine=instance.name,
                running=len(engine.running),
                waiting=len(engine.waiting),
                kv_used=instance.member.kv_used,
                preemptions=engine.preemptions(),
                kv={
                    "block_size": str(engine.tokens_per_block),
                    "num_gpu_blocks": str(blocks),
                    "enable_prefix_caching": str(engine.watched is not None),
                },
            )


class SimulatedSource:
    """The source of a request's answer in the simulated fleet."""

    def __init__(
        self,
        fleet: Fleet,
        wish: Asked,
        prompt: Prompt,
        script: Script,
        transfers: Transfers | None = None,
    ) -> None:
        self._transfers = transfers
        self._fleet, self._asked, self._prompt, self._script = fleet, wish, prompt, script
        limit = max(wish.osl, 1)
        self._osl = min(limit, script.length)
        self._finish = "stop" if script.length <= limit else "length"
        self._stops = frozenset(wish.sampling.stop_token_ids)
        self._number = -1
        self._made = self.cached = 0  # cached: tokens of its prompt that the prefix cache had
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
    def front_end_s(self) -> float:
        """Seconds of the front end before it was in the queue, on the wall's clock."""
        return 0.0 if self._at is None else self._at.front_end_s

    @property
    def preemptions(self) -> int:
        """The number of times that the request was preempted."""
        return 0 if self._at is None else self._at.engine.preemptions(self._number)

    def begin(self, answer: Answer) -> None:
        """Send the request to an instance."""
        self._answer = answer
        request, prompt = self._asked, self._prompt
        content = Content(prompt.ids, request.salt, lambda place: self._script.token(place).id)
        self._fleet.submit(
            isl=prompt.tokens,
            osl=self._osl,
            deliver=self._deliver,
            session=request.session,
            content=content,
            came_at=request.came_at,
            received=request.received,
            rank=request.rank,
            sent=self._sent,
        )

    def _sent(self, number: int, instance: Instance) -> None:
        self._number, self._at = number, instance

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
            words = (
                f"a request of {self._prompt.tokens} and {self._osl} tokens does not fit the KV"
                " cache of this deployment"
            )
            self._answer.take(Piece(error=words))
            return
        if not self._made and self._asked.received:
            tokens += 1  # the one that came with its KV cache
        if not self._made and self._at is not None:
            self.cached = self._at.engine.cached(self._number)
            self._answer.metrics.looked_up(
                self.engine, self._prompt.tokens, self.cached, received=self._asked.received
            )
        if (
            status == COMPLETED
            and self._asked.offered_as
            and self._at is not None
            and self._transfers is not None
        ):
            self._transfers.computed(self._asked.offered_as, self._at, self._prompt.tokens)
        self._answer.take(self._piece(tokens, ends=status == COMPLETED))

    def _piece(self, tokens: int, *, ends: bool) -> Piece:
        """The text of the next tokens, up to one that ends the answer."""
        if tokens == 1 and not self._stops:
            token = self._script.token(self._made)
            if token.part == "content":
                self._made += 1
                return Piece(
                    text=token.text, tokens=1, ids=(token.id,), finish=self._finish if ends else ""
                )
        script_tokens = [self._script.token(self._made + i) for i in range(tokens)]
        stopped_by: str | int = ""
        if self._stops:
            least = self._asked.sampling.min_tokens
            place = next(
                (
                    i
                    for i, element in enumerate(script_tokens)
                    if element.id in self._stops and self._made + i >= least
                ),
                None,
            )
            if place is not None:
                stop_text = script_tokens[place].text if self._asked.keeps_stop else ""
                script_tokens, stopped_by = (
                    [*script_tokens[:place], script_tokens[place]._replace(text=stop_text)],
                    script_tokens[place].id,
                )
        self._made += len(script_tokens)
        piece = Piece(tokens=len(script_tokens), ids=[element.id for element in script_tokens])
        piece.finish = "stop" if stopped_by != "" else self._finish if ends else ""
        piece.stopped_by = stopped_by
        piece.text = "".join(element.text for element in script_tokens if element.part == "content")
        piece.reasoning = "".join(
            element.text for element in script_tokens if element.part == "reasoning"
        )
        named = [
            Call(element.call, name=element.text)
            for element in script_tokens
            if element.part == "name"
        ]
        arguments = [
            Call(element.call, arguments=element.text)
            for element in script_tokens
            if element.part == "arguments"
        ]
        piece.calls = sorted((*named, *arguments), key=lambda call: call.place)
        piece.silent = all(element.part == "none" for element in script_tokens)
        return piece
