"""Several use cases on one fleet, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.numbers import counted, number
from tonnage.report.wording.deployments import deployment_text
from tonnage.report.wording.limits import breach_text, limit_text

if TYPE_CHECKING:
    from tonnage.plan.limit import LimitUse
    from tonnage.plan.use_cases import Arrangement, NotShared, UseCasePool, UseCases

NOBODY = "no arrangement is possible"


def systems_text(found: Arrangement) -> str:
    """Such as "2 × dgx-h100"."""
    return " + ".join(f"{each.systems:,} × {each.system}" for each in found.systems)


def pool_text(pool: UseCasePool) -> str:
    """Such as "3 instances of FP8, TP 1, vllm-0.32 on h100-sxm-80gb for chat and rag"."""
    served = " and ".join(case.name for case in pool.cases)
    of = deployment_text(pool)
    return f"{counted(pool.instances, 'instance')} ({number(pool.instances_exact)} exactly) of {of}" + (f" for {served}" if served else "")


def arrangement_text(found: Arrangement) -> str:
    """The systems, and what runs on them, in one line."""
    return f"{systems_text(found)} ({counted(found.gpus_in_use, 'GPU')} of {found.gpus:,} in use): {'; '.join(map(pool_text, found.pools))}"


def use_text(use: LimitUse) -> str:
    """A limit with its value, such as "TTFT p95 ≤ 500 ms: 329 ms"."""
    value = "nothing to measure" if use.value_ms is None else f"{number(use.value_ms)} ms"
    return f"{limit_text(use.limit)}: {value}"


def not_shared_text(why: NotShared) -> str:
    """Why one pool for all is not chosen, in one clause."""
    if why.code == "models":
        return f"{why.case} asks for another model, and an instance serves one"
    if why.code == "demand":
        return f"{why.case} is a job, a closed loop or a replayed trace, which is not simulated beside drawn arrivals"
    if why.code == "more-gpus":
        return f"one pool for all would take {why.gpus:,} GPUs in place of {why.separate_gpus:,}"
    if why.code == "no-deployment":
        who = f" of {why.case}" if why.case else " of all"
        return f"no deployment that was tried for all of them meets the limits{who}"
    broken = "the load is too high" if why.breach is None else f"{why.case} has {breach_text(why.breach)}"
    return f"in one pool on the {why.gpus:,} GPUs of the separate ones, {broken}"


def answer_text(found: UseCases) -> str:
    """What is chosen, in one line."""
    if found.choice is None:
        return f"{NOBODY}: {'' if found.not_shared is None else not_shared_text(found.not_shared)}".rstrip(": ")
    how = "one pool for all" if found.chosen == "shared" else "a pool for each"
    return f"{arrangement_text(found.choice)}; {how}"
