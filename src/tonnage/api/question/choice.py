"""The choice among finished candidates: by what the asker wants least of, inside what may be spent,
drawn and filled.

The search ends with the best deployment of every GPU type, and the first of them checked as a whole
fleet. Here standby systems for failures is added, prices and power are read, and the candidates are
put into another order. Where another one comes first, the same question is asked again for its GPU
type alone, so that its knobs are tried and its fleet is checked; if that takes other systems, the
order is made again. The remaining one then gets every part of a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tonnage.api.question.objectives import aim_of, reserve_of
from tonnage.cost.cost import traffic_of
from tonnage.cost.plan_cost import Outlay, catalog_id, outlay, rented_job
from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate, by_gpus_needed, mean_latency
from tonnage.plan.cost import Where
from tonnage.plan.fleet import footprint
from tonnage.plan.limit import Aim
from tonnage.plan.plan import Plan, RunnerUp
from tonnage.plan.reason import Most, OverBudget, OverPower, OverRacks, Reason, Rejected, rejected
from tonnage.plan.sensitivity import pareto
from tonnage.sizing.fleet.standby import Reserve, shifted, with_standby
from tonnage.sizing.question import Owned, Question
from tonnage.sizing.search.search_space import narrowed, system_for
from tonnage.spec.prices import Prices
from tonnage.spec.scenario import Scenario

MOST_CHECKED = 12  # most candidates whose fleet is checked before one is chosen

# What a plan says of its choice, and of nothing without one
OF_THE_CHOICE = (
    "explain",
    "sensitivity",
    "fleet_check",
    "tail",
    "prefix_cache",
    "job",
    "percentile_answer",
)

# what answers a question, as ``sizing.planner.size`` does, with one memory for all of them
Search = Callable[..., "Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """The rule by which candidates are compared.

    Attributes:
        question, scenario: load, limits and candidates, and how they were written.
        aim: objective and maxima; the fewest GPUs without one.
        reserve: standby systems; None for nothing beyond ``question.spare``.
        prices, where: the price list, and the requested ways of serving.
    """

    question: Question
    aim: Aim
    reserve: Reserve | None
    prices: Prices
    where: tuple[Where, ...]

    def prepared(self, candidate: Candidate) -> Candidate:
        """The candidate with standby systems for failures."""
        if self.reserve is None:
            return candidate
        reserve, load = self.reserve, self.question.demand.sizing_requests_per_second
        return with_standby(
            candidate,
            load=load,
            spare=self.question.spare,
            unit=reserve.unit,
            availability=reserve.asked,
            failures=reserve.failures,
            spare_instances=reserve.spare_instances,
        )

    def outlay(self, plan: Plan, candidate: Candidate) -> Outlay:
        """The cost of a candidate and the power that it draws."""
        model = catalog_id(plan.scenario.model)
        spent = outlay(
            candidate,
            traffic_of(plan),
            self.prices,
            spare=self.question.spare,
            model=model,
            where=self.where,
        )
        return replace(
            spent,
            job_usd=(
                rented_job(plan, candidate, self.prices, self.question.spare)
                if "cloud" in self.where
                else 0.0
            ),
        )

    def key(self, candidate: Candidate, spent: Outlay, of_type: Outlay) -> tuple[object, ...]:
        """The sort key of a candidate: the objective first, then the order of the search.

        The fewest GPUs of several types are the cheapest of these types, then the one that draws
        the least power. ``of_type`` is what the deployment that the search prefers on as many GPUs
        of the candidate's type costs and draws, since that one would be the answer.
        """
        watts = _or_infinite(spent.drawn_watts) * candidate.systems
        aimed: dict[str, tuple[float, ...]] = {
            "gpus": (
                candidate.gpus,
                *_usd(of_type),
                _or_infinite(of_type.drawn_watts) * candidate.systems,
            ),
            "cost": (
                _or_infinite(spent.job_usd),
                _or_infinite(spent.cheapest_usd_per_year),
                _or_infinite(spent.own_usd_per_year),
            ),
            "power": (watts,),
            "latency": (mean_latency(candidate),),
        }
        unsure, *rest = by_gpus_needed(candidate)
        return (unsure, *aimed[self.aim.objective], *rest)

    def broken(self, plan: Plan, candidate: Candidate, spent: Outlay) -> Reason | None:
        """What a candidate exceeds of what may be spent, drawn or filled, and what that would
        carry; None where it exceeds nothing.
        """
        aim, watts = self.aim, spent.system_watts
        if aim.budget_usd is not None:
            usd = spent.purchase_usd if aim.budget_of == "purchase" else spent.cheapest_usd_per_year
            if usd is None or usd > aim.budget_usd * (1 + 1e-9):
                return OverBudget(
                    usd=usd,
                    budget_usd=aim.budget_usd,
                    budget_of=aim.budget_of,
                    **self._paid(plan, candidate, usd),
                )
        kw = None if watts is None else watts * candidate.systems / 1e3
        if aim.max_kw is not None and (kw is None or kw > aim.max_kw * (1 + 1e-9)):
            systems = None if watts is None else math.floor(aim.max_kw * 1e3 / watts + 1e-9)
            return OverPower(kw=kw, most_kw=aim.max_kw, **self._carried(candidate, systems))
        if aim.max_racks is not None:
            rack_footprint = (
                None
                if watts is None
                else footprint(candidate.systems, watts, spent.watts_from, rack_kw=aim.rack_kw)
            )
            if rack_footprint is None or rack_footprint.racks > aim.max_racks:
                systems = (
                    None if rack_footprint is None else rack_footprint.per_rack * aim.max_racks
                )
                racks = None if rack_footprint is None else rack_footprint.racks
                return OverRacks(
                    racks=racks,
                    most_racks=aim.max_racks,
                    rack_kw=aim.rack_kw,
                    **self._carried(candidate, systems),
                )
        return None

    def _carried(self, candidate: Candidate, systems: int | None) -> dict[str, Any]:
        """What ``systems`` of a candidate carry, standby ones included; fewer than it takes carry
        less than it is for.
        """
        if systems is None:
            return {}
        demanded_rate, needed = (
            self.question.demand.sizing_requests_per_second,
            _serving(candidate, self.question.spare),
        )
        serving = max(0, systems - (candidate.systems - needed))
        carried = candidate.fleet.of(serving).instances * candidate.sized_rate
        carried = carried if carried < demanded_rate else demanded_rate * serving / needed
        return {
            "system": candidate.system,
            "most_systems": systems,
            "most_requests_per_second": carried,
        }

    def _paid(self, plan: Plan, candidate: Candidate, usd: float | None) -> dict[str, Any]:
        """The systems of a candidate that the budget buys, or pays for in a year, where the whole
        is too dear.
        """
        budget = self.aim.budget_usd
        if usd is None or budget is None:
            return {}
        if self.aim.budget_of == "year":
            return self._of_a_year(plan, candidate, budget)
        return self._carried(candidate, math.floor(budget / (usd / candidate.systems) + 1e-9))

    def _of_a_year(self, plan: Plan, candidate: Candidate, budget_usd: float) -> dict[str, Any]:
        """The most instances of a candidate whose own load costs no more in a year, owned or
        rented, and the systems that hold them.
        """
        demanded_rate, traffic, model = (
            self.question.demand.sizing_requests_per_second,
            traffic_of(plan),
            catalog_id(plan.scenario.model),
        )
        standing, rate = (
            candidate.systems - _serving(candidate, self.question.spare),
            candidate.sized_rate,
        )

        def held(instances: int) -> int:
            return candidate.fleet.holding(instances).systems + standing

        def paid(instances: int) -> bool:
            fewer = candidate.on(
                systems=held(instances), instances=candidate.fleet.of(held(instances)).instances
            )
            load = traffic.times(instances * rate / demanded_rate)
            usd = outlay(
                fewer, load, self.prices, spare=self.question.spare, model=model, where=self.where
            ).own_usd_per_year
            return usd is not None and usd <= budget_usd

        low, high = 0, math.ceil(demanded_rate / rate)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if paid(middle) else (low, middle)
        return {
            "system": candidate.system,
            "most_systems": held(low) if low else 0,
            "most_requests_per_second": low * rate,
        }


def _or_infinite(amount: float | None) -> float:
    """The amount; infinity where it is not known, so that it is never the least."""
    return math.inf if amount is None else amount


def _usd(spent: Outlay) -> tuple[float, float]:
    """USD of one job on rented GPUs, and of a year of the candidate's own GPUs."""
    return (_or_infinite(spent.job_usd), _or_infinite(spent.own_usd_per_year))


def _of_types(
    running: Sequence[Candidate], spent: Mapping[int, Outlay]
) -> dict[tuple[str, int], Outlay]:
    """The cost of the deployment that the search prefers, for each type and number of GPUs."""
    preferred: dict[tuple[str, int], Outlay] = {}
    for candidate in sorted(running, key=by_gpus_needed):
        preferred.setdefault((candidate.gpu, candidate.gpus), spent[id(candidate)])
    return preferred


def _serving(candidate: Candidate, spare: int) -> int:
    """Systems that carry load."""
    return (
        candidate.systems
        - spare
        - (0 if candidate.standby is None else candidate.standby.extra_systems)
    )


def chosen(
    question: Question,
    plan: Plan,
    scenario: Scenario,
    *,
    prices: Prices,
    where: tuple[Where, ...],
    search: Search,
) -> Plan:
    """The plan with the choice that the scenario asks for. Raises InputError: a cost is to be the
    least and no candidate has a price.
    """
    aim, reserve = aim_of(scenario.choice), reserve_of(scenario.standby)
    plain = aim is None and reserve is None
    if not plan.candidates or (plain and plan.demand.of_existing):
        return plan
    race = Race(question=question, aim=aim or Aim(), reserve=reserve, prices=prices, where=where)
    first = race.prepared(plan.candidates[0])
    running = [first, *(race.prepared(candidate) for candidate in plan.candidates[1:])]
    sure, out = {id(first)}, list[Rejected]()
    while True:
        spent = {id(candidate): race.outlay(plan, candidate) for candidate in running}
        _check_priced(race.aim, list(spent.values()))
        of_types = _of_types(running, spent)
        running.sort(
            key=lambda candidate: race.key(
                candidate, spent[id(candidate)], of_types[candidate.gpu, candidate.gpus]
            )
        )
        if plain and running[0] is first:
            return plan
        broken = {
            id(candidate): race.broken(plan, candidate, spent[id(candidate)])
            for candidate in running
        }
        best = next((candidate for candidate in running if broken[id(candidate)] is None), None)
        if best is None or id(best) in sure or len(sure) > MOST_CHECKED:
            break
        again = search(replace(_alone(question, best), deepen=False), rows=False)
        place = running.index(best)
        if again.choice is None:
            running.pop(place)
            out += [rejected(best.identity, rejection.reason) for rejection in again.rejected[:1]]
            continue
        running[place] = race.prepared(again.choice)
        sure.add(id(running[place]))
    if best is None and question.load == "open" and not question.offline:
        _carried_by_search(question, running, broken, search)
    if best is not None and id(best) not in sure:
        best = next(
            candidate
            for candidate in running
            if broken[id(candidate)] is None and id(candidate) in sure
        )
    over = [
        rejected(candidate.identity, why)
        for candidate in running
        if (why := broken[id(candidate)]) is not None
    ]
    remaining = [
        candidate
        for candidate in running
        if broken[id(candidate)] is None and candidate is not best
    ]
    candidates = () if best is None else (best, *remaining)
    deep = None if best is None else plan if best is first else search(_alone(question, best))
    return _with_candidates(plan, deep, candidates, (*over, *out, *plan.rejected), aim)


def _carried_by_search(
    question: Question,
    running: Sequence[Candidate],
    broken: dict[int, Reason | None],
    search: Search,
) -> None:
    """Put what the search finds that the allowed systems, or instances, carry in place of what
    division says, of what carries most.
    """
    searched_ids = set[int]()
    while True:
        carried_rates = {
            id(candidate): getattr(broken[id(candidate)], "most_requests_per_second", None) or 0.0
            for candidate in running
        }
        best = max(running, key=lambda candidate: carried_rates[id(candidate)])
        why = broken[id(best)]
        if (
            id(best) in searched_ids
            or not carried_rates[id(best)]
            or not isinstance(why, Most)
            or why.most_systems is None
        ):
            return
        searched_ids.add(id(best))
        narrowed_question = narrowed(question, best)
        system, count = (
            system_for(question, narrowed_question.gpus[0]),
            why.most_systems - (best.systems - _serving(best, question.spare)),
        )
        # single instances are paid for
        if (
            isinstance(why, OverBudget)
            and why.budget_of == "year"
            and best.parallelism.gpus < system.gpus
        ):
            system, count = (
                replace(system, gpus=best.parallelism.gpus),
                round(carried_rates[id(best)] / best.sized_rate),
            )
        existing = search(
            replace(
                narrowed_question, have=(Owned(count=count, system=system),), spare=0, deepen=False
            ),
            rows=False,
        ).existing
        if existing is None:
            return
        carried = existing.requests_per_second
        rented = system.gpus == best.parallelism.gpus  # which the price counts as the whole fleet's
        broken[id(best)] = replace(
            why,
            most_requests_per_second=min(carried, carried_rates[id(best)]) if rented else carried,
        )


def with_runner_up(
    question: Question, plan: Plan, *, prices: Prices, where: tuple[Where, ...], search: Search
) -> Plan:
    """The plan with the best deployment on another GPU type; arguments as of ``chosen``."""
    choice = plan.choice
    candidates_by_gpu = {
        candidate.gpu: candidate
        for candidate in reversed(plan.candidates)
        if choice is not None and candidate.gpu != choice.gpu
    }
    if choice is None or not candidates_by_gpu or question.offline or plan.demand.of_existing:
        return plan
    race = Race(question=question, aim=Aim(), reserve=None, prices=prices, where=where)

    def cost(candidate: Candidate) -> float | None:
        return race.outlay(plan, candidate).own_usd_per_year

    def order(candidate: Candidate) -> tuple[object, ...]:
        usd = cost(candidate)
        return (usd is None, usd or 0.0, *by_gpus_needed(candidate))

    choice_usd = cost(choice)
    for near in sorted(candidates_by_gpu.values(), key=order):
        rival = search(replace(_of_gpu(question, near), deepen=False), rows=False).choice
        if rival is None:
            continue
        usd = cost(rival)
        runner_up = RunnerUp(
            deployment=rival.identity,
            system=rival.system,
            systems=rival.systems,
            gpus=rival.gpus,
            systems_exact=rival.systems_exact,
            usd_per_year=usd,
            more_usd_per_year=None if usd is None or choice_usd is None else usd - choice_usd,
        )
        # its row came from short runs
        rows = tuple(
            rival if candidate.identity == rival.identity else candidate
            for candidate in plan.candidates
        )
        return replace(plan, runner_up=runner_up, candidates=rows)
    return plan


def _alone(question: Question, candidate: Candidate) -> Question:
    """The question for the GPU type of a candidate; where the shortest answers are requested, for
    the deployment itself.
    """
    return (
        narrowed(question, candidate)
        if question.objective == "latency"
        else _of_gpu(question, candidate)
    )


def _of_gpu(question: Question, candidate: Candidate) -> Question:
    """The question for the GPU type of a candidate alone."""
    gpus = tuple(gpu for gpu in question.gpus if gpu.name == candidate.gpu)
    return replace(question, gpus=gpus, have=(), growth_per_month=None)


def _check_priced(aim: Aim, spent: list[Outlay]) -> None:
    """Refuse to look for the least of what is known of no candidate. Raises InputError: no price,
    or no power, is known.
    """
    if aim.objective == "cost" and all(outlay.cheapest_usd_per_year is None for outlay in spent):
        raise InputError(
            f"{option('objective')}: cost cannot decide, as none of the deployments has a price;"
            f" give {option('price')}"
        )
    if aim.objective == "power" and all(outlay.system_watts is None for outlay in spent):
        raise InputError(
            f"{option('objective')}: power cannot decide, as that of none of the systems is known"
        )


def _with_candidates(
    plan: Plan,
    deep: Plan | None,
    candidates: tuple[Candidate, ...],
    out: tuple[Rejected, ...],
    aim: Aim | None,
) -> Plan:
    """The plan with other candidates, and all that it says of its choice taken from the answer to
    that one alone.
    """
    if deep is None:
        nothing: dict[str, Any] = dict.fromkeys(OF_THE_CHOICE)
        return replace(
            plan,
            candidates=(),
            rejected=out,
            pareto=(),
            aim=aim,
            curve=(),
            warnings=(),
            routers=(),
            **nothing,
        )
    standby = candidates[0].standby
    return replace(
        deep,
        scenario=plan.scenario,
        existing=plan.existing,
        candidates=candidates,
        rejected=out,
        reachable=plan.reachable,
        pareto=pareto(candidates) if plan.pareto else (),
        sensitivity=shifted(deep.sensitivity, 0 if standby is None else standby.extra_systems),
        aim=aim,
    )
