"""The one door to an answer: which deployment carries the load on the fewest GPUs, at the asked
confidence, and on how many systems.

Deployments compete in the order in which closed forms rank them. One that closed forms, or a run at
the load that it would have to carry, show to need no fewer GPUs than the leader is left out; the
others are sized behind the requested router. Then the engine's knobs of near deployments are tried
in the same way, and the whole fleet of the winner is simulated. Everything that a plan claims is
this search with another question and the same ``Runs``.

Which runs are made, and so what is found, depends on the question alone and never on how threads
are scheduled: two deployments are tried side by side, and only finished pairs leave others out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from tonnage.plan.candidate import FAR, Candidate, Identity, first_rows
from tonnage.plan.fleet import FleetCheck
from tonnage.plan.reason import (
    Behind,
    BrokenEarly,
    NeedsMoreGpus,
    NotSure,
    Outdone,
    Reason,
    Rejected,
)
from tonnage.sizing.loads.capacity import Capacity
from tonnage.sizing.loads.confidence import Slowdown, levels
from tonnage.sizing.loads.fleet_check import check, never_holds
from tonnage.sizing.loads.instance import QUICK, SURE, Care
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.loads.trial import MARGIN, Ready
from tonnage.sizing.progress import Steps, parallel
from tonnage.sizing.question import Question
from tonnage.sizing.search.deployment_capacity import Contender, Sized
from tonnage.sizing.search.disaggregated import contenders_of, poolable
from tonnage.sizing.search.objectives import Aim, FewestGpus, Key, MostLoad, ShortestAnswers
from tonnage.sizing.search.search_space import narrowed, prepare
from tonnage.sizing.search.tuning import tries_front_ends, variants
from tonnage.sizing.search.warm_start import Learned, expecting, most_of, shares_of
from tonnage.spec.deployment import Deployment

EVEN = ("tpot", "itl", "e2e")
"""Metrics whose values change evenly with the load, so that what another setting does to them
hardly depends on it."""

WAVE = 2
"""Deployments that are tried side by side where others next to the best are sized too; otherwise
each is tried by itself."""

TUNED = 6
"""Deployments whose knobs are tried: the nearest to needing the fewest GPUs; of 200 random
questions one was answered best by the sixth."""

BUSIER, CLOSED = 1.03, 1.04
"""How many times as much as a busy engine completes it may complete with other knobs: more tokens
in a step, or fewer; and how many times as much as the closed form says it does complete."""

ALIKE = 1.1
"""How many times as much one setting may strain the limits as the best before it for the next to be
tried: a token budget that few steps fill changes little, and the next smaller one may halve the
longest gaps."""

IN_FULL = 0.9
"""Share of the load that it would have to carry at which a deployment is simulated where nothing is
left out by closed forms."""

LEAST = 0.2
"""A deployment that carries less than this share of its predicted load at a confidence does not
reach it: there the limits are those of a single client, and more systems hardly help."""

RECHECKED = 6
"""Most deployments whose whole fleet is simulated before one of them is chosen; more systems than
the search asks for cost a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome.

    Attributes:
        found: the deployments that meet the limits, best first; of each GPU type at least the best.
        rejected: every other deployment.
        check: of the whole fleet of the first; None where nothing was chosen or the load is no open
            one.
        prepared: every deployment that the question allows, before the search.
        learned: what this search learned.
    """

    found: tuple[Sized, ...]
    rejected: tuple[Rejected, ...]
    check: FleetCheck | None
    prepared: tuple[Ready | Rejected, ...]
    learned: Learned = field(default_factory=Learned)

    @property
    def best(self) -> Sized | None:
        """The answer."""
        return self.found[0] if self.found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The search of one question.

    Attributes:
        question: load, limits and what may be bought.
        runs: the memory.
        steps: counts the deployments that were tried.
        workers: threads to simulate on; the answer does not depend on it.
        prune: False to simulate every deployment, and every setting of every knob, at ``IN_FULL``
            of the load that it would have to carry, and in full where it carries that, whatever
            closed forms say: what ``./benchmark pruning`` compares with. It takes many times as
                long, for the same answer.
        care: how long the runs are that decide; where they are ``QUICK``, the number of systems is
            an estimate and no fleet is checked.
        rows: whether deployments next to the best are sized too: the best of every other GPU type,
            and others on the best one.
        aim: what deployments compete for.
        seeds: deployments that are tried next to those of the question, such as one with other
            knobs that is known to do well.
        first: the deployment that is tried first, as it is likely to be the best; the others are
            then left out sooner.
        only: whether the seeds alone are tried.
        learned: what an earlier search learned.
    """

    question: Question
    runs: Runs
    steps: Steps = field(default_factory=Steps, compare=False)
    workers: int | None = None
    prune: bool = True
    care: Care = SURE
    rows: bool = True
    aim: Aim = field(default_factory=FewestGpus)
    seeds: tuple[Ready, ...] = ()
    first: Identity | None = None
    only: bool = False
    learned: Learned = field(default_factory=Learned)

    def key(self, sized: Sized) -> tuple[float, ...]:
        """The sort key of deployments: first whether one reaches the confidence, then by the aim,
        then in the order of the trials.
        """
        unsure = sized.level is None or sized.level < self.question.confidence
        return (unsure, *self.aim.key(sized), sized.ready.place)

    def answer(self) -> Answer:
        """Find what carries the load on the fewest GPUs, or answers soonest on hardly more.

        Raises:
            InputError: the question contradicts itself.
            KeyboardInterrupt: passed on once the running simulations have ended.
        """
        if self.question.objective == "latency" and isinstance(self.aim, FewestGpus):
            fewest = replace(self, rows=False)._answer().best
            if fewest is not None:
                return replace(self, aim=ShortestAnswers(fewest))._answer()
        return self._answer()

    def _answer(self) -> Answer:
        """The answer by the aim."""
        prepared = [] if self.only else poolable(self.question, prepare(self.question, self.runs))
        ready = [candidate for candidate in prepared if isinstance(candidate, Ready)]
        contenders = contenders_of(self.question, ready, self.runs)
        seeds = contenders_of(self.question, self.seeds, self.runs)
        outcomes: dict[int, Outcome] = {}
        failed: dict[int, Rejected] = {}
        learned = Learned()
        while True:  # until a fleet holds, or no deployment is left whose fleet might
            remaining, more = (
                [candidate for candidate in group if candidate.ready.place not in failed]
                for group in (contenders, seeds)
            )
            for level in self._levels():
                quick = self._in_short_runs(remaining, level)
                search = replace(
                    self,
                    learned=replace(self.learned, shares=shares_of(quick) or self.learned.shares),
                )
                contest = Contest(search=search, level=level, care=self.care)
                winners = in_contest = contest.held(
                    [*remaining, *more],
                    first=quick[0].ready.place if quick else self._first(remaining),
                )
                outcomes.update(contest.outcomes)
                if winners:
                    learned = Learned(most=contest.most(remaining, quick), relief=contest.relief)
                    break
            winners, verdict, never = self._checked(winners)
            failed |= never
            if winners or not never:
                break
        if (
            verdict is not None
            and verdict.systems > verdict.by_division
            and (saving := search._saving(remaining, winners[0], in_contest))
        ):
            winners, verdict, never = self._checked(saving)
            failed |= never
        other_rows = (
            [*quick, *search._best_of_others(contenders, winners[0], outcomes)]
            if winners and self.rows
            else []
        )
        rows_by_place = {row.ready.place: row for row in (*other_rows, *winners)}
        alone = self._alone(winners[0], rows_by_place) if other_rows else {}
        failed |= {
            place: _not_sure(rows_by_place[place]) for place, row in alone.items() if row is None
        }
        rows_by_place |= {place: row for place, row in alone.items() if row is not None}
        if other_rows and (surer := self._surer(list(rows_by_place.values()), winners[0])):
            winners, verdict, never = self._checked(sorted((*winners, *surer), key=self.key))
            failed |= never
            rows_by_place |= {row.ready.place: row for row in winners if row.checked}
        rejected = [candidate for candidate in prepared if isinstance(candidate, Rejected)]
        for contender in contenders:
            if contender.ready.place in failed:
                rejected.append(failed[contender.ready.place])
            elif contender.ready.place not in rows_by_place:
                outcome = outcomes[contender.ready.place]
                rejected.append(
                    _outnumbered(outcome, winners[0])
                    if isinstance(outcome, Sized)
                    else contender.ready.trial.rejected(outcome)
                )
        beside = (
            row
            for place, row in rows_by_place.items()
            if place != winners[0].ready.place and place not in failed
        )
        ranked = (winners[0], *sorted(beside, key=self.key)) if winners else ()
        learned = replace(
            learned, shares=shares_of([row for row in outcomes.values() if isinstance(row, Sized)])
        )
        return Answer(
            found=ranked,
            rejected=tuple(rejected),
            check=verdict,
            prepared=tuple(prepared),
            learned=learned,
        )

    def _in_short_runs(self, contenders: list[Contender], level: float | None) -> list[Sized]:
        """The deployments by short runs, best first: of the longest runs, only the first and what
        comes near it then takes any.
        """
        if (
            self.care == QUICK
            or not self.prune
            or not self.question.drawn
            or isinstance(self.aim, ShortestAnswers)
        ):
            return []
        return Contest(search=self, level=level, care=QUICK).held(
            contenders, first=self._first(contenders), tune=False
        )

    def _first(self, contenders: list[Contender]) -> int | None:
        """The place of the deployment that ``first`` names."""
        return next(
            (
                contender.ready.place
                for contender in contenders
                if contender.ready.trial.identity == self.first
            ),
            None,
        )

    def _levels(self) -> list[float | None]:
        """The asked confidence, then the lower ones that a plan names, then none: an unreached one
        is not the answer.
        """
        confidence = self.question.confidence
        return [
            confidence,
            *sorted((level for level in levels(confidence) if level < confidence), reverse=True),
            None,
        ]

    def _checked(
        self, ranking: list[Sized]
    ) -> tuple[list[Sized], FleetCheck | None, dict[int, Rejected]]:
        """The deployments with the first of them at a number of systems that the whole fleet was
        seen to hold; others that never hold.

        The fleet of a deployment is simulated as long as no other one might do with less.
        """
        if (
            self.question.load != "open"
            or self.question.offline
            or isinstance(self.aim, MostLoad)
            or self.care == QUICK
        ):
            return ranking, None, {}
        verdicts: dict[int, FleetCheck] = {}
        failed: dict[int, Rejected] = {}
        ranking = [replace(row, checked=False) for row in ranking]
        while (
            remaining := [
                row
                for row in ranking
                if len(verdicts | failed) < RECHECKED or row.ready.place in verdicts
            ]
        ) and not remaining[0].checked:
            first, place = remaining[0], remaining[0].ready.place
            needed = verdicts[place].by_division if place in verdicts else first.systems
            verdict = verdicts[place] = check(
                first.contender.at_peak(first.slowdown),
                needed,
                partial(self._comes_first, first, remaining[1:2]),
            )
            ranking = [row for row in ranking if row is not first]
            if verdict.holds or verdict.systems > verdict.runs[-1].systems:
                ranking = sorted(
                    (replace(first, systems=verdict.systems, checked=verdict.holds), *ranking),
                    key=self.key,
                )
            else:
                failed[place] = first.ready.trial.rejected(never_holds(verdict))
        ranking = [*remaining[:1], *(row for row in ranking if row not in remaining[:1])]
        return ranking, verdicts.get(ranking[0].ready.place) if ranking else None, failed

    def _comes_first(self, sized: Sized, rivals: list[Sized], systems: int) -> bool:
        """Whether a deployment on so many systems still comes before the next best."""
        return (
            not rivals
            or not isinstance(self.aim, FewestGpus)
            or self.key(replace(sized, systems=systems)) < self.key(rivals[0])
        )

    def _saving(
        self, contenders: list[Contender], best: Sized, finalists: list[Sized]
    ) -> list[Sized]:
        """What the contest found, with others that need fewer GPUs than the best, whose fleet took
        more; empty if no other does.
        """
        contest = Contest(
            search=self, level=best.level, care=self.care, outcomes={best.ready.place: best}
        )
        rivals = contest.held(
            [contender for contender in contenders if contender.ready.place != best.ready.place]
        )
        better = {row.ready.place: row for row in rivals if row.gpus < best.gpus}
        return (
            sorted(({row.ready.place: row for row in finalists} | better).values(), key=self.key)
            if better
            else []
        )

    def _surer(self, finalists: list[Sized], best: Sized) -> list[Sized]:
        """Those of short runs that would do better than the best, sized in full: its fleet took
        more, or their knobs do.
        """
        contest = Contest(search=self, level=best.level, care=self.care)
        better = [row for row in finalists if row.care == QUICK and self.key(row) < self.key(best)]
        sized = [contest.attempt(row.contender, best=None) for row in better]
        return [row for row in sized if isinstance(row, Sized)]

    def _alone(self, best: Sized, kept: dict[int, Sized]) -> dict[int, Sized | None]:
        """The rows that a first screen shows, by place, as the question for each alone answers
        them; None where it finds no number.
        """
        question, recorded = (
            self.question,
            self.question.sharing is not None and self.question.sharing.recorded is not None,
        )
        if not (self.prune and question.drawn and isinstance(self.aim, FewestGpus)) or recorded:
            return {}
        rows = sorted(
            (
                row
                for place, row in kept.items()
                if place != best.ready.place and row.gpus <= FAR * best.gpus
            ),
            key=self.key,
        )
        shown = [
            rows[place]
            for place in first_rows([row.ready.trial.deployment.gpu.name for row in (best, *rows)])
        ]
        learned = Learned(shares=shares_of(list(kept.values())))
        search = replace(self, rows=False, only=True, workers=1, care=QUICK, learned=learned)

        def alone(sized: Sized) -> Sized | None:
            answer = replace(search, seeds=(sized.ready,)).answer().best
            if answer is None or (answer.level or 0.0) < (best.level or 0.0):
                return None
            checked, _, _ = self._checked([answer])
            return replace(checked[0], checked=False) if checked else None

        return {row.ready.place: answer for row, answer in parallel(alone, shown, self.workers)}

    def _best_of_others(
        self, contenders: list[Contender], best: Sized, outcomes: dict[int, Outcome]
    ) -> list[Sized]:
        """The best deployment of every other GPU type, and on the best one's type that of every
        other engine and format.
        """
        kinds: dict[tuple[str, ...], list[Contender]] = {}
        chosen = best.ready.trial.deployment
        for contender in contenders:
            d = contender.ready.trial.deployment
            same = (
                (d.precision.name, contender.ready.trial.identity.engine)
                if d.gpu == chosen.gpu
                else ()
            )
            kinds.setdefault((d.gpu.name, *same), []).append(contender)
        kinds.pop((chosen.gpu.name, chosen.precision.name, best.ready.trial.identity.engine), None)

        def strongest(kind: tuple[str, ...]) -> tuple[list[Sized], dict[int, Outcome]]:
            contest = Contest(
                search=replace(self, workers=1, rows=False), level=best.level, care=QUICK
            )
            return contest.held(kinds[kind], tune=False), contest.outcomes

        rows: list[Sized] = []
        for _, (winners, strongest_outcomes) in sorted(
            parallel(strongest, list(kinds), self.workers)
        ):
            rows += winners[:1]
            outcomes.update(strongest_outcomes)
        return rows


Outcome = Sized | Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Deployments against each other at one confidence.

    Attributes:
        search: the question, and how it is searched.
        level: the confidence; None for the prediction as it is.
        care: how long the runs are that decide.
        outcomes: of each deployment that was tried, by its place.
        tuned: the places of those whose knobs were tried.
        relief: of the settings that were tried, as of ``Learned``.
    """

    search: Search
    level: float | None
    care: Care = SURE
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    tuned: set[int] = field(default_factory=set)
    relief: dict[Deployment, float] = field(default_factory=dict)

    def held(
        self, contenders: Sequence[Contender], *, first: int | None = None, tune: bool = True
    ) -> list[Sized]:
        """The deployments that were sized, best first; that at the place ``first`` is tried before
        the others.

        They are tried in the order of what closed forms allow them times the share of it that their
        nearest relatives carry.
        """
        search = self.search
        search.steps.expect(len(contenders))
        remaining, learned = list(contenders), True
        while remaining:
            if learned:
                remaining = self._in_order(remaining, first)
            together = remaining[: WAVE if search.rows and remaining[0].ready.place != first else 1]
            remaining, before = remaining[len(together) :], self._sized()
            attempt = partial(self.attempt, best=self._best())
            with ThreadPoolExecutor(search.workers or os.cpu_count()) as pool:
                for contender, outcome in zip(together, pool.map(attempt, together), strict=True):
                    self._note(contender, outcome)
                    search.steps.done(contender.ready.trial.name)
            learned = self._sized() > before
        if tune and self._best() is not None:
            self.tune(contenders)
        return sorted(
            (row for row in self.outcomes.values() if isinstance(row, Sized)), key=search.key
        )

    def _in_order(self, contenders: list[Contender], first: int | None) -> list[Contender]:
        """The contenders in the order in which they are tried, each with the share that its nearest
        relative carries.
        """
        shares = self.search.learned.shares + shares_of(
            [outcome for outcome in self.outcomes.values() if isinstance(outcome, Sized)]
        )

        def key(contender: Contender) -> tuple[bool, Key, int]:
            allowed = contender.bound(self._slowdown(contender)) * (contender.share or 1.0)
            return (
                contender.ready.place != first,
                self.search.aim.at_best(contender, allowed),
                contender.ready.place,
            )

        return sorted((expecting(contender, shares) for contender in contenders), key=key)

    def _sized(self) -> int:
        """The number of deployments that were sized."""
        return sum(isinstance(outcome, Sized) for outcome in self.outcomes.values())

    def _best(self) -> Sized | None:
        """The leader."""
        return min(
            (outcome for outcome in self.outcomes.values() if isinstance(outcome, Sized)),
            key=self.search.key,
            default=None,
        )

    def _note(self, contender: Contender, outcome: Outcome) -> None:
        """Keep the outcome of a deployment, of several with different knobs the best."""
        before = self.outcomes.get(contender.ready.place)
        if not isinstance(before, Sized) or (
            isinstance(outcome, Sized) and self.search.key(outcome) < self.search.key(before)
        ):
            self.outcomes[contender.ready.place] = outcome

    def _slowdown(self, contender: Contender) -> Slowdown:
        return contender.as_asked if self.level is None else contender.slowdown(self.level)

    def _at_most(self, contender: Contender, slowdown: Slowdown) -> float:
        """Requests per second that an instance cannot exceed, by closed forms and what it carried
        in a question that differs little.
        """
        return contender.bound(slowdown) * min(
            MARGIN * self.search.learned.most.get(contender.ready.trial.deployment, 1.0), 1.0
        )

    def most(
        self, contenders: Sequence[Contender], quick: Sequence[Sized]
    ) -> dict[Deployment, float]:
        """The share of what closed forms allow that each carries at most, but for those whose knobs
        were tried: these may carry more.

        ``quick`` are those of short runs.
        """
        outcome_by_place: dict[int, Sized | Behind] = {row.ready.place: row for row in quick}
        outcome_by_place |= {
            place: outcome
            for place, outcome in self.outcomes.items()
            if isinstance(outcome, Sized | Behind)
        }
        shares: dict[Deployment, float] = {}
        for contender in contenders:
            outcome = outcome_by_place.get(contender.ready.place)
            if outcome is None or contender.ready.place in self.tuned:
                continue
            shares[contender.ready.trial.deployment] = most_of(
                contender, outcome, self._slowdown(contender)
            )
        return shares

    def attempt(
        self, contender: Contender, best: Sized | None, needed: float | None = None
    ) -> Outcome:
        """The deployment at its fewest systems, or why it is left out; ``needed`` in place of what
        it has to carry to be the best.
        """
        slowdown, gpus = (
            self._slowdown(contender),
            contender.ready.trial.deployment.parallelism.gpus,
        )
        needed = (
            needed
            if needed is not None
            else 0.0
            if best is None
            else self.search.aim.rate_to_beat(contender, best)
        )
        if not self.search.prune:
            needed *= IN_FULL
        elif best is not None and (bound := self._at_most(contender, slowdown)) <= needed:
            enough = needed / gpus if math.isfinite(needed) else None
            return Outdone(
                at_most_per_gpu=bound / gpus, other=best.ready.trial.identity, needed_per_gpu=enough
            )
        aim = self.search.aim
        sizing = (
            aim.sized(contender, slowdown, needed, self.care)
            if isinstance(aim, MostLoad)
            else contender.needed(slowdown, above=needed, care=self.care)
        )
        if isinstance(aim, ShortestAnswers) and isinstance(sizing, tuple):
            sizing = aim.counted(contender, slowdown, sizing, self.care)
        if not isinstance(sizing, tuple):
            if isinstance(sizing, BrokenEarly) and best is not None and needed > 0.0:
                rate = sizing.requests_per_second
                return Behind(
                    breach=sizing.breach,
                    requests_per_second=rate,
                    per_gpu=rate / gpus,
                    other=best.ready.trial.identity,
                )
            return sizing
        systems, capacity = sizing
        if self.level is not None and not self._reaches(contender, capacity, systems):
            return NotSure(
                breach=contender.alone_at(slowdown),
                step_factor=slowdown.steps / contender.as_asked.steps,
            )
        settled = replace(
            contender.settled_on(systems, slowdown),
            share=capacity.rate / bound if (bound := contender.bound(slowdown)) else 0.0,
        )
        return Sized(
            contender=settled, level=self.level, systems=systems, capacity=capacity, care=self.care
        )

    def tune(self, contenders: Sequence[Contender]) -> None:
        """Try other knobs of the deployments that need the fewest GPUs or came nearest to it, where
        these could save a system.
        """
        prune, question = self.search.prune, self.search.question
        if not (question.drawn and question.tune and question.free_moves):
            return
        for contender in self._near(contenders):
            best = self._best()
            needed = self._worth(contender)
            if prune and self._most_rps(contender) <= needed:
                continue
            self.tuned.add(contender.ready.place)
            start = self.attempt(contender, best, needed) if prune else None
            for way in variants(
                contender, self.outcomes[contender.ready.place], everything=not prune
            ):
                self._along(contender, way, start, needed)

    def _along(
        self, base: Contender, way: Sequence[Ready], start: Outcome | None, load: float
    ) -> None:
        """Try settings of a deployment that lead further and further away from its own, until one
        strains the limits more.

        ``start`` is the outcome with its own, at ``load`` requests per second.
        """
        used, relief = _used(start, load), self.search.learned.relief
        evenly = (
            used if isinstance(start, Behind) and start.breach.limit.metric in EVEN else math.inf
        )
        for ready in way:
            deployment = ready.trial.deployment
            if MARGIN < evenly * relief.get(deployment, 0.0) < math.inf:
                continue
            contender, best = replace(base, ready=ready), self._best()
            needed = self._worth(contender)
            outcome = self.attempt(contender, best, needed)
            self._note(contender, outcome)
            strained = _used(outcome, needed)
            if (
                needed == load
                and isinstance(outcome, Behind)
                and outcome.breach.limit.metric in EVEN
                and 1.0 < evenly < math.inf
            ):
                self.relief[deployment] = strained / evenly
            if self.search.prune and not isinstance(outcome, Sized) and strained > ALIKE * used:
                return
            used = min(used, strained)

    def _reaches(self, contender: Contender, capacity: Capacity, systems: int) -> bool:
        """Whether what is left at the confidence is more than next to nothing of what is
        predicted.
        """
        if (
            capacity.rate >= LEAST * contender.bound(contender.as_asked)
            or contender.question.offline
            or not contender.question.limits
        ):
            return True
        predicted = contender.capacity(
            contender.layout.of(systems).instances, above=capacity.rate / LEAST, care=QUICK
        )
        return predicted.reason is not None or capacity.rate >= LEAST * predicted.rate

    def _most_rps(self, contender: Contender) -> float:
        """Requests per second that an instance of a deployment cannot exceed with any knobs: hardly
        more than it completes when busy, unless more front ends would let it.
        """
        slowdown, outcome = self._slowdown(contender), self.outcomes[contender.ready.place]
        if tries_front_ends(contender, contender.bound(slowdown)):
            return contender.bound(slowdown)
        busy = (
            contender.saturation(slowdown)
            if isinstance(outcome, Sized)
            else CLOSED * contender.instance.saturation_estimate() / slowdown.steps
        )
        return min(contender.bound(slowdown), BUSIER * busy)

    def _worth(self, contender: Contender) -> float:
        """Requests per second that an instance has to carry with other knobs for these to save a
        system.
        """
        best, aim = self._best(), self.search.aim
        if best is None:
            return 0.0
        return (
            aim.rate_to_save(contender, best)
            if self.search.prune
            else aim.rate_to_beat(contender, best)
        )

    def _near(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The deployments that need the fewest GPUs, or came nearest to it, among deployments that
        could save a system with other knobs.
        """
        by_place = {contender.ready.place: contender for contender in contenders}
        tried = [
            by_place[place]
            for place, outcome in self.outcomes.items()
            if place in by_place and isinstance(outcome, Sized | Behind)
        ]
        if not self.search.prune:
            return tried
        tried = [
            contender for contender in tried if self._most_rps(contender) > self._worth(contender)
        ]
        return sorted(tried, key=self._distance)[:TUNED]

    def _distance(self, contender: Contender) -> tuple[float, int]:
        """How far a deployment is from needing the fewest GPUs: by how much a limit breaks at the
        load that it would have to carry.
        """
        outcome, best = self.outcomes[contender.ready.place], self._best()
        if isinstance(outcome, Sized) and outcome is not best:
            outcome = self.attempt(contender, best)
        needed = 0.0 if best is None else self.search.aim.rate_to_beat(contender, best)
        return (
            1.0 if isinstance(outcome, Sized) else _used(outcome, needed),
            contender.ready.place,
        )


def _used(outcome: Outcome | None, needed: float) -> float:
    """How far a limit is broken at the load that a deployment has to carry: 0 if it breaks only
    above that load; infinite where that is not known.
    """
    if not isinstance(outcome, Behind) or not outcome.breach.value_ms:
        return math.inf
    return (
        outcome.breach.value_ms / outcome.breach.limit.milliseconds
        if outcome.requests_per_second <= needed
        else 1.0
    )


def _outnumbered(sized: Sized, best: Sized) -> Rejected:
    """A deployment that was sized and needs more GPUs than the best."""
    exactly = sized.gpus_exact / sized.ready.trial.system.gpus
    reason = NeedsMoreGpus(
        gpus=sized.gpus,
        systems_exact=exactly,
        other=best.ready.trial.identity,
        other_gpus=best.gpus,
    )
    return sized.ready.trial.rejected(reason)


def _not_sure(sized: Sized) -> Rejected:
    """A deployment that short runs had found to carry the load with the confidence, and that by
    itself does not.
    """
    breach, times = (
        sized.contender.alone_at(sized.slowdown),
        sized.slowdown.steps / sized.contender.as_asked.steps,
    )
    return sized.ready.trial.rejected(NotSure(breach=breach, step_factor=times))


def alone(question: Question, candidate: Candidate, runs: Runs) -> Sized | None:
    """The deployment of a candidate, sized for the question by itself; None where it does not meet
    the limits.
    """
    return Search(question=narrowed(question, candidate), runs=runs, rows=False).answer().best
