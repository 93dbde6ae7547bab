"""The scheduler of SGLang: prompts first, alone, and a guess of what the running ones will still
need.
"""

from __future__ import annotations

from tonnage.simulator.reference.batcher import Batcher
from tonnage.simulator.reference.job import Job, Step
from tonnage.simulator.rules import (
    MOST_NEW,
    RATIO,
    RATIO_DECAY,
    RATIO_LEAST,
    RATIO_START,
    RETRACT_STEPS,
)
from tonnage.spec.deployment import EngineKnobs, Windows


class Sglang(Batcher):
    """Prefill first: a step of prompts alone as long as any can be admitted, else one of decodes.

    A pass over the queue, in order, admits a request where its uncomputed tokens, the output that
    it may still make (at most 4,096 tokens) and one block are less than what remains of the cache:
    the free tokens, less the ratio's share of what each decoding request may still make, less what
    the pass has admitted (prompt in whole blocks, output, one block, what windows hold). The first
    that finds too little ends the pass, and if anyone decodes nobody is looked at again until
    someone leaves.

    With ``chunked_prefill``, ``max_num_tokens`` is ``chunked_prefill_size``: prompts are taken in
    whole blocks while it lasts; one that exceeds what is left is cut to whole blocks and ends the
    pass, and is continued first in the next. Until it is done nobody decodes. Without, it is
    ``max_prefill_tokens``: the pass ends where a prompt reaches what is left of it, but the first
    may be longer than all of it.

    A decode step needs a block for each request whose last one is full. If there are too few,
    requests are retracted until there are enough: fewest output tokens first, among these the
    longest prompt, among these the last that entered. They lose their cache, go to the end of the
    queue, and compute prompt and current output again. The ratio starts at 0.7, falls to 0.098 over
    600 decode steps, is set by what the remaining ones have made when some were retracted, and
    starts again when the engine idles.

    The radix tree is taken page by page. The pages of a prompt can be found when they are computed,
    those of an output when its request ends; what a retracted request has generated is forgotten. A
    request that is looked at reckons with what it does not find, and with the pages that it finds
    as no longer free.

    Left out: mixed chunks, ``ignore_eos`` (a ratio of 1), and the step by which the
    overlapped scheduler lags behind. ``max_prefill_tokens`` 16,384 is never below
    ``chunked_prefill_size``.

    Source: managers/schedule_policy.py (PrefillAdder), scheduler.py, schedule_batch.py
    (retract_decode), mem_cache/prefill_budget.py and mem_cache/radix_cache.py of SGLang 0.5.23.
    """

    def __init__(
        self,
        knobs: EngineKnobs,
        kv_blocks: int,
        max_context: int,
        drafted: int,
        windows: Windows,
    ) -> None:
        """Start empty; slots are not held to the token budget, which is one of prompts."""
        super().__init__(knobs, kv_blocks, max_context, drafted, windows)
        self.slots = knobs.max_batch_size
        self.chunked: Job | None = None
        self.full = False
        self.ratio = RATIO_START

    def never_fits(self, job: Job) -> bool:
        """Also one that leaves no token in addition to itself and a block: it would not be admitted
        to an idle engine.
        """
        block = self.knobs.tokens_per_block
        needed = job.isl + job.osl + self.drafted + self.window_blocks(job) * block
        return super().never_fits(job) or needed + block >= self.kv_blocks * block

    def idle(self) -> None:
        """The ratio starts again."""
        self.ratio = RATIO_START

    def schedule(self) -> Step:
        """Prompts, else decodes."""
        step = Step()
        decoding = [job for job in self.running if job is not self.chunked]
        if self.chunked is not None or not decoding:
            self.full = False
        if not self.full and not self.held:
            self._prefill(step, decoding)
        if not step.work:
            self._decode(step, decoding)
        return self.made(step)

    def filled(self, job: Job) -> None:
        """The pages of a prompt can be found."""
        if self.cache is not None:
            self.cache.name(job, job.computed)

    def leave(self, job: Job) -> None:
        """Reconsider every waiting request, since one has left."""
        if self.cache is not None and job.ended:
            self.cache.name(job, job.computed)
        super().leave(job)
        self.full = False
        if job is self.chunked:
            self.chunked = None

    def _prefill(self, step: Step, decoding: list[Job]) -> None:
        """One pass of admission; all the memory that it reckons with is in tokens times RATIO."""
        size, chunks = self.knobs.tokens_per_block, self.knobs.chunked_prefill
        budget = (
            max(size, self.knobs.max_num_tokens // size * size)
            if chunks
            else self.knobs.max_num_tokens
        )
        room = self.free * size * RATIO - self.ratio * sum(
            min(job.osl - job.generated, MOST_NEW) for job in decoding
        )
        if self.chunked is not None:
            job = self.chunked
            new = min(job.tokens - job.computed, budget)
            self.chunked = job if new < job.tokens - job.computed else None
            paged = self._take(step, job, new)
            budget -= paged
            room -= self._reserve(job, paged)
        while self.waiting and budget > 0 and len(self.running) < self.slots:
            job = self.waiting[0]
            cached = self.find(job)
            new, windows = job.tokens - cached.tokens, self.window_blocks(job) * size
            needed = new + min(job.osl - job.generated, MOST_NEW) + size + windows
            no_longer_free = (len(cached.blocks) - cached.kept + cached.idle) * size
            if (needed + no_longer_free) * RATIO >= room:
                self.full = bool(decoding)
                return
            if not chunks and step.work and self.blocks(new) * size >= budget:
                return
            if chunks and self.blocks(new) * size > budget:
                new, self.chunked = budget, job
            self.enter(self.waiting.popleft(), cached)
            paged = self._take(step, job, new)
            budget -= paged
            room -= self._reserve(job, paged) + (windows + no_longer_free) * RATIO
            if room <= 0:
                self.full = bool(decoding)
                return

    def _reserve(self, job: Job, paged: int) -> int:
        """What a pass sets aside for a request of which it takes so many tokens: its output too,
        unless it is cut.
        """
        output = 0 if job is self.chunked else min(job.osl, MOST_NEW)
        return (paged + self.knobs.tokens_per_block + output) * RATIO

    def _take(self, step: Step, job: Job, new: int) -> int:
        """Allocate for ``new`` tokens of a prompt and add them to the step; what they count as, in
        whole blocks.
        """
        self._allocate(job, new)
        step.add_prompt(job, new)
        return self.blocks(new) * self.knobs.tokens_per_block

    def _allocate(self, job: Job, new: int) -> None:
        self.claim(job, self.lacks(job, job.computed + new + self.guesses(job)))
        self.take(job, job.computed + new)

    def _decode(self, step: Step, decoding: list[Job]) -> None:
        """One token of each, after as many retractions as it takes."""
        if self._lacking(decoding):
            while len(decoding) > 1 and self._lacking(decoding):
                job = min(reversed(decoding), key=lambda job: (job.generated, -job.isl))
                decoding.remove(job)
                self._retract(job)
            generated, total_output = (
                sum(job.generated for job in decoding),
                sum(job.osl for job in decoding),
            )
            self.ratio = min(
                (generated + RETRACT_STEPS * len(decoding)) * RATIO // (total_output + 1), RATIO
            )
        else:
            self.ratio = max(self.ratio - RATIO_DECAY, RATIO_LEAST)
        for job in decoding:
            self._allocate(job, 1)
            step.add(job, 1)

    def _lacking(self, decoding: list[Job]) -> bool:
        return (
            sum(self.lacks(job, job.computed + 1 + self.guesses(job)) for job in decoding)
            > self.free
        )

    def _retract(self, job: Job) -> None:
        self.running.remove(job)
        self.give_back(job)
        job.computed = 0
        job.drafts = False
        job.preemptions += 1
        self.waiting.append(job)
        self.full = False


SCHEDULER = Sglang
