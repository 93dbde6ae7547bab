"""Which GPUs an instance gets: such as NVLink joins, near one node of main memory where that can be."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.serve.machine.machine import Device


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
