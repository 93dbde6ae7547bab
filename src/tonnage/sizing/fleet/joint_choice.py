"""Which deployment each use case takes, so that all together take the fewest GPUs of whole systems.

The best deployment of one use case alone need not be the best on shared systems: four GPUs of
another type leave that type's systems half empty, and one instance of eight GPUs leaves no room
where one of four would do. So every deployment that a plan sized is an option, with the instances
that its division asks for; one that the plan left out as it would take more GPUs by itself has at
least so many as the bound that left it out. The options of the best combination are sized one after
another, until the best has no other ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tonnage.plan.use_cases import UseCasePool
from tonnage.sizing.fleet.placement import Instances, fewest_systems

MOST_COMBINATIONS = 4_096
"""Most combinations that are compared one by one; of more, these on few kinds of systems are, and
then one use case is improved at a time."""

FEW_KINDS = 3
"""Most kinds of systems that the comparison of many combinations begins with."""

MOST_SIZED = 8
"""Most deployments that are sized next to one of each use case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A deployment of one use case.

    Attributes:
        pool: the instances that it takes.
        rank: its place in the plan of its use case, the choice first, and the deployments that
            the plan left out last.
        sized: whether so many instances were seen to hold every limit.
        left_out: whether the plan left it out, so that ``pool`` has the fewest that it may take.
    """

    pool: UseCasePool
    rank: int
    sized: bool = False
    left_out: bool = False

    def covers(self, option: Option) -> bool:
        """Whether its instances fit wherever those of another option do, on fewer GPUs, or as many
        by a deployment that comes first.
        """
        mine, theirs = self.pool, option.pool
        width, wider = mine.parallelism.gpus, theirs.parallelism.gpus
        return (
            mine.system == theirs.system
            and wider % width == 0
            and mine.instances <= theirs.instances * (wider // width)
            and (mine.gpus, self.rank) < (theirs.gpus, option.rank)
        )


Sizing = Callable[[int, Option], Option | None]
"""Sizes an option of the use case at that place; None where it does not meet the limits."""


def systems_by_kind(pools: Sequence[UseCasePool]) -> Iterator[tuple[str, int, int]]:
    """Each kind of system of some pools, its GPUs, and the fewest of them that hold the pools."""
    for system in dict.fromkeys(pool.system for pool in pools):
        members = [pool for pool in pools if pool.system == system]
        gpus = members[0].gpus_per_system
        yield system, gpus, fewest_systems(list(map(instances_of, members)), gpus)


def instances_of(pool: UseCasePool) -> Instances:
    """A pool by its instances alone."""
    return Instances(count=pool.instances, width=pool.parallelism.gpus)


def chosen_together(
    options: Sequence[Sequence[Option]], size: Sizing, spare: int = 0
) -> tuple[Option, ...]:
    """Choose an option for each use case, all sized: the combination on the fewest GPUs of whole
    systems, with ``spare`` ones of each kind, then with the fewest GPUs in use, then the one that
    the plans rank first.

    Deployments that a plan left out are looked at only where they could save GPUs.
    """
    choice = _Choice(options=[list(of_case) for of_case in options], size=size, spare=spare)
    choice.budget = MOST_SIZED + len(options)
    best = choice.settled([[option for option in case if not option.left_out] for case in options])
    while choice.budget:
        rival = choice.best(choice.options)
        if choice.key(rival)[:2] >= choice.key(best)[:2]:
            break
        if choice.all_sized(rival):
            best = rival
        else:
            choice.size_of(rival)
    return best


def _on_few_kinds(options: Sequence[Sequence[Option]]) -> Iterator[tuple[Option, ...]]:
    """For up to ``FEW_KINDS`` kinds of systems at a time, the option of each use case on the fewest
    GPUs in use, on another kind where it has none on these.
    """
    kinds = {option.pool.system for case in options for option in case}
    for number in range(1, min(FEW_KINDS, len(kinds)) + 1):
        for few in combinations(sorted(kinds), number):
            yield tuple(
                min(
                    case,
                    key=lambda option, few=few: (  # type: ignore[misc]
                        option.pool.system not in few,
                        option.pool.gpus,
                        option.rank,
                    ),
                )
                for case in options
            )


@dataclass(slots=True, kw_only=True)
class _Choice:
    """The options as they are known, and how many more may be sized."""

    options: list[list[Option]]
    size: Sizing
    spare: int
    budget: int = 0

    def settled(self, options: Sequence[Sequence[Option]]) -> tuple[Option, ...]:
        """The best combination of some options, each sized."""
        places = [{option.rank for option in case} for case in options]
        while True:
            remaining = [
                [option for option in case if option.rank in ranks]
                for case, ranks in zip(self.options, places, strict=True)
            ]
            if self.budget <= 0:
                remaining = [
                    [option for option in case if option.sized] or case for case in remaining
                ]
            best = self.best(remaining)
            if self.all_sized(best):
                return best
            self.size_of(best)

    def size_of(self, combination: Sequence[Option]) -> None:
        """Size the first option of a combination that was not sized."""
        case, option = next(
            (case, option) for case, option in enumerate(combination) if not option.sized
        )
        sized = self.size(case, option)
        self.budget -= 1
        at = self.options[case].index(option)
        self.options[case][at : at + 1] = [] if sized is None else [sized]

    @staticmethod
    def all_sized(combination: Sequence[Option]) -> bool:
        """Whether every option of a combination was sized."""
        return all(option.sized for option in combination)

    def gpus(self, combination: Sequence[Option]) -> int:
        """GPUs of the whole systems of a combination."""
        kinds = systems_by_kind([option.pool for option in combination])
        return sum((systems + self.spare) * gpus for _, gpus, systems in kinds)

    def key(self, combination: Sequence[Option]) -> tuple[int, int, int]:
        """GPUs of the whole systems, GPUs in use, and the sum of the ranks."""
        in_use = sum(option.pool.gpus for option in combination)
        return self.gpus(combination), in_use, sum(option.rank for option in combination)

    def best(self, options: Sequence[Sequence[Option]]) -> tuple[Option, ...]:
        """The best combination by what is known: of all, or of many the best on few kinds of
        systems that no change of one use case improves.
        """
        worthwhile = [
            [option for option in case if not any(rival.covers(option) for rival in case)]
            for case in options
        ]
        if math.prod(map(len, worthwhile)) <= MOST_COMBINATIONS:
            return min(product(*worthwhile), key=self.key)
        best = min(_on_few_kinds(worthwhile), key=self.key)
        while True:
            rivals = (
                (*best[:place], option, *best[place + 1 :])
                for place, case in enumerate(worthwhile)
                for option in case
            )
            better = min(rivals, key=self.key)
            if self.key(better) >= self.key(best):
                return best
            best = better
