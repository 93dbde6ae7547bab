"""Machines that clouds rent out, by the name of their type, such as "p5.48xlarge": read off the names of the catalog's offers."""

from __future__ import annotations

from functools import cache

from tonnage.errors import UnknownName
from tonnage.spec.hardware import System


@cache
def instance_types() -> dict[str, System]:
    """Every machine type of an offer that says how many GPUs a machine has, by its name in lower case."""
    from tonnage.spec.catalog.price_list import catalog_prices

    found: dict[str, System] = {}
    for offer in catalog_prices().cloud:
        if len(offer.machine_gpus) != 1 or not offer.terms:
            continue
        name = offer.offer.removeprefix(offer.provider).split(f" {offer.terms}")[0].strip()
        if " " in name or not any(map(str.isdigit, name)) or name.lower() in found or _is_gpu(name):
            continue
        found[name.lower()] = System(
            name=name,
            gpu=offer.gpu,
            gpus=offer.machine_gpus[0],
            max_power_w=None,
            source=f"a machine type of {offer.provider}: {offer.usd_per_gpu_hour.source}",
            date=offer.usd_per_gpu_hour.date,
        )
    return found


def _is_gpu(name: str) -> bool:
    """Whether a cloud names its machines after their GPU alone."""
    from tonnage.spec.catalog.lookup import find_gpu

    try:
        return bool(find_gpu(name))
    except UnknownName:
        return False
