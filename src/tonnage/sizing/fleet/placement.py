"""Instances of several pools on systems of one kind: the fewest systems that hold them, what each
of these holds, and what the loss of one takes.

An instance takes whole GPUs of one system, or whole systems where it is wider. Placing is bin
packing. First-fit decreasing is optimal where every width divides the next larger one (Coffman,
Garey and Johnson, Bin packing with divisible item sizes, 1987), as 1, 2, 4 and 8 do. Other widths
are searched exactly where they have at most ``MOST_STATES`` states; otherwise the answer is that of
first-fit decreasing, which may take more than the fewest systems.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heapreplace
from itertools import groupby, pairwise

from tonnage.plan.use_cases import Placed, SystemLost

MOST_STATES = 20_000
"""Most numbers of instances still to place, by width, that an exact search goes through."""

Contents = tuple[int, ...]
"""Instances of each width, or of each pool, in one system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """Instances of one pool: how many, and the GPUs of one."""

    count: int
    width: int


def fewest_systems(pools: Sequence[Instances], gpus: int) -> int:
    """The fewest systems of ``gpus`` GPUs that hold all instances."""
    wide = sum(pool.count * math.ceil(pool.width / gpus) for pool in pools if pool.width > gpus)
    return wide + len(_packed(_by_width(pools, gpus), gpus))


def _by_width(pools: Sequence[Instances], gpus: int) -> tuple[tuple[int, int], ...]:
    """Width and number of the instances that fit into one system, the widest first."""
    widths = sorted({pool.width for pool in pools if pool.width <= gpus}, reverse=True)
    return tuple(
        (width, sum(pool.count for pool in pools if pool.width == width)) for width in widths
    )


def _packed(by_width: tuple[tuple[int, int], ...], gpus: int) -> list[Contents]:
    """The fewest systems, each with its instances of every width."""
    widths, counts = tuple(width for width, _ in by_width), tuple(count for _, count in by_width)
    by_first_fit = _first_fit(widths, counts, gpus)
    least = math.ceil(sum(width * count for width, count in by_width) / gpus)
    divide = all(wider % width == 0 for wider, width in pairwise(widths))
    states = math.prod(count + 1 for count in counts)
    if len(by_first_fit) == least or divide or states > MOST_STATES:
        return by_first_fit
    return _exact(widths, counts, gpus)


def _first_fit(widths: Sequence[int], counts: Sequence[int], gpus: int) -> list[Contents]:
    """The widest instances first, each into the first system with room."""
    systems: list[list[int]] = []
    free: list[int] = []
    for place, (width, count) in enumerate(zip(widths, counts, strict=True)):
        remaining = count
        for number in range(len(systems)):
            fitting = min(remaining, free[number] // width)
            systems[number][place] += fitting
            free[number] -= fitting * width
            remaining -= fitting
        while remaining:
            fitting = min(remaining, gpus // width)
            systems.append([0] * len(widths))
            systems[-1][place] = fitting
            free.append(gpus - fitting * width)
            remaining -= fitting
    return [tuple(system) for system in systems]


def _exact(widths: Sequence[int], counts: Contents, gpus: int) -> list[Contents]:
    """The fewest systems: each takes one of the widest instances that remain, and is filled up in
    every way.
    """

    @cache
    def fewest(remaining: Contents) -> tuple[Contents, ...]:
        if not any(remaining):
            return ()
        widest = next(place for place, count in enumerate(remaining) if count)
        best: tuple[Contents, ...] | None = None
        for filled in _fillings(widths, remaining, gpus, widest):
            rest = tuple(count - here for count, here in zip(remaining, filled, strict=True))
            systems = (filled, *fewest(rest))
            if best is None or len(systems) < len(best):
                best = systems
        return best or ()

    return list(fewest(counts))


def _fillings(
    widths: Sequence[int], remaining: Contents, gpus: int, widest: int
) -> Iterator[Contents]:
    """Every way to fill a system into which no further instance goes, with one of the widest."""

    def further(place: int, free: int, counts: Contents) -> Iterator[Contents]:
        if place == len(widths):
            fits = any(
                width <= free and here < count
                for width, here, count in zip(widths, counts, remaining, strict=True)
            )
            if not fits:
                yield counts
            return
        for count in range(min(remaining[place], free // widths[place]), -1, -1):
            yield from further(place + 1, free - count * widths[place], (*counts, count))

    for filled in further(0, gpus, ()):
        if filled[widest]:
            yield filled


def placed(
    pools: Sequence[Instances], system: str, gpus: int, systems: int
) -> tuple[tuple[Placed, ...], SystemLost]:
    """Which of ``systems`` systems holds which instances, those of a pool on as many of them as
    possible, and what the loss of one takes. At least ``fewest_systems`` are expected.
    """
    needed = fewest_systems(pools, gpus)
    wide = [pool.count if pool.width > gpus else 0 for pool in pools]
    spanned = [math.ceil(pool.width / gpus) for pool in pools]
    narrow = [
        Instances(count=0 if count else pool.count, width=pool.width)
        for pool, count in zip(pools, wide, strict=True)
    ]
    wide_gpus = sum(count * span for count, span in zip(wide, spanned, strict=True))
    systems_contents = _spread(narrow, gpus, needed - wide_gpus) or _as_packed(narrow, gpus)
    parts: list[Placed] = []
    first = 1
    for contents, equal in groupby(sorted(systems_contents, reverse=True)):
        count = len(list(equal))
        in_use = sum(pool.width * here for pool, here in zip(pools, contents, strict=True))
        parts.append(
            Placed(
                system=system,
                first=first,
                systems=count,
                instances=contents,
                free_gpus=gpus - in_use,
            )
        )
        first += count
    nothing = (0,) * len(pools)
    for place, count in enumerate(wide):
        if count:
            span = spanned[place]
            parts.append(
                Placed(
                    system=system,
                    first=first,
                    systems=count * span,
                    instances=(*nothing[:place], 1, *nothing[place + 1 :]),
                    free_gpus=span * gpus - pools[place].width,
                    spans=span,
                )
            )
            first += count * span
    standby = systems - needed
    if standby:
        parts.append(
            Placed(system=system, first=first, systems=standby, instances=nothing, free_gpus=gpus)
        )
    return tuple(parts), _lost(pools, parts, gpus)


def _spread(pools: Sequence[Instances], gpus: int, systems: int) -> list[Contents]:
    """The widest instances first, each into the system with the fewest of its pool and the most
    room; nothing where that leaves an instance without room.
    """
    systems_contents, free = [[0] * len(pools) for _ in range(systems)], [gpus] * systems
    for place, pool in sorted(enumerate(pools), key=lambda pair: (-pair[1].width, pair[1].count)):
        room = [(0, -free[number], number) for number in range(systems)]
        heapify(room)
        for _ in range(pool.count):
            while room and free[room[0][2]] < pool.width:
                heappop(room)
            if not room:
                return []
            count, _, number = room[0]
            systems_contents[number][place] += 1
            free[number] -= pool.width
            heapreplace(room, (count + 1, -free[number], number))
    return [tuple(contents) for contents in systems_contents]


def _as_packed(pools: Sequence[Instances], gpus: int) -> list[Contents]:
    """The systems of ``fewest_systems``, the instances of each pool on as many of them as have room
    for its width.
    """
    by_width = _by_width(pools, gpus)
    packed = [list(contents) for contents in _packed(by_width, gpus)]
    systems_contents = [[0] * len(pools) for _ in packed]
    for at, (width, _) in enumerate(by_width):
        for place in (place for place, pool in enumerate(pools) if pool.width == width):
            room = [(0, number) for number, contents in enumerate(packed) if contents[at]]
            for _ in range(pools[place].count):
                count, number = room[0]
                systems_contents[number][place] += 1
                packed[number][at] -= 1
                if packed[number][at]:
                    heapreplace(room, (count + 1, number))
                else:
                    heappop(room)
    return [tuple(contents) for contents in systems_contents]


def _lost(pools: Sequence[Instances], parts: Sequence[Placed], gpus: int) -> SystemLost:
    """What the loss of any one system takes of each pool, and how much of it finds no free GPUs."""
    lost_instances, without = [0] * len(pools), [0] * len(pools)
    for lost in parts:
        free = [
            gpus if part.spans > 1 else part.free_gpus
            for part in parts
            for _ in range(_remaining(part, lost))
        ]
        for place in sorted(range(len(pools)), key=lambda place: -pools[place].width):
            width = pools[place].width
            lost_instances[place] = max(lost_instances[place], lost.instances[place])
            missing = 0
            for _ in range(lost.instances[place]):
                missing += 0 if _takes_room(free, width, gpus) else 1
            without[place] = max(without[place], missing)
    return SystemLost(instances=tuple(lost_instances), without_gpus=tuple(without))


def _remaining(part: Placed, lost: Placed) -> int:
    """Systems of a part that may take instances after a system of ``lost`` is lost: of an instance
    that spans several, the rest of its systems.
    """
    if part.spans > 1:
        return part.spans - 1 if part is lost else 0
    return part.systems - (1 if part is lost else 0)


def _takes_room(free: list[int], width: int, gpus: int) -> bool:
    """Whether an instance finds room on systems with so many free GPUs, which it then takes."""
    if width <= gpus:
        number = next((number for number, room in enumerate(free) if room >= width), None)
        if number is None:
            return False
        free[number] -= width
        return True
    empty = [number for number, room in enumerate(free) if room == gpus]
    span = math.ceil(width / gpus)
    if len(empty) < span:
        return False
    for number in empty[:span]:
        free[number] = 0
    return True
