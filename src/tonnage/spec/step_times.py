"""Step times from outside: a table of a user's own measurements, or the name of another step
model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment

FITTED, KERNELS, AICONFIGURATOR = "fitted", "kernels", "aiconfigurator"

OWNERS = ("model", "gpu", "precision", "tp", "engine", "dp", "ep")  # What says whose step one is

Owner = tuple[str, ...]  # Values of ``OWNERS``; empty text where the file has no such column


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """One engine step and how long it took."""

    # prefill_tokens, prefill_sequences: new prompt tokens, and the prompts that they belong to
    prefill_tokens: int
    prefill_sequences: int
    past_tokens: int  # tokens of each of these prompts that were computed before
    # decode_sequences, context_tokens: sequences that decode, and the sum of their contexts
    decode_sequences: int
    context_tokens: int
    seconds: float  # duration

    @property
    def tokens(self) -> int:
        """Tokens that the step computes."""
        return self.prefill_tokens + self.decode_sequences

    @property
    def attention_pairs_2(self) -> float:
        """Twice the pairs of a new prompt token and a token it attends to; assumes equal
        prompts.
        """
        if self.prefill_tokens == 0:
            return 0.0
        return self.prefill_tokens * (
            2 * self.past_tokens + self.prefill_tokens / self.prefill_sequences
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSource:
    """The source of a deployment's step times where these are not the fitted terms."""

    name: str  # ``KERNELS``, ``AICONFIGURATOR``, or the file
    # the steps of the file by their owner; empty for the others
    table: tuple[tuple[Owner, tuple[TimedStep, ...]], ...] = ()

    @property
    def names_owners(self) -> bool:
        """Whether the file says of every step which deployment it is of."""
        return all(any(owner) for owner, _ in self.table)

    def steps_of(self, deployment: Deployment) -> tuple[TimedStep, ...]:
        """The steps that were measured on a deployment. Raises InputError: the file has none."""
        mine = owner_of(deployment)
        timed_steps = [
            step
            for owner, steps in self.table
            if all(a in ("", b, b.partition("+kv-")[0]) for a, b in zip(owner, mine, strict=True))
            for step in steps
        ]
        if not timed_steps:
            raise InputError(
                f"{option('step_model')}: {self.name} has no step times of {', '.join(mine[:3])},"
                f" TP {mine[3]}, {mine[4]}"
            )
        return tuple(timed_steps)


def owner_of(deployment: Deployment) -> Owner:
    """Values of ``OWNERS`` of a deployment."""
    d, p = deployment, deployment.parallelism
    return (d.model.name, d.gpu.name, d.precision.name, str(p.tp), d.engine, str(p.dp), str(p.ep))
