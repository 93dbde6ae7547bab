"""In-flight batching of TensorRT-LLM."""

from __future__ import annotations

from tonnage.simulator.reference.batcher import Batcher, Job, Step


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


SCHEDULER = TensorRtLlm
