"""In-flight batching of TensorRT-LLM."""

from __future__ import annotations

from tonnage.simulator.reference.batcher import Batcher
from tonnage.simulator.reference.job import Job, Step


class TensorRtLlm(Batcher):
    """In-flight batching of TensorRT-LLM under GUARANTEED_NO_EVICT.

    Admission, in order: a slot, and blocks for prompt + maximum output (+ guesses); the first that
    finds none blocks those behind it. A step then takes one token of every running request past its
    prompt, and of the rest, in order, whole prompts while they fit into what is left of
    ``max_num_tokens``; with ``chunked_prefill`` as much of a prompt as is left, in whole blocks
    unless it ends the prompt.

    With ``batch_wait_steps`` the prompts of a step that also has decodes wait, until they have
    waited so many steps in a row, or the step's decodes and the whole lengths of its prompts make
    ``batch_wait_ratio`` of the budget.

    Blocks of a prompt can be found when all of it is computed, those of an output when the request
    ends; the blocks of its life are set aside when it enters and taken as its context grows, so
    that what others left stays longer. Left out: that a request whose first blocks are being
    computed for another one waits for these.

    Source: capacityScheduler.cpp, microBatchScheduler.cpp (FIRST_COME_FIRST_SERVED chunks),
    kvCacheManager.cpp (reuse) and, for the wait, ``_waiting_requests`` of py_executor.py of
    TensorRT-LLM.
    """

    PARTIAL = True

    waited = 0

    def never_fits(self, job: Job) -> bool:
        """Also a prompt beyond the token budget that cannot be cut, or not even into one block."""
        return super().never_fits(job) or (job.isl > self.knobs.max_num_tokens and not self.cuts)

    @property
    def cuts(self) -> bool:
        """Whether a prompt can be cut into chunks: each is whole blocks of what the budget
        leaves.
        """
        return (
            self.knobs.chunked_prefill and self.knobs.max_num_tokens >= self.knobs.tokens_per_block
        )

    def schedule(self) -> Step:
        """Admit, then decodes, then prompts."""
        self._admit()
        step = Step()
        budget = self.knobs.max_num_tokens
        for job in [job for job in self.running if job.decodes]:
            step.add(job, 1)
        budget -= step.decode_sequences * (self.drafted + 1)
        self._fill(
            step,
            [(job, job.isl - job.computed) for job in self.running if job.generated == 0],
            budget,
        )
        step = self._batched(step)
        for job, new in step.work:
            self.take(job, job.computed + new)
        return self.made(step)

    def _fill(self, step: Step, prompts: list[tuple[Job, int]], budget: int) -> None:
        """Add what is left of prompts while the budget lasts: in whole blocks where it cuts one, or
        not at all.
        """
        for job, remaining in prompts:
            new = remaining
            if new > budget:
                if not self.knobs.chunked_prefill:
                    break
                new = budget // self.knobs.tokens_per_block * self.knobs.tokens_per_block
            if new > 0:
                step.add(job, new)
                budget -= new

    def filled(self, job: Job) -> None:
        """A prompt that is complete can be found."""
        if self.cache is not None and job.computed == job.tokens:
            self.cache.name(job, job.computed)

    def leave(self, job: Job) -> None:
        """Prompt and output can be found, their last block in part."""
        if self.cache is not None and job.ended:
            self.cache.name(job, job.computed)
            self.cache.name_part(job, job.computed)
        super().leave(job)

    def _batched(self, step: Step) -> Step:
        """The step, without its prompts if they wait to be batched with others, or are held."""
        decodes = [(job, new) for job, new in step.work if job.decodes]
        if self.held:
            return self._decodes(decodes)
        tokens = sum(job.isl for job, _ in step.work if not job.decodes) + len(decodes) * (
            self.drafted + 1
        )
        wait = (
            decodes
            and len(decodes) < len(step.work)
            and tokens < self.knobs.batch_wait_ratio * self.knobs.max_num_tokens
        )
        if not wait or self.waited >= self.knobs.batch_wait_steps:
            self.waited = 0 if len(decodes) < len(step.work) else self.waited
            return step
        self.waited += 1
        return self._decodes(decodes)

    def _decodes(self, work: list[tuple[Job, int]]) -> Step:
        alone = Step()
        for job, new in work:
            alone.add(job, new)
        return alone

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.slots:
            if not self._admit_first():
                break

    def _admit_first(self) -> bool:
        """Let the first of the queue in if there are blocks for all that it may become; whether
        there are.
        """
        job = self.waiting[0]
        cached, longest = self.find(job), job.isl + job.osl + self.drafted
        if self.lacks(job, longest) - cached.kept + cached.idle > self.free:
            return False
        self.enter(self.waiting.popleft(), cached)
        self.claim(job, self.lacks(job, longest))
        return True


SCHEDULER = TensorRtLlm
