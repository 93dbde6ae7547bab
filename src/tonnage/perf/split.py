"""Which parallelisms a model allows: how its heads and experts can be split over GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment, Parallelism
    from tonnage.spec.model import Model


def check_split(deployment: Deployment) -> None:
    """Refuse a parallelism that the model does not allow.

    Raises:
        InputError: ``tp`` does not divide the query heads or does not go into the key/value heads; the experts cannot be spread
            as asked; ``pp`` is not 1.
    """
    model, tp, pp = deployment.model, deployment.parallelism.tp, deployment.parallelism.pp
    if pp != 1:
        raise InputError(f"{option('pp')}: pipeline parallelism of {pp} is not estimated here; use 1")
    _check_experts(model, deployment.parallelism)
    if tp >= 1 and _splits(model, tp):
        return
    right = ", ".join(str(n) for n in range(1, 17) if _splits(model, n))
    raise InputError(
        f"{option('tp')}: "
        f"{model.name} with {model.heads} query and {model.kv_heads} key/value heads cannot be split over {tp} GPUs; use {right}"
    )


def _check_experts(model: Model, parallelism: Parallelism) -> None:
    """Refuse degrees of data-parallel attention and expert parallelism that the model does not allow."""
    dp, ep, gpus = parallelism.dp, parallelism.ep, parallelism.stage_gpus
    if dp < 1 or ep < 1:
        raise InputError(f"{option('dp' if dp < 1 else 'ep')}: must be 1 or more, not {min(dp, ep)}")
    if (dp > 1 or ep > 1) and not model.is_moe:
        name, what = ("dp", "replicate it instead") if dp > 1 else ("ep", f"use {option('tp')}")
        raise InputError(f"{option(name)}: {model.name} has no experts to spread over GPUs; {what}")
    if gpus % ep:
        right = ", ".join(str(n) for n in range(1, gpus + 1) if gpus % n == 0 and model.experts % n == 0)
        raise InputError(f"{option('ep')}: {ep} groups of experts do not divide TP {parallelism.tp} × DP {dp} = {gpus} GPUs; use {right}")
    if model.experts % ep:
        raise InputError(f"{option('ep')}: {model.experts} experts of {model.name} cannot be spread over {ep} groups evenly")
    if gpus > 1 and (dp > 1 or ep > 1) and model.ffn % parallelism.moe_tp:
        raise InputError(
            f"{option('ep')}: experts of width {model.ffn} cannot be split over {parallelism.moe_tp} GPUs; use a larger {option('ep')}"
        )


def _splits(model: Model, tp: int) -> bool:
    """Whether every GPU gets the same number of heads of every layer."""
    return all(some.mixer.splits(tp) for some in model.by_kind)
