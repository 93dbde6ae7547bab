"""``tonnage deploy``: the choice of a plan as files for what runs engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What was written.

    Attributes:
        files: by their paths inside the folder.
        checkpoint: what the engines load.
        notes: what is deployed where that is not the plan's choice, what is loaded, and what must be made first, as sentences.
    """

    files: tuple[str, ...]
    checkpoint: str
    notes: tuple[str, ...]


def deploy(plan: str | Path, *, target: str, output: str | Path, checkpoint: str | None = None, drafter: str | None = None) -> Deployed:
    """Write the files that deploy the choice of a plan, or the nearest of its deployments that the target runs.

    Args:
        plan: file that ``tonnage size --output`` wrote.
        target: what runs the engines, a name of ``tonnage.deploy.targets.TARGETS``.
        output: folder that is written, which must not exist or be empty.
        checkpoint: what the engines load, a name at a hub or a folder of an instance (default: what the catalog knows for the plan's number
            format: a published checkpoint, a 16-bit one that the engine quantises, or a folder and the command that fills it).
        drafter: checkpoint of the drafter, where the plan decodes speculatively with one.

    Returns:
        The files that were written, and what must be known of them.

    Raises:
        InputError: no plan, or one of which no deployment runs there; an unknown target; a folder that cannot be written. Nothing is left
            behind.
    """
    from tonnage.deploy.folder import write_folder
    from tonnage.deploy.targets import deployed, target_files
    from tonnage.deploy.testing import PLAN
    from tonnage.deploy.told import instead_line
    from tonnage.report.plans.saved import read_plans
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
