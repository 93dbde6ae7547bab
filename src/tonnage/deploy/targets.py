"""The deployment targets, and the choice of one of the plan's deployments for each target."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tonnage.deploy.compose import files as compose
from tonnage.deploy.dynamo import files as dynamo
from tonnage.deploy.kserve import files as kserve
from tonnage.deploy.kubernetes.files import files as kubernetes
from tonnage.deploy.llm_d import files as llm_d
from tonnage.deploy.nim import files as nim
from tonnage.deploy.nim import prepared as nim_prepared
from tonnage.deploy.ray_serve import files as ray_serve
from tonnage.deploy.service import Service, obstacle, service_of
from tonnage.deploy.triton.files import files as triton
from tonnage.deploy.triton.files import prepared as triton_prepared
from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate
from tonnage.plan.plan import Plan
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.precision import find_precision
from tonnage.spec.targets import TARGETS as RUNS
from tonnage.spec.targets import target_lacks, target_runs

TARGETS: dict[str, Callable[[Service], dict[str, str]]] = {
    "compose": compose,
    "kubernetes": kubernetes,
    "kserve": kserve,
    "llm-d": llm_d,
    "dynamo": dynamo,
    "ray-serve": ray_serve,
    "nim": nim,
    "triton": triton,
}
"""Writes the text of each file, by its name; ``spec.targets`` says what a target runs."""

PREPARED = {"nim": nim_prepared, "triton": triton_prepared}
"""Where a target has other checkpoints or metrics than its engines."""

REHEARSED = ("compose", "kubernetes", "kserve", "llm-d")
"""Targets that run an engine as an image with a command, in place of which they run the simulated engine as well."""


class NothingRuns(InputError):
    """No deployment of a plan runs on the target, whose question may have another answer there."""


def target_files(service: Service, target: str) -> dict[str, str]:
    """The files of a deployment for a target that runs it."""
    return TARGETS[target](service)


def deployed(plan: Plan, target: str, *, checkpoint: str | None = None, drafter: str | None = None, simulated: bool = False) -> Service:
    """The deployment that a target runs: the plan's choice, or the nearest other deployment of the plan.

    Nearest means, in this order: the same GPU, the same number format, the first in the plan. With ``checkpoint``, only deployments in the
    choice's number format count, because the checkpoint is in that format. With ``simulated`` the simulated engine runs in its place.

    Raises:
        InputError: unknown target, one that runs no simulated engine, or a plan without a choice.
        NothingRuns: no deployment of the plan runs on the target.
    """
    target_runs(target)
    choice = plan.choice
    if choice is None:
        return service_of(plan)
    if simulated and (target not in REHEARSED or len(choice.pools) > 1):
        what = "two pools" if len(choice.pools) > 1 else target
        raise InputError(
            f"{option('simulated')}: no simulated engine is written for {what}; it runs plans of one pool on {', '.join(REHEARSED)}"
        )
    why = _why_not(target, choice)
    if not why:
        return _loaded(target, service_of(plan, checkpoint=checkpoint, drafter=drafter, simulated=simulated))
    first = choice.pools[0]

    def distance(other: Candidate) -> tuple[bool, bool]:
        return other.pools[0].gpu != first.gpu, not _same_format(other, choice)

    others = [one for one in plan.candidates if not _why_not(target, one) and (checkpoint is None or _same_format(one, choice))]
    if not others and len(choice.pools) > 1:
        able = " or ".join(f"{option('target')} {name}" for name, one in RUNS.items() if one.pools)
        raise NothingRuns(f"{option('target')}: {why}; write {able}, or size again without {option('disaggregated')}")
    if not others:
        raise NothingRuns(
            f"{option('target')}: {why}, and no other deployment of the plan runs on {target}; "
            f"size again with {option('deploy_on')} {target}, which tries only what it runs"
        )
    nearest = min(others, key=distance)
    taken = service_of(plan, checkpoint=checkpoint, drafter=drafter, candidate=nearest, why=why, simulated=simulated)
    return _loaded(target, taken)


def _loaded(target: str, service: Service) -> Service:
    return PREPARED[target](service) if target in PREPARED else service


def _same_format(first: Candidate, second: Candidate) -> bool:
    return find_precision(first.pools[0].precision).weights == find_precision(second.pools[0].precision).weights


def _why_not(target: str, candidate: Candidate) -> str:
    """The reason why a target cannot run a deployment, as a clause; empty if it can."""
    if len(candidate.pools) > 1 and not RUNS[target].pools:
        return f"{target} does not run two pools, prefill and decode"
    pool = candidate.pools[0]
    engine, gpu = find_engine(pool.engine_preset or pool.engine), find_gpu(pool.gpu)
    return obstacle(candidate) or target_lacks(
        target, engine=engine, gpu=gpu, split=pool.parallelism, gpus_per_system=pool.gpus_per_system, precision=pool.precision
    )


# A folder that is written as a whole or not at all.


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder that does not exist yet, or is empty.

    They are written next to it first and moved there when all of them stand, so that a failure leaves nothing behind.

    Args:
        folder: where to.
        files: the text of each by its path inside the folder.

    Raises:
        InputError: there is something at that place already, or it cannot be written.
    """
    where = option("output")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{where}: {folder} is there already and not an empty folder; name a new one")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as fault:
        raise InputError(f"{where}: {folder} cannot be written: {fault.strerror}") from fault
    try:
        for name, text in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        os.replace(beside, folder)
    except OSError as fault:
        raise InputError(f"{where}: {folder} cannot be written: {fault.strerror}") from fault
    finally:
        shutil.rmtree(beside, ignore_errors=True)
