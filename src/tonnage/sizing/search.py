"""Every deployment against every other: closed forms prune, simulation decides, knobs are tuned, the fleet is checked.

The order of simulation, and with it what is pruned, depends on the question alone and never on how threads
are scheduled: deployments of one GPU are tried in waves, best bound first, and only finished waves prune.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TypeVar

from tonnage.plan.candidate import Candidate, by_gpus_needed
from tonnage.plan.fleet_check import FleetCheck
from tonnage.plan.reason import Reason
from tonnage.plan.rejected import Rejected
from tonnage.sizing.bounds import Carried, beaten, bound_per_gpu, far_behind
from tonnage.sizing.candidate import candidate
from tonnage.sizing.capacity import Capacity, confirmed, find_capacity, unscreened
from tonnage.sizing.confidence import at_confidence, sharpened
from tonnage.sizing.fleet_check import FleetAtPeak, check
from tonnage.sizing.offline import offline_capacity
from tonnage.sizing.question import Question
from tonnage.sizing.search_space import Ready
from tonnage.sizing.trace_capacity import replay_capacity
from tonnage.sizing.tuning import tuned

Progress = Callable[[int, int, str], None]
"""Called with (candidates done, candidates in all, the one just finished)."""

T = TypeVar("T")
R = TypeVar("R")

WAVE = 4
"""Deployments of one GPU that are simulated before the next are compared with them."""

TUNED = 3
"""Deployments whose knobs are searched: those with the most requests per second and GPU."""

RECHECKED = 3
"""Most choices that the fleet check goes through: a choice that needs another system may lose its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The outcome.

    Attributes:
        candidates: best first.
        carried: the simulated deployment of each candidate, in the same order.
        rejected: every other deployment.
        check: of the whole fleet of the first; None where nothing was chosen or the load is no open one.
    """

    candidates: tuple[Candidate, ...]
    carried: tuple[Carried, ...]
    rejected: tuple[Rejected, ...]
    check: FleetCheck | None


def no_progress(done: int, total: int, name: str) -> None:
    """Report nothing."""


def answer(
    question: Question, prepared: Sequence[Ready | Rejected], *, progress: Progress = no_progress, workers: int | None = None
) -> Answer:
    """Find the candidates of a question among prepared deployments.

    Raises:
        KeyboardInterrupt: passed on once the running simulations have ended.
    """
    found, rejected = compete(question, prepared, progress=progress, workers=workers)
    found = _tuned(question, found, workers)
    return ranked(question, found, rejected, workers)


def compete(
    question: Question, prepared: Sequence[Ready | Rejected], *, progress: Progress = no_progress, workers: int | None = None
) -> tuple[list[Carried], list[Rejected]]:
    """Simulate what the closed forms do not rule out: the deployments inside the limits with the engines' own knobs, and the rejected."""
    outcomes: dict[int, Carried | Rejected] = {i: p for i, p in enumerate(prepared) if isinstance(p, Rejected)}
    done = len(outcomes)
    carried: dict[str, list[Carried]] = {}
    for wave in _waves(prepared):
        before = {gpu: list(others) for gpu, others in carried.items()}
        jobs = [(ready, before.get(ready.trial.deployment.gpu.name, [])) for ready in wave]
        for (ready, _), outcome in _parallel(lambda job: _attempt(question, *job), jobs, workers):
            outcomes[prepared.index(ready)] = outcome
            done += 1
            progress(done, len(prepared), ready.trial.name)
        for ready in wave:
            outcome = outcomes[prepared.index(ready)]
            if isinstance(outcome, Carried):
                carried.setdefault(ready.trial.deployment.gpu.name, []).append(outcome)
    in_order = [outcomes[i] for i in range(len(prepared))]
    return [o for o in in_order if isinstance(o, Carried)], [o for o in in_order if isinstance(o, Rejected)]


def ranked(question: Question, found: Sequence[Carried], rejected: Sequence[Rejected], workers: int | None = None) -> Answer:
    """The candidates best first, the first of them checked as a whole fleet and corrected by what that shows."""
    for _ in _parallel(lambda carried: sharpened(question, carried), found, workers):
        pass
    pairs = _sorted([(candidate(question, c), c) for c in found])
    verdict = None
    if pairs and question.load == "open" and not question.offline:
        pairs, verdict = _checked(question, pairs)
    return Answer(candidates=tuple(c for c, _ in pairs), carried=tuple(c for _, c in pairs), rejected=tuple(rejected), check=verdict)


def measure(question: Question, ready: Ready, screen: Callable[[], Reason | None] = unscreened) -> Capacity:
    """What one instance carries, by the kind of demand."""
    demand = question.demand
    if demand.offline_requests is not None and demand.offline_seconds is not None:
        return offline_capacity(ready.instance, demand.offline_requests, demand.offline_seconds)
    if question.recording is not None:
        return replay_capacity(ready.instance, question.recording, question.replays_lengths)
    return find_capacity(ready.instance, screen)


def fleet_under(question: Question, carried: Carried) -> FleetAtPeak:
    """The deployment as a fleet under the question's demand, with steps as slow as the asked confidence allows for."""
    demand = question.demand.sizing_requests_per_second
    return FleetAtPeak(at_confidence(question, carried), demand, question.recording, question.replays_lengths)


def _waves(prepared: Sequence[Ready | Rejected]) -> Iterator[list[Ready]]:
    """The k-th ``WAVE`` of every GPU together, best bound first."""
    groups: dict[str, list[Ready]] = {}
    for ready in prepared:
        if isinstance(ready, Ready):
            groups.setdefault(ready.trial.deployment.gpu.name, []).append(ready)
    for group in groups.values():
        group.sort(key=bound_per_gpu, reverse=True)
    longest = max((len(group) for group in groups.values()), default=0)
    for start in range(0, longest, WAVE):
        yield [ready for group in groups.values() for ready in group[start : start + WAVE]]


def _attempt(question: Question, ready: Ready, others: list[Carried]) -> Carried | Rejected:
    """Find what the deployment carries, or why it is left out."""
    reason = beaten(ready, others)
    if reason is not None:
        return ready.trial.rejected(reason)
    open_loop = question.load == "open" and question.recording is None
    capacity = measure(question, ready, (lambda: far_behind(ready, others)) if open_loop else unscreened)
    return Carried(ready=ready, capacity=capacity) if capacity.reason is None else ready.trial.rejected(capacity.reason)


def _tuned(question: Question, found: list[Carried], workers: int | None) -> list[Carried]:
    """The best few, with their knobs searched and their load verified in a long run; one that fails it is left as it was."""
    if question.load != "open" or question.offline or question.recording is not None:
        return found
    moves = question.free_moves if question.tune else ()

    def work(place: int) -> Carried:
        better = tuned(found[place], moves)
        capacity = confirmed(better.ready.instance, better.capacity)
        return Carried(ready=better.ready, capacity=capacity) if capacity.reason is None else better

    best = sorted(range(len(found)), key=lambda i: (-found[i].rate_per_gpu, i))[:TUNED]
    for place, better in _parallel(work, best, workers):
        found[place] = better
    return found


def _parallel(work: Callable[[T], R], jobs: Sequence[T], workers: int | None) -> Iterator[tuple[T, R]]:
    """Each job with its result, as they end; the simulator's kernel runs outside the interpreter lock."""
    with ThreadPoolExecutor(max_workers=workers or os.cpu_count()) as pool:
        futures: dict[Future[R], T] = {pool.submit(work, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _sorted(pairs: list[tuple[Candidate, Carried]]) -> list[tuple[Candidate, Carried]]:
    return sorted(pairs, key=lambda pair: (*by_gpus_needed(pair[0]), pair[1].ready.place))


def _checked(question: Question, pairs: list[tuple[Candidate, Carried]]) -> tuple[list[tuple[Candidate, Carried]], FleetCheck]:
    """The first candidate at the number of systems that the whole fleet shows to hold; the next where it loses its place."""
    verdicts: dict[int, FleetCheck] = {}
    for _ in range(RECHECKED):
        first, carried = pairs[0]
        if id(carried) in verdicts:
            break
        fleet = fleet_under(question, carried)
        verdict = verdicts[id(carried)] = check(fleet, first.systems - question.spare)
        pairs = _sorted([(candidate(question, carried, verdict.systems), carried), *pairs[1:]])
    first, carried = pairs[0]
    if id(carried) not in verdicts:
        fleet = fleet_under(question, carried)
        verdicts[id(carried)] = check(fleet, first.systems - question.spare)
        pairs = [(candidate(question, carried, verdicts[id(carried)].systems), carried), *pairs[1:]]
    return pairs, verdicts[id(carried)]
