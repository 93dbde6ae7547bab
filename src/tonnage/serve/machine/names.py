"""Which GPU of the catalog a driver speaks of."""

from __future__ import annotations

import re

from tonnage.deploy.kubernetes.placing import MARGIN, PRODUCTS
from tonnage.spec.catalog import gpus

_NOISE = re.compile(r"\b(NVIDIA|AMD|Instinct|Tesla|GeForce|Graphics)\b[ -]*")

_SIZE = re.compile(r"-\d+gb.*$")


def catalog_gpu(name: str, memory_bytes: int) -> str:
    """The catalog id of a GPU by the name and the memory that its driver reports; "" where there is none.

    Args:
        name: such as "NVIDIA H100 80GB HBM3".
        memory_bytes: that the driver reports; it tells boards apart whose names are one.
    """
    hyphened = name.strip().replace(" ", "-")
    for gpu, product in PRODUCTS.items():
        if product == hyphened:
            return gpu
    wanted = _plain(_NOISE.sub("", name))
    near = [gpu for gpu in gpus() if abs(gpu.memory_bytes / memory_bytes - 1) <= MARGIN]
    stems = {gpu.name: _plain(_SIZE.sub("", gpu.name)) for gpu in near}
    alike = sorted((name for name, stem in stems.items() if wanted.startswith(stem)), key=lambda name: -len(stems[name]))
    if alike:
        return alike[0]
    begun = [gpu.name for gpu in near if wanted and _plain(gpu.name).startswith(wanted)]
    return begun[0] if len(begun) == 1 else ""


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
