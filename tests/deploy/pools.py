"""Deployments in two pools."""

from __future__ import annotations

from dataclasses import replace

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy.targets import deployed, target_files
from tonnage.plan.plan import Plan


def pooled(engine: str = "vllm-0.32") -> Plan:
    """The dense plan with three prefill and five decode instances in place of its eight."""
    plan = dense(engine)
    (pool,) = plan.candidates[0].pools
    pools = (replace(pool, role="prefill", instances=3), replace(pool, role="decode", instances=5))
    return replace(plan, candidates=(replace(plan.candidates[0], pools=pools),))


def written(target: str, engine: str) -> dict[str, str]:
    return target_files(deployed(pooled(engine), target, checkpoint=DENSE_CHECKPOINT), target)
