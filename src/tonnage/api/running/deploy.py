"""``tonnage deploy``: the choice of a plan as files for what runs engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, option


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
    from tonnage.deploy.cluster_page import PLAN
    from tonnage.deploy.folder import write_folder
    from tonnage.deploy.plan_text import instead_line
    from tonnage.deploy.targets import deployed, target_files
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
