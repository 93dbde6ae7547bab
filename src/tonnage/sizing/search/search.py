"""Every deployment against every other: closed forms prune, simulation decides, knobs are tuned, the fleet is checked.

The order of simulation, and with it what is pruned, depends on the question alone and never on how threads
are scheduled: deployments of one GPU are tried in waves, best bound first, and only finished waves prune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tonnage.plan.candidate import Candidate, by_gpus_needed
from tonnage.plan.fleet_check import FleetCheck
from tonnage.plan.reason import BrokenOnManyInstances
from tonnage.plan.rejected import Rejected
from tonnage.sizing.loads.bounds import FAR, Carried, beaten, bound_per_gpu, exceeded, far_behind
from tonnage.sizing.loads.capacity import Capacity, find_capacity, open_capacity
from tonnage.sizing.loads.confidence import at_confidence, factors_at, sharpened, step_errors
from tonnage.sizing.loads.fleet_check import FleetAtPeak, check
from tonnage.sizing.loads.load_scan import QUICK, SURE, Care
from tonnage.sizing.loads.offline import offline_capacity
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.loads.trace_capacity import replay_capacity
from tonnage.sizing.parallel import parallel
from tonnage.sizing.question import Question
from tonnage.sizing.search.candidate import candidate
from tonnage.sizing.search.tuning import decisive_rate_per_gpu, tuned

Progress = Callable[[int, int, str], None]
"""Called with (candidates done, candidates in all, the one just finished)."""

WAVE = 4
"""Deployments of one GPU that are simulated before the next are compared with them."""

TUNED = 4
"""Deployments whose knobs are searched: those with the most requests per second and GPU."""

RECHECKED = 12
"""Most deployments whose whole fleet is simulated before one of them is chosen; more systems than the division asks for cost a place."""


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
    question: Question,
    prepared: Sequence[Ready | Rejected],
    *,
    progress: Progress = no_progress,
    workers: int | None = None,
    far: float = FAR,
    prune: bool = True,
) -> Answer:
    """Find the candidates of a question among prepared deployments.

    Args:
        question: what is asked.
        prepared: the deployments.
        progress: called after each of them.
        workers: threads to simulate on.
        far: a deployment that carries less than the best one on its GPU over this factor is left out; 1 to look for the best alone.
        prune: False to simulate every deployment and every setting of every knob in full, which is what ``./benchmark pruning``
            compares with: it takes many times as long, for the same answer.

    Raises:
        KeyboardInterrupt: passed on once the running simulations have ended.
    """
    found, rejected = compete(question, prepared, progress=progress, workers=workers, far=far, prune=prune)
    found = _tuned(question, found, workers, prune)
    return ranked(question, found, rejected, workers)


def compete(
    question: Question,
    prepared: Sequence[Ready | Rejected],
    *,
    progress: Progress = no_progress,
    workers: int | None = None,
    far: float = FAR,
    prune: bool = True,
) -> tuple[list[Carried], list[Rejected]]:
    """Simulate what the closed forms do not rule out: the deployments inside the limits with the engines' own knobs, and the rejected."""
    outcomes: dict[int, Carried | Rejected] = {i: p for i, p in enumerate(prepared) if isinstance(p, Rejected)}
    done = len(outcomes)
    carried: dict[str, list[Carried]] = {}
    care = SURE if sum(isinstance(one, Ready) for one in prepared) <= TUNED else QUICK
    for wave in _waves(prepared, WAVE if far > 1 else 1):
        before = {gpu: list(others) for gpu, others in carried.items()}
        jobs = [(ready, before.get(ready.trial.deployment.gpu.name, []) if prune else []) for ready in wave]
        for (ready, _), outcome in parallel(lambda job: _attempt(question, *job, care, far), jobs, workers):
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
    for _ in parallel(lambda carried: sharpened(question, carried), found, workers):
        pass
    pairs = _sorted([(candidate(question, c), c) for c in found])
    verdict: FleetCheck | None = None
    failed: list[Rejected] = []
    if question.load == "open" and not question.offline:
        pairs, verdict, failed = _checked(question, pairs)
    return Answer(candidates=tuple(c for c, _ in pairs), carried=tuple(c for _, c in pairs), rejected=(*rejected, *failed), check=verdict)


def measure(question: Question, ready: Ready, above: float = 0.0, care: Care = QUICK) -> Capacity:
    """What one instance carries, by the kind of demand; ``above`` and ``care`` as for ``find_capacity``."""
    demand = question.demand
    if demand.offline_requests is not None and demand.offline_seconds is not None:
        return offline_capacity(ready.instance, demand.offline_requests, demand.offline_seconds)
    if question.recording is not None:
        return replay_capacity(ready.instance, question.recording, question.replays_lengths)
    return find_capacity(ready.instance, above, care)


def fleet_under(question: Question, carried: Carried) -> FleetAtPeak:
    """The deployment as a fleet under the question's demand, with steps as slow as the asked confidence allows for."""
    demand = question.demand.sizing_requests_per_second
    slow, asked = at_confidence(question, carried), carried.ready.instance.asked.slo
    return FleetAtPeak(slow, demand, question.recording, question.replays_lengths, asked)


def _waves(prepared: Sequence[Ready | Rejected], wave: int) -> Iterator[list[Ready]]:
    """The k-th ``wave`` of every GPU together, best bound first."""
    groups: dict[str, list[Ready]] = {}
    for ready in prepared:
        if isinstance(ready, Ready):
            groups.setdefault(ready.trial.deployment.gpu.name, []).append(ready)
    for group in groups.values():
        group.sort(key=bound_per_gpu, reverse=True)
    longest = max((len(group) for group in groups.values()), default=0)
    for start in range(0, longest, wave):
        yield [ready for group in groups.values() for ready in group[start : start + wave]]


def _attempt(question: Question, ready: Ready, others: list[Carried], care: Care, far: float) -> Carried | Rejected:
    """Find what the deployment carries, or why it is left out."""
    reason = beaten(ready, others)
    if reason is not None:
        return ready.trial.rejected(reason)
    capacity = measure(question, ready, exceeded(ready, others, far), care)
    if capacity.reason is None:
        return Carried(ready=ready, capacity=capacity)
    return ready.trial.rejected(far_behind(ready, others, capacity, far) or capacity.reason)


def _tuned(question: Question, found: list[Carried], workers: int | None, prune: bool) -> list[Carried]:
    """The best few, with their load found in longer runs, and with other knobs where these make one of them the best of all."""
    if question.load != "open" or question.offline or question.recording is not None:
        return found

    def surely(place: int) -> Carried:
        ready = found[place].ready
        capacity = open_capacity(ready.instance, care=SURE)
        return Carried(ready=ready, capacity=capacity) if capacity.reason is None else found[place]

    best = sorted(range(len(found)), key=lambda i: (-found[i].rate_per_gpu, i))[: TUNED if prune else None]
    for place, sure in parallel(surely, best, workers):
        found[place] = sure
    if not question.tune or not question.free_moves:
        return found
    slow = {place: factors_at(step_errors(question, found[place]), question.confidence) for place in best}
    rates = {place: decisive_rate_per_gpu(found[place], slow[place]) for place in best}
    for place in sorted(best, key=lambda i: (-rates[i], i)):
        rival = max(rates.values()) if prune else 0.0
        found[place] = tuned(found[place], question.free_moves, slow[place], rival, workers=workers, prune=prune)
        rates[place] = decisive_rate_per_gpu(found[place], slow[place])
    return found


def _sorted(pairs: list[tuple[Candidate, Carried]]) -> list[tuple[Candidate, Carried]]:
    return sorted(pairs, key=lambda pair: (*by_gpus_needed(pair[0]), pair[1].ready.place))


Pair = tuple[Candidate, Carried]
"""What the plan says of a deployment, and the deployment."""


def _checked(question: Question, pairs: list[Pair]) -> tuple[list[Pair], FleetCheck | None, list[Rejected]]:
    """The candidates with the first of them at a number of systems that the whole fleet was seen to hold; and those that hold at none.

    The check only adds systems, so that the first candidate that keeps its place needs no more than any other would.
    """
    verdicts: dict[int, FleetCheck] = {}
    failed: list[Rejected] = []
    while pairs and id(pairs[0][1]) not in verdicts and len(verdicts) + len(failed) < RECHECKED:
        first, carried = pairs[0]
        verdict = check(fleet_under(question, carried), first.systems - question.spare)
        if verdict.holds:
            verdicts[id(carried)] = verdict
            pairs = _sorted([(candidate(question, carried, verdict.systems), carried), *pairs[1:]])
        else:
            failed.append(carried.ready.trial.rejected(_never_holds(verdict)))
            pairs = pairs[1:]
    known = [pair for pair in pairs if id(pair[1]) in verdicts]
    pairs = [*known[:1], *(pair for pair in pairs if pair not in known[:1])]
    return pairs, verdicts.get(id(pairs[0][1])) if pairs else None, failed


def _never_holds(verdict: FleetCheck) -> BrokenOnManyInstances:
    """The limit that breaks on the largest fleet that was simulated."""
    largest = max((run for run in verdict.runs if run.worst is not None), key=lambda run: run.systems)
    return BrokenOnManyInstances(breach=largest.worst, instances=largest.instances)  # type: ignore[arg-type]
