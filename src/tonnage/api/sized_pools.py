"""``tonnage size --disaggregated``: how many prefill and decode instances, and in which ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tonnage.api.asked.aims import said_of_choice
from tonnage.api.asked.pools import link_asked
from tonnage.errors import InputError, TonnageError, option
from tonnage.results.pools import SizedPools

if TYPE_CHECKING:
    from collections.abc import Callable

    from tonnage.api.size import Asked
    from tonnage.sizing.question import Question
    from tonnage.spec.deployment import Deployment
    from tonnage.spec.scenario import SearchAsked

MOST = 12
"""Deployments that are looked at: each takes some twenty simulations of both pools."""


def size_disaggregated(asked: Asked, *, progress: Callable[[int, int, str], None] | None = None) -> list[SizedPools]:
    """Every deployment of a question as two pools at its peak.

    Args:
        asked: the question, for one model.
        progress: called with (done, total, name).

    Raises:
        InputError: several models, a job, or more deployments than are looked at.
    """
    from tonnage.sizing.loads.ready import Ready
    from tonnage.sizing.loads.runs import Runs
    from tonnage.sizing.search.search_space import prepare

    if len(asked.questions) > 1:
        raise InputError(f"{option('model')}: several are compared; name one for two pools")
    alone = next((name for name in ("have", "growth") if getattr(asked.scenario, name) is not None), None)
    if alone is not None:
        raise InputError(f"{option(alone)}: is answered for instances that do both; leave out {option(alone)} or {option('disaggregated')}")
    idle = said_of_choice(asked.scenario)
    if idle is not None:
        raise InputError(f"{option(idle)}: chooses among deployments whose instances do both; leave it out for two pools")
    question = asked.questions[0]
    if question.mode == "offline" or question.load == "closed":
        raise InputError(f"{option('disaggregated')}: two pools are sized for an open loop with latency limits")
    if question.sharing is not None:
        raise InputError(f"{option('disaggregated')}: two pools are sized for prompts that share nothing so far; leave out what they share")
    ready = [one.trial.deployment for one in prepare(question, Runs()) if isinstance(one, Ready)]
    ready = [one for one in ready if one.parallelism.pp == 1 and one.knobs.scheduler != "static" and one.speculation is None]
    if len(ready) > MOST:
        said = ", ".join(option(name) for name in ("gpu", "precision", "tp", "engine"))
        raise InputError(f"{option('disaggregated')}: {len(ready)} deployments are more than {MOST}; name fewer of {said}")
    found = []
    for done, deployment in enumerate(ready, 1):
        found.append(_sized(deployment, question, asked.scenario.search))
        if progress is not None:
            progress(done, len(ready), found[-1].deployment)
    return found


def _sized(deployment: Deployment, question: Question, search: SearchAsked) -> SizedPools:
    from tonnage.sizing.fleet.pools import FEWEST, MOST, size_pools
    from tonnage.spec.workload import OpenLoop, Workload

    d, rate = deployment, question.demand.sizing_requests_per_second
    name = f"{d.precision.name.upper()} on {d.parallelism.gpus} × {d.gpu.name}, {d.parallelism}, {d.engine}"
    load = Workload(
        isl=question.isl,
        osl=question.osl,
        pairs=question.pairs,
        arrivals=OpenLoop(rate=rate, process=question.process, cv=question.cv),
        requests=round(min(max(FEWEST, 60 * rate), MOST)),
    )
    try:
        link = link_asked(search.kv_link)
        answer = size_pools(d, load, question.slo, seed=question.seed, link_bytes_s=link, overlap=bool(search.kv_overlap))
    except TonnageError as error:
        if option("ttft") in error.marked:
            raise
        return SizedPools(deployment=name, reason=str(error))
    if answer is None:
        return SizedPools(deployment=name, reason="no number of instances meets the limits")
    pools, seen = answer.pools, answer.summary
    values: dict[str, Any] = {
        "ttft_p95_ms": seen.ttft_ms.p95,
        "itl_p99_ms": seen.itl_ms.p99,
        "tpot_ms": seen.tpot_ms.mean,
        "e2e_p95_ms": seen.e2e_ms.p95,
    }
    together = None if answer.together is None else answer.together * d.parallelism.gpus
    return SizedPools(
        deployment=name, ratio=f"{pools.prefill_instances}:{pools.decode_instances}", gpus=pools.gpus, together_gpus=together, **values
    )
