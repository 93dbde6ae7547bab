"""The scheduler of vLLM V1: one token budget a step, and pre-emption where blocks run out."""

from __future__ import annotations

from tonnage.simulator.reference.batcher import Batcher
from tonnage.simulator.reference.job import Job, Step


class Vllm(Batcher):
    """The scheduler of vLLM V1: one token budget a step, blocks allocated as they are needed.

    Running requests first, in the order they entered, each with the tokens it lacks, as far as the
    budget goes. One that finds no free block takes those of the request that entered last, which is
    pre-empted: it loses its cache, goes to the front of the queue and later computes prompt and
    output again until there; a request may thus pre-empt itself, and the pass ends. Then, if nobody
    was pre-empted, waiting requests enter while slots and budget last and the free blocks hold all
    their tokens (``scheduler_reserve_full_isl``), although only those of their first chunk are
    taken. Without ``chunked_prefill`` a prompt waits until it fits the budget whole.

    With priorities the queue goes by class and then by the time of sending, also for pre-empted
    requests, and the one that is pre-empted is the last of the running ones in this order, wherever
    it is; what the step was to compute of it is left out again, and others have its budget. (With
    deadlines in place of classes the rule is the same, and our own.) Nobody who runs is pre-empted
    for one that waits.

    With ``long_prefill_token_threshold`` a request computes at most so many tokens in a step,
    unless it is the only one that is there: so several prompts are computed side by side, also
    without ``chunked_prefill``.

    Blocks can be found from the moment at which the step is put together that fills them, so also
    by who enters in that step; a request that was pre-empted finds its own as long as nobody has
    needed their memory.

    Source: vllm/v1/core/sched/scheduler.py and kv_cache_manager.py of vLLM 0.32.0.
    """

    def never_fits(self, job: Job) -> bool:
        """Also, without chunks, prompt + output beyond the budget: vLLM asks for
        max_num_batched_tokens ≥ max_model_len.
        """
        whole = not self.knobs.chunked_prefill and job.isl + job.osl > self.knobs.max_num_tokens
        return super().never_fits(job) or whole

    def schedule(self) -> Step:
        """Running ones, then waiting ones."""
        step = Step()
        budget, preempted = self._continue(step, self.knobs.max_num_tokens)
        if not preempted:
            self._admit(step, budget)
        return self.made(step)

    def _continue(self, step: Step, budget: int) -> tuple[int, bool]:
        """Schedule running requests; the budget left, and whether anyone was pre-empted."""
        preempted = False
        for job in list(self.running):
            if budget == 0:
                break
            if job not in self.running:
                continue
            new = min(self._cut(job.tokens - job.computed), budget)
            guesses = self.guesses(job)
            need = self.lacks(job, job.computed + new + guesses)
            while need > self.free and job in self.running:
                victim = max(self.running, key=self.rank) if self.ranked else self.running[-1]
                taken_back = step.take_back(victim)
                budget += taken_back + self.guesses(victim) if taken_back else 0
                self._preempt(victim)
                preempted = True
            if job not in self.running:
                break
            self._compute(step, job, new, need)
            budget -= new + guesses
        return budget, preempted

    def _admit(self, step: Step, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.slots:
            job = self.waiting[0]
            cached = self.find(job)
            if (
                not self.knobs.chunked_prefill
                and self._cut(job.tokens - job.computed - cached.tokens) > budget
            ):
                break
            if self.lacks(job, job.tokens) - cached.kept + cached.idle > self.free:
                break
            self.enter(self.waiting.popleft(), cached)
            new = min(self._cut(job.tokens - job.computed), budget)
            self._compute(step, job, new, self.lacks(job, job.computed + new))
            budget -= new

    def _cut(self, tokens: int) -> int:
        """New tokens of a request in a step that lacks so many."""
        longest = self.knobs.long_prefill_token_threshold
        return (
            longest
            if 0 < longest < tokens and len(self.running) + len(self.waiting) > 1
            else tokens
        )

    def _compute(self, step: Step, job: Job, new: int, blocks: int) -> None:
        """Take so many blocks, and compute so many tokens."""
        self.claim(job, blocks)
        self.take(job, job.computed + new)
        if self.cache is not None:
            self.cache.name(job, job.computed + new)
        step.add(job, new)

    def give_back(self, job: Job) -> None:
        """Blocks that right guesses have filled can be found from now on, too."""
        if self.cache is not None:
            self.cache.name(job, job.computed)
        super().give_back(job)

    def _preempt(self, job: Job) -> None:
        self.running.remove(job)
        self.give_back(job)
        job.computed = 0
        job.drafts = False
        job.preemptions += 1
        self.queue_again(job)


SCHEDULER = Vllm
