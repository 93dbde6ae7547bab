"""Pipelines, attention ranks and speculative decoding: what a server hands out is what the
simulator makes of the same requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.deployments import deployment
from tonnage.api.running.plans import Instances
from tonnage.api.running.serve import engines_of
from tonnage.evidence.replay import replay
from tonnage.results.requests import COMPLETED
from tonnage.serve.instance import Fleet, Instance, WallClock
from tonnage.simulator.simulate import simulate
from tonnage.spec.deployment import Deployment, Parallelism, Speculation
from tonnage.spec.lengths import parse_lengths
from tonnage.spec.workload import OpenLoop, Workload

PLAIN = deployment("llama-3-8b", engine="vllm-0.32")
KINDS = {
    "plain": PLAIN,
    "speculative": replace(
        PLAIN, speculation=Speculation(method="ngram", tokens=3, acceptance=0.7)
    ),
    "pipeline": replace(PLAIN, parallelism=Parallelism(tp=1, pp=2)),
    "ranks": replace(
        deployment("mixtral-8x7b", engine="vllm-0.32"), parallelism=Parallelism(tp=1, dp=4, ep=4)
    ),
}
LOAD = Workload(
    isl=parse_lengths("uniform:100-900", "isl"),
    osl=parse_lengths("uniform:5-40", "osl"),
    arrivals=OpenLoop(rate=25.0),
    requests=60,
)
GPUS = 8


@pytest.mark.parametrize("kind", list(KINDS))
def test_tokens_are_handed_out_when_the_simulator_makes_them(kind: str) -> None:
    deployed: Deployment = KINDS[kind]
    asked = simulate(PLAIN, LOAD, seed=3)
    told = replay(asked, deployed, gpus_per_system=GPUS)
    mean = round(float(asked.isl.mean()))
    make = engines_of(
        Instances(deployment=deployed, instances=1, gpus_per_system=GPUS, prompt_tokens=mean)
    )
    now_ns = [0]
    ranks = deployed.parallelism.dp
    fleet = Fleet(
        [Instance(str(i), make(), WallClock(1.0, lambda: now_ns[0])) for i in range(ranks)],
        "least-outstanding",
        ranks=ranks,
    )
    came: dict[int, list[int]] = {}
    ends: dict[int, int] = {}

    def until(moment: int) -> None:
        """Let time pass, nanosecond by nanosecond where something happens."""
        while True:
            events = [at for one in fleet.instances if (at := one.member.next_event()) is not None]
            if not events or -(-min(events) // 1000) > moment:
                break
            now_ns[0] = max(now_ns[0], -(-min(events) // 1000))
            for one in fleet.instances:
                one.wake()
        now_ns[0] = max(now_ns[0], moment)

    order = np.argsort(told.due_ns, kind="stable")
    for row in order.tolist():
        until(int(told.due_ns[row]))

        def deliver(tokens: int, status: int, row: int = row) -> None:
            came.setdefault(row, []).extend([now_ns[0]] * tokens)
            ends[row] = status

        fleet.submit(isl=int(told.isl[row]), osl=int(told.osl[row]), deliver=deliver)
    until(10**15)
    assert set(ends.values()) == {COMPLETED}
    assert [len(came[row]) for row in range(len(told))] == told.osl.tolist()
    near = 5_000  # picoseconds are rounded to the nanoseconds of a wall at every arrival
    later = np.array(
        [
            [
                came[row][0] - int(told.first_token_ns[row]),
                came[row][-1] - int(told.last_token_ns[row]),
            ]
            for row in came
        ]
    )
    if ranks == 1:
        assert np.abs(later).max() <= near
    else:  # served ranks do not wait for each other
        assert later.mean() < 0
    assert set().union(*(one.slot_at for one in fleet.instances)) == set(range(len(told)))


def submitted(fleet: Fleet) -> tuple[int, str]:
    """A request's number, and the name of the instance that got it."""
    sent: list[str] = []
    number = fleet.submit(
        isl=10,
        osl=5,
        deliver=lambda tokens, status: None,
        sent=lambda number, to: sent.append(to.name),
    )
    return number, sent[0]


def test_requests_go_to_the_ranks_of_an_instance_in_turn() -> None:
    make = engines_of(
        Instances(deployment=KINDS["ranks"], instances=2, gpus_per_system=GPUS, prompt_tokens=1)
    )
    fleet = Fleet(
        [Instance(str(i), make(), WallClock(1.0, lambda: 0)) for i in range(8)],
        "round-robin",
        ranks=4,
    )
    names = [submitted(fleet)[1] for _ in range(10)]
    assert names == ["0", "4", "1", "5", "2", "6", "3", "7", "0", "4"]


def test_a_router_counts_the_requests_of_all_ranks_of_an_instance() -> None:
    make = engines_of(
        Instances(deployment=KINDS["ranks"], instances=2, gpus_per_system=GPUS, prompt_tokens=1)
    )
    fleet = Fleet(
        [Instance(str(i), make(), WallClock(1.0, lambda: 0)) for i in range(4)],
        "least-outstanding",
        ranks=2,
    )
    sent = [submitted(fleet) for _ in range(4)]
    assert sorted(name for _, name in sent) == ["0", "1", "2", "3"]
    # the first rank of the first instance, and both of the second, have nothing left
    for number, name in sent:
        if name != "1":
            fleet.cancel(number)
            fleet.ended(number)
    assert submitted(fleet)[1] in ("2", "3")
