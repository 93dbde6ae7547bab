"""How long a new instance takes until it serves: its process starts, its weights come over a link, its engine warms up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.perf.memory import memory_plan

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment

LINK_BYTES_S = 1.25e9
"""Bytes per second over which the weights of an instance are read where nothing is said: a network of 10 Gbit/s."""

BOOT_S = 60.0
"""Seconds beside the weights where nothing is said: the container, CUDA, compilation and the capture of CUDA graphs. An assumption of this
project, not a measurement: give ``boot`` or ``start`` as you measured it."""


def weight_bytes(deployment: Deployment) -> int:
    """Bytes of the weights that an instance reads: those on each of its GPUs, a drafter's included."""
    memory = memory_plan(deployment)
    return (memory.weight_bytes + memory.drafter_bytes) * deployment.parallelism.gpus


def start_seconds(deployment: Deployment, link_bytes_s: float = LINK_BYTES_S, boot_s: float = BOOT_S) -> float:
    """Seconds from the decision to start an instance until it takes requests.

    Args:
        deployment: what is started.
        link_bytes_s: bytes per second over which its weights come, all of them over one link.
        boot_s: everything else.
    """
    return boot_s + weight_bytes(deployment) / link_bytes_s
