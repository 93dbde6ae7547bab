"""Batchers: who enters the engine, and what one step computes; that of SGLang is in ``sglang.py``.

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
        """The request has its last token: it gives up its slot and its blocks."""
        self.running.remove(job)
        self.free += job.blocks
        job.blocks = 0


class Static(Batcher):
    """One batch at a time; everyone in it is padded to the longest.

    A new batch is made of the first waiting requests when the last one is gone, as many as there are
    slots and as the KV cache holds at the longest prompt + the longest output of the batch for each.
    Its prefill is one step of n sequences of the longest prompt; then every decode step is priced with
    n sequences whose contexts are the longest prompt + the steps so far, also after some have ended:
    their slots are held until the longest ends. A request's last token is at its own output length.
    ``max_num_tokens`` and ``chunked_prefill`` play no part, nor does a cap of slots by tokens: such an
    engine is built for its whole batch.
    """

    size = 0
    longest_prompt = 0

    def schedule(self) -> Step:
        """The prefill of a new batch, or the next decode step of the present one."""
        if not self.running:
            self._fill()
            n, prompt = self.size, self.longest_prompt
            work = [(job, job.isl) for job in self.running]
            return Step(work=work, prefill_tokens=n * prompt, prefill_sequences=n, pairs_2=n * prompt * prompt)
        so_far = self.running[0].generated
        context = self.size * (self.longest_prompt + so_far)
        return Step(work=[(job, 1) for job in self.running], decode_sequences=self.size, context_tokens=context)

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self.knobs.max_batch_size:
            batch = [*self.running, self.waiting[0]]
            longest = max(job.isl for job in batch) + max(job.osl for job in batch)
            if len(batch) * (self.blocks(longest) + self.windows.of(longest)) > self.kv_blocks:
                break
            self.running.append(self.waiting.popleft())
        self.size = len(self.running)
        self.longest_prompt = max(job.isl for job in self.running)


class TensorRtLlm(Batcher):
    """In-flight batching of TensorRT-LLM under GUARANTEED_NO_EVICT.

    Admission, in order: a slot, and blocks for prompt + maximum output (+ guesses); the first that finds none blocks
    those behind it. A step then takes one token of every running request past its prompt, and of the
    rest, in order, whole prompts while they fit into what is left of ``max_num_tokens``; with
    ``chunked_prefill`` as much of a prompt as is left, in whole blocks unless it ends the prompt.

    With ``batch_wait_steps`` the prompts of a step that also has decodes wait, until they have waited so many steps in a row, or the
    step's decodes and the whole lengths of its prompts make ``batch_wait_ratio`` of the budget.

    Source: capacityScheduler.cpp, microBatchScheduler.cpp (FIRST_COME_FIRST_SERVED chunks) and, for the wait, ``_waiting_requests`` of
    py_executor.py of TensorRT-LLM.
    """

    waited = 0

    def never_fits(self, job: Job) -> bool:
        """Also a prompt beyond the token budget that cannot be cut, or not even into one block."""
        cuts = self.knobs.chunked_prefill and self.knobs.max_num_tokens >= self.knobs.tokens_per_block
        return super().never_fits(job) or (job.isl > self.knobs.max_num_tokens and not cuts)

    def schedule(self) -> Step:
        """Admit, then decodes, then prompts."""
        self._admit()
        step = Step()
        budget = self.knobs.max_num_tokens
        for job in [job for job in self.running if job.decodes]:
            step.add(job, 1)
        budget -= step.decode_sequences * (self.drafted + 1)
        for job in [job for job in self.running if job.generated == 0]:
            new = job.isl - job.computed
            if new > budget:
                if not self.knobs.chunked_prefill:
                    break
                new = budget // self.knobs.tokens_per_block * self.knobs.tokens_per_block
            if new > 0:
                step.add(job, new)
                budget -= new
        return self._batched(step)

    def _batched(self, step: Step) -> Step:
        """The step, without its prompts if they wait to be batched with others."""
        decodes = [(job, new) for job, new in step.work if job.decodes]
        tokens = sum(job.isl for job, _ in step.work if not job.decodes) + len(decodes) * (self.drafted + 1)
        wait = decodes and len(decodes) < len(step.work) and tokens < self.knobs.batch_wait_ratio * self.knobs.max_num_tokens
        if not wait or self.waited >= self.knobs.batch_wait_steps:
            self.waited = 0 if len(decodes) < len(step.work) else self.waited
            return step
        self.waited += 1
        alone = Step()
        for job, new in decodes:
            alone.add(job, new)
        return alone

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.slots:
            job = self.waiting[0]
            need = self.lacks(job, job.isl + job.osl + self.drafted)
            if need > self.free:
                break
            self.waiting.popleft()
            self.free -= need
            job.blocks = need
            self.running.append(job)


class Vllm(Batcher):
    """The scheduler of vLLM V1: one token budget a step, blocks allocated as they are needed.

    Running requests first, in the order they entered, each with the tokens it lacks, as far as the
    budget goes. One that finds no free block takes those of the request that entered last, which is
    pre-empted: it loses its cache, goes to the front of the queue and later computes prompt and output
    so far again; a request may thus pre-empt itself, and the pass ends. Then, if nobody was pre-empted,
    waiting requests enter while slots and budget last and the free blocks hold all their tokens
    (``scheduler_reserve_full_isl``), although only those of their first chunk are taken. Without
    ``chunked_prefill`` a prompt waits until it fits the budget whole. No prefix cache.

    Source: vllm/v1/core/sched/scheduler.py of vLLM 0.32.0.
    """

    def never_fits(self, job: Job) -> bool:
        """Also, without chunks, prompt + output beyond the budget: vLLM asks for max_num_batched_tokens ≥ max_model_len."""
        whole = not self.knobs.chunked_prefill and job.isl + job.osl > self.knobs.max_num_tokens
        return super().never_fits(job) or whole

    def schedule(self) -> Step:
        """Running ones, then waiting ones."""
        step = Step()
        budget, preempted = self._continue(step, self.knobs.max_num_tokens)
        if not preempted:
            self._admit(step, budget)
        return step

    def _continue(self, step: Step, budget: int) -> tuple[int, bool]:
        """Schedule running requests; the budget left, and whether anyone was pre-empted."""
        preempted = False
        for job in list(self.running):
            if budget == 0 or job not in self.running:
                break
            new = min(job.tokens - job.computed, budget)
            guesses = self.guesses(job)
            need = self.lacks(job, job.computed + new + guesses)
            while need > self.free and job in self.running:
                self._preempt(self.running.pop())
                preempted = True
            if job not in self.running:
                break
            self._allocate(job, need)
            step.add(job, new)
            budget -= new + guesses
        return budget, preempted

    def _admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.slots:
            job = self.waiting[0]
            if not self.knobs.chunked_prefill and job.tokens > budget:
                break
            if self.lacks(job, job.tokens) > self.free:
                break
            self.waiting.popleft()
            self.running.append(job)
            new = min(job.tokens, budget)
            self._allocate(job, self.lacks(job, new))
            step.add(job, new)
            budget -= new

    def _allocate(self, job: Job, blocks: int) -> None:
        self.free -= blocks
        job.blocks += blocks

    def _preempt(self, job: Job) -> None:
        self.free += job.blocks
        job.blocks = 0
        job.computed = 0
        job.drafts = False
        job.preemptions += 1
        self.waiting.appendleft(job)
