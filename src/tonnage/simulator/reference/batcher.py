"""Batchers: who enters the engine, and what one step computes. Each scheduler is a file beside this one.

A batcher is asked for one ``Step`` at a time. It moves requests from ``waiting`` to ``running``,
counts KV blocks, and says how many tokens of which request the step computes. It knows no clock.

Every request carries ``computed``, the tokens in its KV cache, and ``generated``, its output tokens so
far. A step that brings ``computed`` up to prompt + generated yields the next output token. So a
request decodes when exactly one token is missing, the one it generated last; else it prefills.

With speculative decoding a decode computes further tokens, ``drafted`` guesses: they take their part of the token
budget and have their place in the cache, right or wrong. Blocks once taken are kept for the tokens to come. The
one token that a pre-empted request may have left of its recomputation is computed without guesses.

Layers with sliding windows keep the last tokens of a sequence alone. The pool's blocks are those of the other layers; what the
windows of a sequence hold at its full length, in the same blocks, is taken when it enters and given back when it leaves or
is pre-empted: an upper bound while it is shorter than its window.

A decode reads a context of prompt + generated tokens: what the cache holds and the token it computes.
A prefill chunk of ``new`` tokens after ``past`` ones counts new·(2·past + new) for twice its attention pairs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tonnage.results.requests import UNFINISHED
from tonnage.spec.deployment import NO_WINDOWS, EngineKnobs, Windows


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request on its way; times in picoseconds, -1 where it did not happen."""

    id: int
    isl: int
    osl: int
    due: int
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0
    first_token: int = -1
    last_token: int = -1
    first_step: int = -1
    last_step: int = -1
    status: int = UNFINISHED
    drafts: bool = False
    """Whether its decodes come with guesses: it has had a token since it last entered."""

    @property
    def tokens(self) -> int:
        """Prompt and output so far."""
        return self.isl + self.generated

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status != UNFINISHED

    @property
    def decodes(self) -> bool:
        """Whether all that its KV cache lacks is the token generated last."""
        return self.generated > 0 and self.computed == self.tokens - 1


@dataclass(slots=True, kw_only=True)
class Step:
    """What one forward pass computes.

    Attributes:
        work: requests with the new tokens of each.
        prefill_tokens, prefill_sequences, decode_sequences, pairs_2, context_tokens: P, n, B, 2A and C of ``step_seconds``.
    """

    work: list[tuple[Job, int]] = field(default_factory=list)
    prefill_tokens: int = 0
    prefill_sequences: int = 0
    decode_sequences: int = 0
    pairs_2: int = 0
    context_tokens: int = 0

    def add(self, job: Job, new: int) -> None:
        """Compute ``new`` tokens of a request."""
        if not job.decodes:
            self.add_prompt(job, new)
            return
        self.work.append((job, new))
        self.decode_sequences += 1
        self.context_tokens += job.tokens

    def add_prompt(self, job: Job, new: int) -> None:
        """Compute ``new`` tokens of a request as a prompt, also where only its last token is missing."""
        self.work.append((job, new))
        self.prefill_tokens += new
        self.prefill_sequences += 1
        self.pairs_2 += new * (2 * job.computed + new)


class Batcher:
    """What all share: a queue, a list of running requests in the order they entered, free KV blocks.

    vLLM and TensorRT-LLM run at most ``max_num_tokens`` sequences, also with more slots, so that each can have
    a token in every step: vLLM refuses to start otherwise, TensorRT-LLM's builder raises the budget. With
    guesses that is a token and its guesses.
    """

    def __init__(self, knobs: EngineKnobs, kv_blocks: int, max_context: int, drafted: int = 0, windows: Windows = NO_WINDOWS) -> None:
        """Start empty, with all blocks free."""
        self.knobs = knobs
        self.drafted = drafted
        self.windows = windows
        self.slots = min(knobs.max_batch_size, knobs.max_num_tokens // (drafted + 1))
        self.kv_blocks = kv_blocks
        self.max_context = max_context
        self.free = kv_blocks
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []

    def blocks(self, tokens: int) -> int:
        """KV blocks that hold so many tokens."""
        return -(-tokens // self.knobs.tokens_per_block)

    def window_blocks(self, job: Job) -> int:
        """KV blocks that a request holds for its windows as long as it runs."""
        return self.windows.of(job.isl + job.osl + self.drafted)

    def lacks(self, job: Job, tokens: int) -> int:
        """Further KV blocks that a request needs to have so many tokens in its cache."""
        return self.blocks(tokens) + self.window_blocks(job) - job.blocks

    def never_fits(self, job: Job) -> bool:
        """Whether not even an idle engine could serve the request to its end: such a one is rejected."""
        longest = job.isl + job.osl
        needed = self.blocks(longest + self.drafted) + self.window_blocks(job)
        return needed > self.kv_blocks or 0 < self.max_context < longest

    def guesses(self, job: Job) -> int:
        """Guesses that the request's next decode comes with."""
        return self.drafted if job.drafts else 0

    def schedule(self) -> Step:
        """The next step; there is something to do."""
        raise NotImplementedError

    def idle(self) -> None:
        """Nobody runs and nobody waits."""

    def leave(self, job: Job) -> None:
        """The request has its last token, or nobody wants it any more: it gives up its slot and its blocks."""
        self.running.remove(job)
        self.free += job.blocks
        job.blocks = 0

    def cancel(self, job: Job) -> None:
        """Nobody wants the request any more, whether it runs or waits."""
        if job in self.running:
            self.leave(job)
        else:
            self.waiting.remove(job)
