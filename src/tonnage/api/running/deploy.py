"""``tonnage deploy``: the choice of a plan as files for what runs engines."""

from __future__ import annotations

from pathlib import Path

from tonnage.errors import InputError, option


def deploy(
    plan: str | Path, *, target: str, output: str | Path, checkpoint: str | None = None, drafter: str | None = None
) -> tuple[str, ...]:
    """Write the files that deploy the choice of a plan.

    Args:
        plan: file that ``tonnage size --output`` wrote.
        target: what runs the engines, a name of ``tonnage.deploy.targets.TARGETS``.
        output: folder that is written, which must not exist or be empty.
        checkpoint: what the engines load, a name at a hub or a folder in the container (default: the model's published one, where it
            has the plan's number format).
        drafter: checkpoint of the drafter, where the plan decodes speculatively with one.

    Returns:
        The files that were written, by their paths inside the folder.

    Raises:
        InputError: no plan, or one that cannot be deployed so; an unknown target; a folder that cannot be written. Nothing is left behind.
    """
    from tonnage.deploy.folder import write_folder
    from tonnage.deploy.service import service_of
    from tonnage.deploy.targets import target_files
    from tonnage.deploy.testing import PLAN
    from tonnage.report.plans.saved import read_plans
    from tonnage.results.store import json_text

    plans = read_plans(plan)
    if len(plans) > 1:
        raise InputError(f"{option('plan')}: {plan} compares {len(plans)} plans; give the file of one")
    files = target_files(service_of(plans[0], checkpoint=checkpoint, drafter=drafter), target)
    files = {name: files[name] for name in sorted(files)} | {PLAN: json_text(plans[0].to_json())}
    write_folder(Path(output), files)
    return tuple(files)
