"""``tonnage.compress``: a checkpoint in the format that a plan assumes, made by another tool and
judged next to the original.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tonnage.compress.run import Compressed


def compress(
    model_dir: str | Path,
    *,
    output: str | Path,
    format: str | None = None,
    plan: str | Path | None = None,
    tool: str | None = None,
    text: str | Path | None = None,
    held_back: str | Path | None = None,
    lm_eval: tuple[str | Path, str | Path] | None = None,
    dry_run: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> Compressed | str:
    """Make a checkpoint in a narrower format, as ``tonnage compress`` does; or, with ``dry_run``,
    the tool's own script as text.

    Raises InputError: a format that the GPU, the engine, the tool or this machine cannot do;
    TonnageError: the tool failed.
    """
    from tonnage.compress import checks
    from tonnage.compress.run import recipe_of, run, with_tasks
    from tonnage.report.plans.plan_document import read_plans
    from tonnage.spec.catalog import find_model

    if lm_eval is not None:
        return with_tasks(Path(output), *map(Path, lm_eval))
    plans = read_plans(plan) if plan is not None else ()
    pools = [
        pool
        for sized_plan in plans
        if sized_plan.choice is not None
        for pool in sized_plan.choice.pools
    ]
    form = checks.asked_format(format, pools)
    chosen = checks.asked_tool(tool, form, pools)
    checks.check_gpu(form, pools)
    spec = checks.check_model(Path(model_dir))
    for pool in pools:
        checks.check_plan_model(spec, find_model(pool.model))
    texts = {
        name: Path(path)
        for name, path in (("calibration", text), ("held_back", held_back))
        if path is not None
    }
    job = checks.Job(
        form=form, tool=chosen, model=Path(model_dir), spec=spec, output=Path(output), texts=texts
    )
    if dry_run:
        return recipe_of(job, output=job.output)
    checks.check_texts(form, chosen, texts)
    checks.check_here(job)
    checks.check_room(job)
    return run(job, announce)
