"""In-flight batching with one prompt at a time."""

from __future__ import annotations

from tonnage.simulator.reference.tensorrt_llm import TensorRtLlm


class OnePrefill(TensorRtLlm):
    """The batcher that NVIDIA's course calls one prefill: at most one request computes its prompt.

    The first waiting request enters when nobody computes a prompt, a slot is free, and there are
    blocks for its prompt + maximum output (+ guesses). All else is as in TensorRT-LLM: decodes come
    first, and the prompt has what they leave of the token budget, whole or, with
    ``chunked_prefill``, in whole blocks. So decoding requests wait for one prompt a step at most,
    and those who come together have their first tokens one after another.
    """

    def _admit(self) -> None:
        if (
            self.waiting
            and len(self.running) < self.slots
            and all(job.generated > 0 for job in self.running)
        ):
            self._admit_first()


SCHEDULER = OnePrefill
