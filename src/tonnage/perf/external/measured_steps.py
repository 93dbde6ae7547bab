"""Deployments whose step times come from elsewhere than the fitted terms: from AIConfigurator, or from a user's table.

Such a deployment runs under the same scheduler, with the same memory plan and the same front end and client as any other;
only the seconds of a step come from elsewhere, reduced to the array that the simulator reads (``reduction.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tonnage.errors import InputError, option
from tonnage.perf.external import aiconfigurator
from tonnage.perf.external.reduction import Reduction, reduced
from tonnage.spec.step_times import AICONFIGURATOR, OWNERS, StepSource, TimedStep
from tonnage.spec.step_times_file import step_source

if TYPE_CHECKING:
    from pathlib import Path

    from tonnage.spec.calibration import Calibration
    from tonnage.spec.deployment import Deployment


def reduction(deployment: Deployment) -> Reduction:
    """The step times of a deployment's ``step_source``, reduced.

    Raises InputError: there are none for this deployment, or they do not say enough.
    """
    source = deployment.step_source
    if source is None:
        raise InputError(f"{option('step_model')}: none is asked for")
    check_stages(deployment)
    if source.name == AICONFIGURATOR:
        return _reduced(aiconfigurator.timed_steps(deployment), aiconfigurator.described(deployment))
    return _reduced(source.steps_of(deployment), source.name)


def check_stages(deployment: Deployment) -> None:
    """Refuse pipeline stages where the step times are those of whole models. Raises InputError: the deployment has both."""
    if deployment.step_source is not None and deployment.parallelism.pp > 1:
        raise InputError(
            f"{option('step_model')}: pipeline stages are estimated by the fitted terms only; choose PP 1 or {option('step_model')} fitted"
        )


@lru_cache(maxsize=256)
def _reduced(steps: tuple[TimedStep, ...], source: str) -> Reduction:
    return reduced(steps, source)


def source_mark(deployment: Deployment) -> str:
    """Where the step times come from and how well they were reduced, in words; empty for the fitted terms."""
    source = deployment.step_source
    if source is None:
        return ""
    name = aiconfigurator.described(deployment) if source.name == AICONFIGURATOR else source.name
    return f"step times of {name}: {reduction(deployment)}; the front end is the preset's"


def checked_source(name: str | Path) -> StepSource | None:
    """What ``step_model`` names, ready to be asked; None for the fitted terms.

    Raises InputError: it is no step model, its file cannot be read, or its wheel is not installed.
    """
    source = step_source(name)
    if source is not None and source.name == AICONFIGURATOR:
        aiconfigurator.require()
    return source


def check_source(source: StepSource | None, calibration: Calibration | None, deployments: int) -> None:
    """Refuse a step model with a calibration, or one table for several deployments. Raises InputError."""
    if source is None:
        return
    if calibration is not None:
        raise InputError(
            f"{option('step_model')}, {option('coefficients')}: a calibration multiplies the fitted terms; leave one of them out"
        )
    if deployments > 1 and not source.names_owners:
        raise InputError(
            f"{option('step_model')}: {source.name} does not say which of {deployments} deployments its steps are of; "
            f"add columns such as {', '.join(OWNERS[:5])}, or ask for one deployment"
        )
