"""What several systems share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.deploy.plans import dense, started
from tonnage.deploy.service import Service
from tonnage.deploy.targets import deployed, target_files
from tonnage.plan.plan import Plan
from tonnage.spec.deployment import Parallelism


def changed(engine: str, *, split: Parallelism | None = None, **more: Any) -> Plan:
    """The dense plan on other GPUs, or with instances of pipelines of whole systems."""
    plan = dense(engine)
    pool = plan.candidates[0].pool
    assert pool.knobs is not None
    if split is not None:
        command = started(engine, pool.model, split, pool.knobs, kv_8bit=False)
        more = (
            {"tp": split.tp, "pp": split.pp, "instances": 2, "systems": 2 * split.pp}
            | more
            | command
        )
    return replace(plan, candidates=(replace(plan.candidates[0], pools=(replace(pool, **more),)),))


def written(engine: str, target: str, **more: Any) -> tuple[Service, dict[str, str]]:
    service = deployed(changed(engine, **more), target, checkpoint="my/own")
    return service, target_files(service, target)


RACK = {"gpu": "gb200-186gb", "system": "gb200-nvl72", "gpus_per_system": 72}
