"""What requests see at the asked peak: of the choice in a simulation of its whole fleet, of the others in one of an instance's share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tonnage.plan.at_peak import AtPeak
from tonnage.sizing.loads.fleet_check import FleetAtPeak, simulated_of
from tonnage.sizing.loads.trace_capacity import noted_replay

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.results.metrics import Summary
    from tonnage.sizing.loads.bounds import Carried
    from tonnage.sizing.question import Question
    from tonnage.sizing.search.search import Answer


def at_peaks(question: Question, found: Answer, workers: int | None = None) -> tuple[AtPeak | None, ...]:
    """Of every candidate of an answer, in their order; None for a job and for a closed loop, which have no peak."""
    if question.offline or question.load != "open":
        return (None,) * len(found.candidates)

    def one(place: int) -> AtPeak:
        candidate, carried = found.candidates[place], found.carried[place]
        return _of_choice(question, candidate, carried) if place == 0 else _of_share(question, candidate, carried)

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return tuple(pool.map(one, range(len(found.candidates))))


def _serving(question: Question, candidate: Candidate) -> int:
    """Instances on the systems that are no spare ones."""
    return candidate.pool.fleet.of(candidate.systems - question.spare).instances


def _of_choice(question: Question, candidate: Candidate, carried: Carried) -> AtPeak:
    load, count = question.demand.sizing_requests_per_second, _serving(question, candidate)
    fleet = FleetAtPeak(carried, load, question.recording, question.replays_lengths)
    together = count if question.recording is not None else simulated_of(carried.ready.instance, count, load)
    return _made(candidate, load / count, fleet.summary(candidate.systems - question.spare)[0], together)


def _of_share(question: Question, candidate: Candidate, carried: Carried) -> AtPeak:
    load, count, instance = question.demand.sizing_requests_per_second, _serving(question, candidate), carried.ready.instance
    if question.recording is not None:
        return _made(candidate, load / count, noted_replay(instance, question.recording, count, question.replays_lengths), count)
    return _made(candidate, load / count, instance.measured(load / count), 1)


def _made(candidate: Candidate, share: float, summary: Summary, together: int) -> AtPeak:
    return AtPeak(
        requests_per_second_per_instance=share,
        ttft_ms=summary.ttft_ms,
        itl_ms=summary.itl_ms,
        tpot_ms=summary.tpot_ms,
        e2e_ms=summary.e2e_ms,
        utilisation=candidate.utilisation,
        instances=together,
    )
