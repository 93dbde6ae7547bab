"""The targets that files are written for."""

from __future__ import annotations

from collections.abc import Callable

from tonnage.deploy.compose.files import files as compose
from tonnage.deploy.dynamo.files import files as dynamo
from tonnage.deploy.kserve.files import files as kserve
from tonnage.deploy.kubernetes.files import files as kubernetes
from tonnage.deploy.llm_d.files import files as llm_d
from tonnage.deploy.nim.files import files as nim
from tonnage.deploy.ray_serve.files import files as ray_serve
from tonnage.deploy.service import Service
from tonnage.deploy.triton.files import files as triton
from tonnage.errors import InputError, option

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
"""The text of each file by its name, by target."""


def target_files(service: Service, target: str) -> dict[str, str]:
    """The files of a deployment for a target.

    Raises:
        InputError: no such target, or one that cannot hold this deployment.
    """
    if target not in TARGETS:
        raise InputError(f"{option('target')}: no files are written for '{target}'; there are {', '.join(TARGETS)}")
    return TARGETS[target](service)
