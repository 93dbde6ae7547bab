"""A plan in a file, and its choice made again from its names and knobs, ready to be simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from tonnage.api.question.deployment import deployment_of, in_hosts, joined
from tonnage.api.question.sessions import asked_tiers, tiers_below
from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate, Pool
from tonnage.plan.plan import Plan
from tonnage.simulator.tiers import Tier
from tonnage.spec.catalog import find_system
from tonnage.spec.deployment import Deployment
from tonnage.spec.hardware import FABRICS
from tonnage.spec.kv_tiers import OFF, USUAL


def only_plan(path: str | Path) -> Plan:
    """The one plan of a file that ``tonnage size --output`` wrote. Raises InputError: no plan, or
    several.
    """
    from tonnage.report.plans.plan_document import read_plans

    plans = read_plans(path)
    if len(plans) > 1:
        raise InputError(
            f"{option('plan')}: {path} compares {len(plans)} plans; give the file of one"
        )
    return plans[0]


def chosen(path: str | Path, plan: Plan, lack: str) -> Candidate:
    """The choice of a plan. Raises InputError: none, or separate pools, which lack something."""
    if plan.choice is None:
        raise InputError(
            f"{option('plan')}: {path} chose nothing, because no deployment met its limits"
        )
    if len(plan.choice.pools) > 1:
        raise InputError(
            f"{option('plan')}: {path} chose separate pools for prefill and decode, {lack}"
        )
    return plan.choice


# What a plan calls the fitted step times; "" where it rests on measured points
AS_SHIPPED = ("", "fitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """Instances that can be simulated."""

    deployment: Deployment
    instances: int  # how many there are, spare ones included
    gpus_per_system: int  # GPUs in one of the systems that they are in
    prompt_tokens: int  # mean prompt that is expected, which pipeline stages need
    tiers: tuple[Tier, ...] = ()  # memory below the KV cache of each attention rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Instances):
    """The choice of a plan, ready to be simulated: the plan, and the instances that it chose by
    their names.
    """

    plan: Plan
    pool: Pool


def planned(path: str | Path, *, coefficients: str | Path | None = None) -> Planned:
    """The choice of the plan in a file that ``tonnage size --output`` wrote, by its own calibration
    or that of ``coefficients``.

    Raises InputError: no plan, one that chose nothing, or one whose choice cannot be made again
    from its names.
    """
    plan = only_plan(path)
    choice = chosen(path, plan, "which are not simulated together yet")
    if plan.scenario.step_model not in AS_SHIPPED:
        raise InputError(
            f"{option('plan')}: {path} was made with the step times of {plan.scenario.step_model};"
            " make it again with the fitted ones"
        )
    pool = choice.pool
    deployment = _deployment(plan, pool, coefficients)
    kv_tiers = None if plan.asked is None else plan.asked.search.kv_tiers
    # as the plan was sized with them
    tiers = asked_tiers(kv_tiers, OFF if plan.sessions is None else USUAL)
    return Planned(
        plan=plan,
        pool=pool,
        deployment=deployment,
        instances=pool.instances,
        gpus_per_system=pool.gpus_per_system,
        prompt_tokens=math.ceil(plan.scenario.mean_isl),
        tiers=() if tiers.off else tiers_below(tiers, deployment, find_system(pool.system)),
    )


def _deployment(plan: Plan, pool: Pool, coefficients: str | Path | None) -> Deployment:
    split = pool.parallelism
    engine, _, drafter = pool.engine.partition(" + ")
    deployment = deployment_of(
        model=pool.model,
        gpu=pool.gpu,
        precision=pool.precision,
        tp=split.tp,
        dp=split.dp,
        ep=split.ep,
        engine=pool.engine_preset or engine,
        coefficients=coefficients,
        speculation=plan.scenario.speculation if drafter else None,
    )
    calibration = plan.provenance.calibration if coefficients is None else deployment.calibration
    if plan.asked is not None:
        search = plan.asked.search
        gpus = joined(
            (deployment.gpu,), None if deployment.gpu.link in FABRICS else search.link, split.tp
        )
        deployment = replace(deployment, gpu=in_hosts(gpus, search.host_speed, None)[0])
    if (limit := None if plan.choice is None else plan.choice.gpu_limit) is not None:
        deployment = replace(
            deployment,
            gpu=replace(
                deployment.gpu,
                power_cap_w=limit.cap_watts,
                clock=1.0 if limit.cap_watts else limit.clock,
            ),
        )
    return replace(
        deployment, parallelism=split, knobs=pool.knobs or deployment.knobs, calibration=calibration
    )
