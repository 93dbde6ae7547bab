"""``tonnage deploy``: the choice of a plan as files for what runs engines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.question.deployment import deployment_of
from tonnage.errors import InputError, TonnageError, option

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.plan.pool import Pool
    from tonnage.spec.deployment import Deployment
    from tonnage.watch.watched import Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The result of ``deploy``.

    Attributes:
        files: paths of the written files inside the folder.
        checkpoint: checkpoint that the engines load.
        notes: sentences on the deployment, if it is not the plan's choice, on the checkpoint, and the commands that create it.
    """

    files: tuple[str, ...]
    checkpoint: str
    notes: tuple[str, ...]


def deploy(plan: str | Path, *, target: str, output: str | Path, checkpoint: str | None = None, drafter: str | None = None) -> Deployed:
    """Write the files that deploy the choice of a plan, or the nearest other deployment of the plan that the target runs.

    Args:
        plan: file that ``tonnage size --output`` wrote.
        target: what runs the engines, a name of ``tonnage.deploy.targets.TARGETS``.
        output: folder that is written, which must not exist or be empty.
        checkpoint: Hugging Face name, or a folder inside the instance (default, from the catalog: a published checkpoint in the plan's
            number format, a 16-bit one that the engine quantises at start, or a folder and the command that fills it).
        drafter: checkpoint of the drafter, where the plan decodes speculatively with one.

    Returns:
        The written files, with notes.

    Raises:
        InputError: no plan, no deployment of the plan that runs on the target, an unknown target, or a folder that cannot be written.
            Nothing is left behind.
    """
    from tonnage.deploy.plan_text import PLAN, instead_line
    from tonnage.deploy.targets import deployed, target_files, write_folder
    from tonnage.report.plans.plan_document import read_plans
    from tonnage.results.store import json_text

    plans = read_plans(plan)
    if len(plans) > 1:
        raise InputError(f"{option('plan')}: {plan} compares {len(plans)} plans; give the file of one")
    service = deployed(plans[0], target, checkpoint=checkpoint, drafter=drafter)
    files = target_files(service, target)
    files = {name: files[name] for name in sorted(files)} | {PLAN: json_text(service.plan.to_json())}
    write_folder(Path(output), files)
    told = (instead_line(service), service.loading.told, *service.loading.make)
    return Deployed(files=tuple(files), checkpoint=service.checkpoint, notes=tuple(line for line in told if line))


# The deployment that a saved plan chose, made again from its names and knobs.


AS_SHIPPED = ("", "fitted")
"""What a plan calls the fitted step times; "" where it rests on measured points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The choice of a plan, ready to be simulated.

    Attributes:
        plan: which chose it.
        pool: the instances that it chose, by their names.
        deployment: one instance.
        instances: how many there are, spare ones included.
        gpus_per_system: GPUs in one of the systems that they are in.
        prompt_tokens: mean prompt of the load that the plan is for.
    """

    plan: Plan
    pool: Pool
    deployment: Deployment
    instances: int
    gpus_per_system: int
    prompt_tokens: int


def planned(path: str | Path, *, coefficients: str | Path | None = None) -> Planned:
    """The choice of the plan in a file that ``tonnage size --output`` wrote.

    Args:
        coefficients: file that ``calibrate`` wrote, in place of the calibration that the plan was made with.

    Raises:
        InputError: no plan, one that chose nothing, or one whose choice cannot be made again from its names.
    """
    from tonnage.report.plans.plan_document import read_plans

    plans = read_plans(path)
    if len(plans) > 1:
        raise InputError(f"{option('plan')}: {path} compares {len(plans)} plans; give the file of one")
    plan = plans[0]
    if plan.choice is None:
        raise InputError(f"{option('plan')}: {path} chose nothing, because no deployment met its limits")
    if len(plan.choice.pools) > 1:
        raise InputError(f"{option('plan')}: {path} chose separate pools for prefill and decode, which are not simulated together yet")
    if plan.scenario.step_model not in AS_SHIPPED:
        raise InputError(
            f"{option('plan')}: {path} was made with the step times of {plan.scenario.step_model}; make it again with the fitted ones"
        )
    pool = plan.choice.pool
    deployment = _deployment(plan, pool, coefficients)
    return Planned(
        plan=plan,
        pool=pool,
        deployment=deployment,
        instances=pool.instances,
        gpus_per_system=pool.gpus_per_system,
        prompt_tokens=math.ceil(plan.scenario.mean_isl),
    )


def _deployment(plan: Plan, pool: Pool, coefficients: str | Path | None) -> Deployment:
    split = pool.parallelism
    engine, _, drafter = pool.engine.partition(" + ")
    found = deployment_of(
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
    calibration = plan.provenance.calibration if coefficients is None else found.calibration
    return replace(found, parallelism=split, knobs=pool.knobs or found.knobs, calibration=calibration)


# ``tonnage watch``: a running deployment next to its plan.


SHORTEST_S, LONGEST_S = 0.5, 3_600.0


def watch(
    urls: Sequence[str],
    *,
    plan: str | Path,
    every: str = "10s",
    gpu_metrics: Sequence[str] = (),
    coefficients: str | Path | None = None,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Watched]:
    """Look at a deployment again and again; each look is over the stretch since the one before it.

    Args:
        urls: of its instances, or of the gateway before them.
        plan: file with the plan's JSON.
        every: time between two looks, such as "10s".
        gpu_metrics: pages of exporters of the GPUs.
        coefficients: file that ``calibrate`` wrote, in place of the calibration that the plan was made with.
        wait: waits so many seconds.

    Raises:
        InputError: no plan, one that predicts nothing, or something that is no address or no duration.
        TonnageError: nothing answers with the metrics of a known engine.
    """
    from tonnage.api.running.deploy import planned
    from tonnage.formats.engine_metrics import SIGNALS
    from tonnage.spec.catalog import find_engine
    from tonnage.units import parse_duration
    from tonnage.watch.expected import Predictor
    from tonnage.watch.reading import PATH, Pages
    from tonnage.watch.watched import Watcher

    if not urls:
        raise InputError(f"{option('url')}: nothing to watch is given; name an instance or a gateway, such as http://127.0.0.1:8000")
    seconds = parse_duration(every, option("every"))
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise InputError(f"{option('every')}: {every} is not possible; write 0.5s to 1h")
    choice = planned(plan, coefficients=coefficients)
    if not choice.plan.provenance.simulated:
        raise InputError(f"{option('plan')}: {plan} rests on measured points and predicts nothing of its own; give one that was simulated")
    signals = SIGNALS.get(find_engine(choice.deployment.engine).family)
    pages = Pages(urls, gpus=gpu_metrics, path=PATH if signals is None else signals.path)
    predictor = Predictor(choice.plan, choice.deployment, gpus_per_system=choice.gpus_per_system)
    watcher = Watcher(plan=choice.plan, predictor=predictor, urls=pages.urls, plan_file=str(plan))
    before = pages.read()
    if not before.instances:
        raise TonnageError(f"{', '.join(pages.urls)}: no answer with the metrics of vLLM, SGLang or TensorRT-LLM; is the engine up?")
    while True:
        wait(seconds)
        now = pages.read()
        yield watcher.look(before, now)
        before = now
