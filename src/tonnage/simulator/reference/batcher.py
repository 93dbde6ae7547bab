"""Batchers: who enters the engine, and what one step computes. Each scheduler is a file next to
this one.

A batcher is requested one ``Step`` at a time. It moves requests from ``waiting`` to ``running``,
counts KV blocks, and says how many tokens of which request the step computes. It knows no clock.

Every request carries ``computed``, the tokens in its KV cache, and ``generated``, its output tokens
so far. A step that brings ``computed`` up to prompt + generated yields the next output token. So a
request decodes when exactly one token is missing, the one it generated last; else it prefills.

With speculative decoding a decode computes further tokens, ``drafted`` guesses: they take their
part of the token budget and have their place in the cache, right or wrong. Blocks once taken are
kept for the tokens to come. The one token that a pre-empted request may have left of its
recomputation is computed without guesses.

Layers with sliding windows keep the last tokens of a sequence alone. The pool's blocks are those of
the other layers; what the windows of a sequence hold at its full length, in the same blocks, is
taken when it enters and given back when it leaves or is pre-empted: an upper bound while it is
shorter than its window.

With a prefix cache (``prefix_cache.py``) a request that enters finds the first blocks of its
context and computes the rest, attending to all of it. ``free`` counts the blocks that nobody holds
and that are not set aside for running requests, whatever is still in them.

A decode reads a context of prompt + generated tokens: what the cache holds and the token it
computes. A prefill chunk of ``new`` tokens after ``past`` ones counts new·(2·past + new) for twice
its attention pairs.
"""

from __future__ import annotations

from collections import deque

from tonnage.simulator.reference.job import Job, Step
from tonnage.simulator.reference.prefix_cache import NOTHING, Found, PrefixCache
from tonnage.spec.deployment import EngineKnobs, Windows


class Batcher:
    """The state that all batchers share: a queue, the running requests in the order they entered,
    free KV blocks.

    While ``held``, TensorRT-LLM and SGLang compute no prompts: they wait for those of other
    attention ranks (``ranks.py``).

    vLLM and TensorRT-LLM run at most ``max_num_tokens`` sequences, also with more slots, so that
    each can have a token in every step: vLLM refuses to start otherwise, TensorRT-LLM's builder
    raises the budget. With guesses that is a token and its guesses.
    """

    CACHES, PARTIAL = True, False
    """Whether it has a prefix cache, and finds parts of blocks there."""

    def __init__(
        self,
        knobs: EngineKnobs,
        kv_blocks: int,
        max_context: int,
        drafted: int,
        windows: Windows,
    ) -> None:
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
        self.cache: PrefixCache | None = None
        self.transfer_ps = self.overlap_ps = 0
        self.held = False

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
        """Whether not even an idle engine could serve the request to its end: such a one is
        rejected.
        """
        longest = job.isl + job.osl
        needed = self.blocks(longest + self.drafted) + self.window_blocks(job)
        return needed > self.kv_blocks or 0 < self.max_context < longest

    def guesses(self, job: Job) -> int:
        """Guesses that the request's next decode comes with."""
        return self.drafted if job.drafts else 0

    def find(self, job: Job) -> Found:
        """Look a waiting request's prompt up in the prefix cache."""
        return NOTHING if self.cache is None else self.cache.find(job)

    def enter(self, job: Job, cached: Found) -> None:
        """The request runs, with what it found."""
        self.running.append(job)
        if self.cache is None or not cached.tokens:
            return
        self.cache.hold(job, cached)
        self.free -= len(cached.blocks) - cached.kept + cached.idle
        self.transfer_ps += cached.transfer_ps
        self.overlap_ps += cached.overlap_ps
        job.blocks = len(cached.blocks)
        job.computed = cached.tokens
        if job.preemptions == 0:
            job.cached = cached.tokens

    def claim(self, job: Job, blocks: int) -> None:
        """Set so many further blocks aside for a request."""
        self.free -= blocks
        job.blocks += blocks

    def take(self, job: Job, tokens: int) -> None:
        """Let a request have the blocks for so many tokens, of those set aside for it; with guesses
        all of these.
        """
        if self.cache is not None:
            windows = self.window_blocks(job)
            self.cache.grow(
                job, job.blocks - windows if self.drafted else self.blocks(tokens), windows
            )

    def filled(self, job: Job) -> None:
        """Note that part of a request's prompt was computed."""

    def give_back(self, job: Job) -> None:
        """The request lets go of all its blocks."""
        if self.cache is None:
            self.free += job.blocks
        else:
            aside = job.blocks - len(job.held) - len(job.windows)
            self.free += aside + self.cache.release(job)
        job.blocks = 0

    def made(self, step: Step) -> Step:
        """Return a step, which waits for the transfers of entering requests."""
        step.transfer_ps, step.overlap_ps = self.transfer_ps, self.overlap_ps
        self.transfer_ps = self.overlap_ps = 0
        return step

    def queue(self, job: Job) -> None:
        """The request waits: behind all, or shortest first in front of the first with a longer
        prompt that has never lost its blocks.

        By priority or deadline it goes in front of the first that ranks behind it.
        """
        place = len(self.waiting)
        if self.knobs.queue_order == "shortest-first":
            longer = (
                i
                for i, waiting_job in enumerate(self.waiting)
                if waiting_job.preemptions == 0 and waiting_job.isl > job.isl
            )
            place = next(longer, place)
        elif self.ranked:
            behind = (
                i
                for i, waiting_job in enumerate(self.waiting)
                if self.rank(waiting_job) > self.rank(job)
            )
            place = next(behind, place)
        self.waiting.insert(place, job)

    def queue_again(self, job: Job) -> None:
        """A request that has lost its blocks waits in front of all; by priority or deadline where
        it ranks.
        """
        if self.ranked:
            self.queue(job)
        else:
            self.waiting.appendleft(job)

    @property
    def ranked(self) -> bool:
        """Whether requests go by priority or deadline."""
        return self.knobs.queue_order in ("priority", "deadline")

    def rank(self, job: Job) -> tuple[int, int, int]:
        """What orders requests: the class or the deadline, then who was sent first."""
        return (
            job.priority if self.knobs.queue_order == "priority" else job.deadline,
            job.due,
            job.id,
        )

    @property
    def has_prompts(self) -> bool:
        """Whether there is a prompt to compute, and a slot for it."""
        return any(not job.decodes for job in self.running) or (
            bool(self.waiting) and len(self.running) < self.slots
        )

    @property
    def has_decodes(self) -> bool:
        """Whether anyone decodes."""
        return any(job.decodes for job in self.running)

    def schedule(self) -> Step:
        """The next step; there is something to do."""
        raise NotImplementedError

    def idle(self) -> None:
        """Nobody runs and nobody waits."""

    def leave(self, job: Job) -> None:
        """The request has its last token, or nobody wants it any more: it gives up its slot and its
        blocks.
        """
        self.running.remove(job)
        self.give_back(job)

    def cancel(self, job: Job) -> None:
        """Nobody wants the request any more, whether it runs or waits."""
        if job in self.running:
            self.leave(job)
        else:
            self.waiting.remove(job)
