"""Why the chosen point is where it is: which term of the step binds, which limit binds, where the memory goes.

The terms are the mean over the engine steps of a simulated run at the highest load inside the limits, each
step taken apart by the formula that estimated it (``perf/vectorised_step.py``), so that the terms add up to the step. Of two pools they
are the steps of the pool that ends the load.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.plan.limit import SATURATION, THROUGHPUT, LimitUse, limit_of
from tonnage.plan.plan import Explanation, StepTerm
from tonnage.simulator.steps import CONTEXT_TOKENS, DECODE_SEQUENCES, DURATION, PAIRS_2, PREFILL_SEQUENCES, PREFILL_TOKENS
from tonnage.sizing.loads.limits import statistic_s
from tonnage.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.perf.step import Drafting
    from tonnage.sizing.loads.instance import Instance
    from tonnage.sizing.search.contender import Sized

MOST_STEPS = 50_000
"""Most engine steps that the mean is taken over."""


def explained(best: Sized) -> Explanation:
    """The chosen deployment taken apart."""
    capacity = best.as_predicted
    instance, rate, steps = best.contender.recorded(capacity, MOST_STEPS)
    steps = steps[len(steps) // 5 :]
    mean = float(steps[:, DURATION].mean()) / PS_PER_S
    drafting = instance.step.drafting
    terms = {name: float(value.mean()) for name, value in step_terms(instance.step.coefficients, steps, drafting).items()}
    if drafting is not None:
        terms["drafter"] = mean - sum(terms.values())
    parts = tuple(
        StepTerm(term=name, seconds=seconds, share=seconds / mean) for name, seconds in sorted(terms.items(), key=lambda item: -item[1])
    )
    return Explanation(
        requests_per_second_per_instance=capacity.rate,
        step_seconds=mean,
        prefill_tokens=float(steps[:, PREFILL_TOKENS].mean()),
        decode_sequences=float(steps[:, DECODE_SEQUENCES].mean()),
        context_tokens=float(steps[:, CONTEXT_TOKENS].mean()),
        terms=parts,
        binds=parts[0].term,
        limits=_limits(best),
        binding_limit=capacity.binds or SATURATION,
        front_end_busy=0.0 if capacity.binds == THROUGHPUT else _front_end_busy(instance, rate),
    )


def _front_end_busy(instance: Instance, rate: float) -> float:
    """Sequences that the engine gives tokens to, each second, times what the front end takes for one."""
    messages = rate * instance.traffic.osl.mean / instance.step.tokens_per_step
    return messages * instance.step.stream_s / instance.deployment.parallelism.dp


def step_terms(c: NDArray[np.float64], steps: NDArray[np.int64], drafting: Drafting | None = None) -> dict[str, NDArray[np.float64]]:
    """Seconds per term of each step; they sum to ``step_seconds`` of it, with drafts to what is not the drafter's.

    Args:
        c: coefficient array of the deployment.
        steps: rows of ``StepRecord.steps``.
        drafting: speculative decoding; None without.
    """
    from tonnage.perf.vectorised_step import Steps, parts

    columns = steps.T.astype(float)
    contents = Steps(
        prefill_tokens=columns[PREFILL_TOKENS],
        prefill_sequences=columns[PREFILL_SEQUENCES],
        decode_sequences=columns[DECODE_SEQUENCES],
        attention_pairs_2=columns[PAIRS_2],
        context_tokens=columns[CONTEXT_TOKENS],
    )
    return parts(c, contents, drafting)


def _limits(best: Sized) -> tuple[LimitUse, ...]:
    summary = best.as_predicted.summary
    found = []
    for limit in best.contender.question.limits:
        value = statistic_s(summary, limit)
        known = not math.isnan(value)
        found.append(
            LimitUse(
                limit=limit_of(limit),
                value_ms=1e3 * value if known else None,
                used=value / limit.seconds if known else None,
            )
        )
    return tuple(found)
