"""The deployment targets, and the choice of one of the plan's deployments for each target."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tonnage.deploy.checkpoint import Loading
from tonnage.deploy.compose import files as compose
from tonnage.deploy.dynamo import files as dynamo
from tonnage.deploy.dynamo import lacks as dynamo_lacks
from tonnage.deploy.kserve import files as kserve
from tonnage.deploy.kubernetes.files import files as kubernetes
from tonnage.deploy.llm_d import files as llm_d
from tonnage.deploy.nim import files as nim
from tonnage.deploy.nim import lacks as nim_lacks
from tonnage.deploy.nim import loads as nim_loads
from tonnage.deploy.ray_serve import files as ray_serve
from tonnage.deploy.ray_serve import lacks as ray_serve_lacks
from tonnage.deploy.service import Service, obstacle, service_of
from tonnage.deploy.triton.files import files as triton
from tonnage.deploy.triton.files import lacks as triton_lacks
from tonnage.deploy.triton.files import loads as triton_loads
from tonnage.errors import InputError, option
from tonnage.formats.engine_metrics import SIGNALS
from tonnage.plan.candidate import Candidate
from tonnage.plan.plan import Plan
from tonnage.plan.pool import Pool
from tonnage.spec.catalog import find_engine
from tonnage.spec.precision import find_precision


def _nothing(pool: Pool, family: str) -> str:
    """No limits besides those of every target."""
    return ""


def _as_elsewhere(service: Service) -> Loading:
    """The same checkpoint as on every other target."""
    return service.loading


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A deployment target.

    Attributes:
        files: writes the text of each file, by name.
        engines: supported engine families.
        lacks: reason why a pool of a supported engine cannot run there, as a clause; empty if it can.
        loads: checkpoint of the engine on this target.
        pools: whether it runs prefill and decode in two pools.
    """

    files: Callable[[Service], dict[str, str]]
    engines: tuple[str, ...] = tuple(SIGNALS)
    lacks: Callable[[Pool, str], str] = _nothing
    loads: Callable[[Service], Loading] = _as_elsewhere
    pools: bool = False


TARGETS: dict[str, Target] = {
    "compose": Target(files=compose),
    "kubernetes": Target(files=kubernetes),
    "kserve": Target(files=kserve),
    "llm-d": Target(files=llm_d, engines=("vllm", "sglang"), pools=True),
    "dynamo": Target(files=dynamo, lacks=dynamo_lacks, pools=True),
    "ray-serve": Target(files=ray_serve, engines=("vllm",), lacks=ray_serve_lacks),
    "nim": Target(files=nim, engines=("vllm", "sglang"), lacks=nim_lacks, loads=nim_loads),
    "triton": Target(files=triton, engines=("vllm", "tensorrt-llm"), lacks=triton_lacks, loads=triton_loads),
}


def target_files(service: Service, target: str) -> dict[str, str]:
    """The files of a deployment for a target that runs it.

    Raises:
        InputError: no such target.
    """
    return find_target(target).files(service)


def find_target(name: str) -> Target:
    """The target of that name.

    Raises:
        InputError: there is none.
    """
    if name not in TARGETS:
        raise InputError(f"{option('target')}: no files are written for '{name}'; there are {', '.join(TARGETS)}")
    return TARGETS[name]


def deployed(plan: Plan, target: str, *, checkpoint: str | None = None, drafter: str | None = None) -> Service:
    """The deployment that a target runs: the plan's choice, or the nearest other deployment of the plan.

    Nearest means, in this order: the same GPU, the same number format, the first in the plan. With ``checkpoint``, only deployments in the
    choice's number format count, because the checkpoint is in that format.

    Raises:
        InputError: unknown target, a plan without a choice or with two pools that the target does not run, or no deployment of the plan
            that it runs.
    """
    runs, choice = find_target(target), plan.choice
    if choice is None:
        return service_of(plan)
    if len(choice.pools) > 1 and not runs.pools:
        able = " or ".join(f"{option('target')} {name}" for name, one in TARGETS.items() if one.pools)
        raise InputError(
            f"{option('target')}: {target} does not run two pools, prefill and decode; write {able}, "
            f"or size again without {option('disaggregated')}"
        )
    why = _why_not(runs, target, choice)
    if not why:
        return _loaded(runs, service_of(plan, checkpoint=checkpoint, drafter=drafter))
    first = choice.pools[0]

    def distance(other: Candidate) -> tuple[bool, bool]:
        return other.pools[0].gpu != first.gpu, not _same_format(other, choice)

    others = [one for one in plan.candidates if not _why_not(runs, target, one) and (checkpoint is None or _same_format(one, choice))]
    if not others:
        ask = f"{option('engine')} " + f" or {option('engine')} ".join(runs.engines) + (" on NVIDIA GPUs" if obstacle(choice) else "")
        raise InputError(f"{option('target')}: {why}, and no other deployment of the plan runs on {target}; size again with {ask}")
    taken = service_of(plan, checkpoint=checkpoint, drafter=drafter, candidate=min(others, key=distance), why=why)
    return _loaded(runs, taken)


def _loaded(runs: Target, service: Service) -> Service:
    return replace(service, loading=runs.loads(service))


def _same_format(first: Candidate, second: Candidate) -> bool:
    return find_precision(first.pools[0].precision).weights == find_precision(second.pools[0].precision).weights


def _why_not(runs: Target, target: str, candidate: Candidate) -> str:
    """The reason why a target cannot run a deployment, as a clause; empty if it can."""
    if found := obstacle(candidate):
        return found
    pool = candidate.pools[0]
    family = find_engine(pool.engine_preset or pool.engine).family
    if family not in runs.engines:
        return f"{target} runs only {' and '.join(runs.engines)}, not {pool.engine}"
    return runs.lacks(pool, family)


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
