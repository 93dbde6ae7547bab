"""Static batching: one batch at a time."""

from __future__ import annotations

from tonnage.simulator.reference.batcher import Batcher
from tonnage.simulator.reference.job import Step


class Static(Batcher):
    """One batch at a time; everyone in it is padded to the longest.

    A new batch is made of the first waiting requests when the last one is gone, as many as there
    are slots and as the KV cache holds at the longest prompt + the longest output of the batch for
    each. Its prefill is one step of n sequences of the longest prompt; then every decode step is
    priced with n sequences whose contexts are the longest prompt + the steps taken, also after some
    have ended: their slots are held until the longest ends. A request's last token is at its own
    output length. A request gives its blocks back when it leaves.
    ``max_num_tokens`` and ``chunked_prefill`` play no part, nor does a cap of slots by tokens: such
    an engine is built for its whole batch.
    """

    CACHES = False
    size: int
    longest_prompt: int

    def schedule(self) -> Step:
        """The prefill of a new batch, or the next decode step of the present one."""
        if not self.running:
            self._fill()
            n, prompt = self.size, self.longest_prompt
            work = [(job, job.isl) for job in self.running]
            return Step(
                work=work,
                prefill_tokens=n * prompt,
                prefill_sequences=n,
                pairs_2=n * prompt * prompt,
            )
        so_far = self.running[0].generated
        context = self.size * (self.longest_prompt + so_far)
        return Step(
            work=[(job, 1) for job in self.running],
            decode_sequences=self.size,
            context_tokens=context,
        )

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self.knobs.max_batch_size:
            batch = [*self.running, self.waiting[0]]
            longest = max(job.isl for job in batch) + max(job.osl for job in batch)
            if len(batch) * (self.blocks(longest) + self.windows.of(longest)) > self.kv_blocks:
                break
            self.running.append(self.waiting.popleft())
        self.size = len(self.running)
        self.longest_prompt = max(job.isl for job in self.running)
        longest = self.longest_prompt + max(job.osl for job in self.running)
        for job in self.running:
            job.blocks = self.blocks(longest) + self.windows.of(longest)
            self.free -= job.blocks


SCHEDULER = Static
