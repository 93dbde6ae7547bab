"""What a machine has, as values; a YAML file may describe a machine that is not this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.typed_values import read_as, strict

OTHERS_USE = 0.05
"""Share of a GPU's memory that others may use while it still counts as free: a display, a context, an exporter."""


@strict
class Device:
    """One GPU.

    Attributes:
        index: its number in PCI bus order, as ``CUDA_VISIBLE_DEVICES`` counts.
        name: as the driver calls it, such as "NVIDIA H100 80GB HBM3".
        gpu: catalog id; "" where the catalog does not have it.
        vendor: "NVIDIA" or "AMD".
        memory_bytes, used_bytes: of its memory.
        capability: compute capability of NVIDIA's GPUs, such as "9.0"; "" where it is not known.
        numa: node of the memory that it is nearest to; None where it is not known.
        linked: indices of the GPUs that NVLink or Infinity Fabric joins it with.
    """

    index: int
    name: str
    gpu: str = ""
    vendor: str = "NVIDIA"
    memory_bytes: int
    used_bytes: int = 0
    capability: str = ""
    numa: int | None = None
    linked: tuple[int, ...] = ()

    @property
    def free(self) -> bool:
        """Whether nobody else uses it to speak of."""
        return self.used_bytes <= OTHERS_USE * self.memory_bytes


@strict
class Machine:
    """One machine.

    Attributes:
        devices: its GPUs.
        driver: version of their driver; "" without one.
        cpus: cores that this process may use.
        memory_bytes: main memory.
        notes: what could not be found out, in words.
    """

    devices: tuple[Device, ...] = ()
    driver: str = ""
    cpus: int
    memory_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def free(self) -> tuple[Device, ...]:
        """The GPUs that nobody else uses."""
        return tuple(one for one in self.devices if one.free)

    @property
    def gpu(self) -> str:
        """Catalog id of its GPUs; "" where there are none, or the catalog does not have them, or they differ."""
        kinds = {one.gpu for one in self.devices}
        return kinds.pop() if len(kinds) == 1 else ""

    @property
    def label(self) -> str:
        """In a line, such as "8 × NVIDIA H100 80GB HBM3, driver 580.65.06, 224 cores, 2,000 GiB"."""
        counted: dict[str, int] = {}
        for one in self.devices:
            counted[one.name] = counted.get(one.name, 0) + 1
        gpus = ", ".join(f"{count} × {name}" for name, count in counted.items()) or "no GPU"
        driver = f", driver {self.driver}" if self.driver else ""
        return f"{gpus}{driver}, {self.cpus} cores, {self.memory_bytes / 2**30:,.0f} GiB"

    def to_json(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


def read_machine(path: Path) -> Machine:
    """A machine that a YAML file describes, with the names of these attributes.

    Raises:
        InputError: the file cannot be read, or describes no machine.
    """
    import yaml

    where = option("machine")
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise InputError(f"{where}: {path} cannot be read ({getattr(fault, 'strerror', None) or 'no YAML'})") from None
    return read_as(Machine, values, str(path), InputErrors)


# Which GPUs an instance gets: such as NVLink joins, near one node of main memory where that can be.


def groups(devices: Sequence[Device], size: int) -> tuple[tuple[Device, ...], ...]:
    """As many groups of ``size`` GPUs as there can be: first those within an island of NVLink, and in it those near one node.

    GPUs that are left over in an island make further groups across islands at the end.
    """
    found: list[tuple[Device, ...]] = []
    left: list[Device] = []
    for island in _islands(devices):
        spare: list[Device] = []
        for node in sorted({-1 if one.numa is None else one.numa for one in island}):
            near = [one for one in island if (-1 if one.numa is None else one.numa) == node]
            whole = len(near) // size * size
            found += [tuple(near[place : place + size]) for place in range(0, whole, size)]
            spare += near[whole:]
        whole = len(spare) // size * size
        found += [tuple(spare[place : place + size]) for place in range(0, whole, size)]
        left += spare[whole:]
    found += [tuple(left[place : place + size]) for place in range(0, len(left) // size * size, size)]
    return tuple(found)


def joined(group: Sequence[Device]) -> bool:
    """Whether every GPU of a group is joined with every other."""
    return all(other.index in one.linked for one in group for other in group if other is not one)


def _islands(devices: Sequence[Device]) -> list[list[Device]]:
    """The GPUs that are joined directly or through others, in the order of their first."""
    found: list[list[Device]] = []
    left = {one.index: one for one in sorted(devices, key=lambda one: one.index)}
    while left:
        _, first = next(iter(left.items()))
        island, edge = [], [first.index]
        while edge:
            one = left.pop(edge.pop(), None)
            if one is not None:
                island.append(one)
                edge += one.linked
        found.append(sorted(island, key=lambda one: one.index))
    return found
