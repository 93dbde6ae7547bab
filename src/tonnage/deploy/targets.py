"""The targets that files are written for."""

from __future__ import annotations

from collections.abc import Callable

from tonnage.deploy.compose.files import files as compose
from tonnage.deploy.kubernetes.files import files as kubernetes
from tonnage.deploy.ray_serve.files import files as ray_serve
from tonnage.deploy.service import Service
from tonnage.errors import InputError, option

TARGETS: dict[str, Callable[[Service], dict[str, str]]] = {"compose": compose, "kubernetes": kubernetes, "ray-serve": ray_serve}
"""The text of each file by its name, by target."""


def target_files(service: Service, target: str) -> dict[str, str]:
    """The files of a deployment for a target.

    Raises:
        InputError: no such target, or one that cannot hold this deployment.
    """
    if target not in TARGETS:
        raise InputError(f"{option('target')}: no files are written for '{target}'; there are {', '.join(TARGETS)}")
    return TARGETS[target](service)
