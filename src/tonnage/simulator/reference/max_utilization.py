"""In-flight batching of TensorRT-LLM under MAX_UTILIZATION."""

from __future__ import annotations

from tonnage.simulator.reference.job import Job, Step
from tonnage.simulator.reference.tensorrt_llm import TensorRtLlm


class MaxUtilization(TensorRtLlm):
    """The capacity policy of TensorRT-LLM that admits as many as there are blocks for now, and
    pauses some when blocks run out.

    Running requests first, in the order they entered: each takes the block that its next token
    needs. One that finds none pauses the request that entered last, which loses its cache, goes to
    the front of the queue, and later computes prompt and current output again; a request may pause
    itself. Then, if nobody was paused, waiting requests enter while there are slots and blocks for
    their prompts and the tokens that they have. What a step computes of them is put together as
    under GUARANTEED_NO_EVICT: a token of each that decodes, and of the rest, in order, whole
    prompts while they fit into the token budget, or chunks in whole blocks. Prompts do not wait to
    be batched with others, and there is no prefix cache.

    Source: capacityScheduler.cpp (MaxUtilizationScheduler) of TensorRT-LLM; its lookahead of two
    steps is that of pipelines.
    """

    CACHES = False

    def never_fits(self, job: Job) -> bool:
        """Also prompt and output beyond a budget that cannot be cut: a paused request computes both
        again.
        """
        return super().never_fits(job) or (
            not self.cuts and job.isl + job.osl > self.knobs.max_num_tokens
        )

    def schedule(self) -> Step:
        """Blocks for decoding requests, then admission, then decodes and prompts."""
        if not self._grow():
            self._enter()
        step = Step()
        budget = self.knobs.max_num_tokens
        for job in [job for job in self.running if job.drafts]:
            step.add(job, 1)
        budget -= len(step.work) * (self.drafted + 1)
        self._fill(
            step,
            [(job, job.tokens - job.computed) for job in self.running if not job.drafts],
            budget,
        )
        return self.made(step)

    def _grow(self) -> bool:
        """Give decoding requests the blocks of their next tokens; whether anyone was paused."""
        paused = False
        for job in list(self.running):
            if job not in self.running:
                break
            if not job.drafts:
                continue
            need = max(self.lacks(job, job.tokens + self.drafted), 0)
            while need > self.free and job in self.running:
                self._pause(self.running.pop())
                paused = True
            if job not in self.running:
                break
            self.free -= need
            job.blocks += need
        return paused

    def _enter(self) -> None:
        while self.waiting and len(self.running) < self.slots:
            job = self.waiting[0]
            need = self.lacks(job, job.tokens)
            if need > self.free:
                break
            self.running.append(self.waiting.popleft())
            self.free -= need
            job.blocks += need

    def _pause(self, job: Job) -> None:
        self.give_back(job)
        job.computed = 0
        job.drafts = False
        job.preemptions += 1
        self.queue_again(job)


SCHEDULER = MaxUtilization
