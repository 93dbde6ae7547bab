"""A request on its way through an engine, and what one step computes of the present requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from tonnage.perf.step import StepModel
from tonnage.results.requests import UNFINISHED
from tonnage.units import to_ps

NEVER = 1 << 62
"""An instant that does not come."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One request on its way; times in picoseconds, -1 where it did not happen."""

    id: int
    isl: int
    osl: int
    due: int
    priority: int = 0
    deadline: int = NEVER
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0
    first_token: int = -1
    last_token: int = -1
    admitted: int = -1
    first_step: int = -1
    last_step: int = -1
    status: int = UNFINISHED
    handed_on: bool = False
    """Whether it came with its KV cache and a token, which its client does not have yet."""
    drafts: bool = False
    """Whether its decodes come with guesses: it has had a token since it last entered."""
    cached: int = 0
    """Tokens that it found in the prefix cache when it first entered."""
    held: list[int] = field(default_factory=list)
    """With a prefix cache: the blocks of its context that it has taken …"""
    named: int = 0
    """… how many of them can be found by others …"""
    windows: list[int] = field(default_factory=list)
    """… and the blocks of its sliding windows."""

    @property
    def tokens(self) -> int:
        """Prompt and current output."""
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
    """What one forward pass computes."""

    # requests with the new tokens of each
    work: list[tuple[Job, int]] = field(default_factory=list)
    # prefill_tokens, prefill_sequences, decode_sequences, pairs_2, context_tokens: P, n, B, 2A and
    # C of ``step_seconds``
    prefill_tokens: int = 0
    prefill_sequences: int = 0
    decode_sequences: int = 0
    pairs_2: int = 0
    context_tokens: int = 0
    # transfer_ps, overlap_ps: time of the transfers from tiers below the KV cache for which it
    # waits, and with which it overlaps
    transfer_ps: int = 0
    overlap_ps: int = 0

    def add(self, job: Job, new: int) -> None:
        """Compute ``new`` tokens of a request."""
        if not job.decodes:
            self.add_prompt(job, new)
            return
        self.work.append((job, new))
        self.decode_sequences += 1
        self.context_tokens += job.tokens

    def take_back(self, job: Job) -> int:
        """Leave out what was to be computed of a request, which is as it was when it was added; how
        many tokens, 0 if there were none.
        """
        new = next((tokens for candidate, tokens in self.work if candidate is job), 0)
        if new == 0:
            return 0
        self.work = [(candidate, tokens) for candidate, tokens in self.work if candidate is not job]
        if job.decodes:
            self.decode_sequences -= 1
            self.context_tokens -= job.tokens
        else:
            self.prefill_tokens -= new
            self.prefill_sequences -= 1
            self.pairs_2 -= new * (2 * job.computed + new)
        return new

    def add_prompt(self, job: Job, new: int) -> None:
        """Compute ``new`` tokens of a request as a prompt, also where only its last token is
        missing.
        """
        self.work.append((job, new))
        self.prefill_tokens += new
        self.prefill_sequences += 1
        self.pairs_2 += new * (2 * job.computed + new)


# What steps cost, in whole picoseconds.


class Prices:
    """Picoseconds of steps."""

    def __init__(self, step: StepModel, max_batch_size: int) -> None:
        """Round the decode line once."""
        self.step = step
        a, c = step.decode_line(max_batch_size)
        self.a, self.c = [int(v) for v in a], [int(v) for v in c]

    def of(self, step: Step, share: float = 1.0) -> int:
        """What a step costs; ``share`` is that of ``step_seconds``."""
        p, n, b = step.prefill_tokens, step.prefill_sequences, step.decode_sequences
        if p == 0:
            fixed = self.a[b] if share == 1.0 else self.step.decode_ps(b, share)
            computed = fixed + self.c[b] * step.context_tokens
        else:
            computed = to_ps(
                float(self.step.seconds(p, n, b, step.pairs_2, step.context_tokens, share))
            )
        return max(computed, step.overlap_ps) + step.transfer_ps
