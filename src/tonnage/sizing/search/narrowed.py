"""A question for one deployment alone: the same traffic and limits, and nothing left to search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tonnage.sizing.search.search import Search

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.sizing.loads.runs import Runs
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.contender import Sized


def alone(question: Question, candidate: Candidate, runs: Runs) -> Sized | None:
    """The deployment of a candidate, sized for the question by itself; None where it does not meet the limits."""
    return Search(question=narrowed(question, candidate), runs=runs, rows=False).answer().best


def narrowed(question: Question, candidate: Candidate) -> Question:
    """The question for the deployment of a candidate, with its knobs as they are.

    A candidate with speculative decoding keeps the plain one beside it.
    """
    split, knobs = candidate.parallelism, candidate.knobs
    plainly = candidate.engine == candidate.engine_preset
    asked = replace(
        question,
        gpus=tuple(gpu for gpu in question.gpus if gpu.name == candidate.gpu),
        precisions=tuple(one for one in question.precisions if one.name == candidate.precision),
        tps=(split.tp,),
        pps=(split.pp,),
        dps=(split.dp,),
        eps=(split.ep,),
        engines=(candidate.engine_preset,),
        speculation=None if plainly else question.speculation,
        tune=False,
        have=(),
        growth_per_month=None,
    )
    if knobs is None:
        return asked
    return replace(
        asked,
        max_batch_sizes=(knobs.max_batch_size,),
        max_num_tokens=(knobs.max_num_tokens,),
        chunked_prefill=knobs.chunked_prefill,
        stream_interval=knobs.stream_interval,
        front_ends=knobs.front_ends,
    )
