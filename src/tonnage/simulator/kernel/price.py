"""What a step costs, compiled from the plain functions of ``perf/step.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tonnage.perf import step
from tonnage.simulator.kernel.compiler import jitable, part
from tonnage.simulator.kernel.shared import transferred
from tonnage.units import PS_PER_S

attention_seconds: Any = jitable()(step.attention_seconds)
tabulated_seconds: Any = jitable()(step.tabulated_seconds)
batch_seconds: Any = jitable()(step.batch_seconds)
context_seconds: Any = jitable()(step.context_seconds)
launched: Any = jitable()(step.launched)
step_seconds: Any = jitable()(step.step_seconds)
verify_seconds: Any = jitable()(step.verify_seconds)
drafted_batch_seconds: Any = jitable()(step.drafted_batch_seconds)
drafted_context_seconds: Any = jitable()(step.drafted_context_seconds)
drafted_step_seconds: Any = jitable()(step.drafted_step_seconds)


@part()
def whole_ps(seconds):
    """Seconds as whole picoseconds, half to even."""
    return np.int64(np.rint(seconds * float(PS_PER_S)))


@part()
def price(m, share):
    """Picoseconds of the step: the decode line when nothing is prefilled, else rounded once;
    ``share`` as in ``step_seconds``.
    """
    step, model, drafter = m.step, m.prices.model, m.prices.drafter
    b = step.decode_sequences
    if step.prefill_tokens == 0:
        if m.prices.a[b] < 0:
            price_decodes(m, b)
        fixed = m.prices.a[b] if share == 1.0 else fixed_ps(m, b, share)
        return transferred(m, fixed + m.prices.c[b] * step.context_tokens)
    p, n, pairs, context = (
        float(step.prefill_tokens),
        float(step.prefill_sequences),
        float(step.pairs_2),
        float(step.context_tokens),
    )
    if m.cfg.drafted > 0:
        drafted, passes = float(m.cfg.drafted), float(m.cfg.passes)
        whole = drafted_step_seconds(
            model, drafter, drafted, passes, p, n, float(b), pairs, context, share
        )
    else:
        whole = step_seconds(model, p, n, float(b), pairs, context, share)
    return transferred(m, whole_ps(whole))


@part()
def fixed_ps(m, b, share):
    """The a(B) of a decode step of ``b``, as ``StepModel.decode_ps``."""
    model, size = m.prices.model, float(b)
    if m.cfg.drafted > 0:
        return whole_ps(
            drafted_batch_seconds(
                model, m.prices.drafter, float(m.cfg.drafted), float(m.cfg.passes), size, share
            )
        )
    return whole_ps(batch_seconds(model, size, size, share))


@part()
def price_decodes(m, b):
    """Note the decode line at a batch of ``b``."""
    model, drafter, size = m.prices.model, m.prices.drafter, float(b)
    m.prices.a[b] = fixed_ps(m, b, 1.0)
    if m.cfg.drafted > 0:
        m.prices.c[b] = whole_ps(drafted_context_seconds(model, drafter, float(m.cfg.passes), size))
    else:
        m.prices.c[b] = whole_ps(context_seconds(model, size))
