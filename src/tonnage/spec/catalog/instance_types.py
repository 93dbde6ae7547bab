"""Machines that clouds rent out, by the name of their type, such as "p5.48xlarge".

Most names are read off the catalog's offers; ``instances.yaml`` has those that no offer names, and the names of series.
"""

from __future__ import annotations

import re
from functools import cache

from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.hardware import System
from tonnage.spec.typed_values import read_entries, strict

_LAMBDA = re.compile(r"^gpu[_-](\d{1,2})x[_-](.+)$")
"""Lambda's types say their GPUs: "gpu_8x_h100_sxm5"."""


@strict
class InstanceType:
    """A machine type as ``instances.yaml`` writes it."""

    name: str
    gpu: str
    gpus: int
    aliases: tuple[str, ...]
    source: str
    date: str


def level_type(name: str) -> str:
    """A type's name in lower case with hyphens, without Azure's "Standard_" and the word "series"."""
    level = re.sub(r"[\s_-]+", "-", name.strip().lower())
    return level.removeprefix("standard-").removesuffix("-series")


def type_of_gpus(name: str) -> str:
    """The number and the GPU of a type that is named after them, such as "8xh100-sxm5"; "" for other names."""
    match = _LAMBDA.match(name.strip().lower())
    return f"{match[1]}x{match[2]}" if match else ""


@cache
def instance_types() -> dict[str, System]:
    """Every machine type, by its name as ``level_type`` writes it; with and without the provider's name before it."""
    from tonnage.spec.catalog.price_list import catalog_prices

    found: dict[str, System] = {}
    for entry in read_entries(InstanceType, shipped_yaml("instances.yaml"), "instances.yaml"):
        machine = _machine(entry.name, entry.gpu, entry.gpus, entry.source, entry.date)
        found.update((level_type(name), machine) for name in (entry.name, *entry.aliases))
    for offer in catalog_prices().cloud:
        if len(offer.machine_gpus) != 1 or not offer.terms:
            continue
        name = offer.offer.removeprefix(offer.provider).split(f" {offer.terms}")[0].strip()
        if " " in name or not any(map(str.isdigit, name)) or _is_gpu(name):
            continue
        source = f"a machine type of {offer.provider}: {offer.usd_per_gpu_hour.source}"
        machine = _machine(name, offer.gpu, offer.machine_gpus[0], source, offer.usd_per_gpu_hour.date)
        found.setdefault(level_type(name), machine)
        found.setdefault(level_type(f"{offer.provider} {name}"), found[level_type(name)])
    return found


def _machine(name: str, gpu: str, gpus: int, source: str, date: str) -> System:
    return System(name=name, gpu=gpu, gpus=gpus, max_power_w=None, source=source, date=date)


def _is_gpu(name: str) -> bool:
    """Whether a cloud names its machines after their GPU alone."""
    from tonnage.spec.catalog.lookup import gpu_spelled

    return gpu_spelled(name) is not None
