"""An engine on a clock gives the tokens when the simulator says, whatever the wake-ups."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.engines import STEP_S, engine
from tonnage.results.requests import COMPLETED
from tonnage.serve.instance import Instance, WallClock
from tonnage.serve.prefix import Content
from tonnage.simulator.request import Request

STEP_NS = round(STEP_S * 1e9)


class Wall:
    """A wall whose time passes when a test says so; it rings what was set."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.alarms: list[int] = []
        self.instance: Instance | None = None

    def set(self, moment_ns: int) -> None:
        self.alarms.append(moment_ns)

    def until_quiet(self) -> None:
        assert self.instance is not None
        for _ in itertools.takewhile(lambda _: self.alarms, range(100_000)):
            self.now_ns = max(self.now_ns, self.alarms.pop())
            self.alarms.clear()
            self.instance.wake()


def served(
    speed: float = 1.0, kv_blocks: int = 200, *, prefix_caching: bool = False
) -> tuple[Wall, Instance, list[float]]:
    wall = Wall()
    late: list[float] = []
    simulated = engine(kv_blocks, prefix_caching=prefix_caching)
    instance = Instance("0", simulated, WallClock(speed, lambda: wall.now_ns))
    instance.wakes_by(wall.set, late.append)
    wall.instance = instance
    return wall, instance, late


@pytest.mark.parametrize("speed", [1.0, 10.0, 0.5])
def test_tokens_come_at_the_ends_of_steps(speed: float) -> None:
    wall, instance, late = served(speed)
    came: list[int] = []
    began = wall.now_ns
    instance.submit(0, isl=100, osl=5, deliver=lambda tokens, status: came.append(wall.now_ns))
    assert not came
    wall.until_quiet()
    assert [round((at - began) * speed / STEP_NS, 3) for at in came] == [1, 2, 3, 4, 5]
    assert max(late) < 1e-6
    assert instance.member.tokens == 0
    assert not instance.member.live


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 400), st.integers(1, 30)),
        min_size=1,
        max_size=12,
    ),
    extra=st.lists(st.integers(0, 200), max_size=8),
)
def test_what_is_delivered_is_what_the_engine_makes_by_itself(
    requests: list[tuple[int, int, int]], extra: list[int]
) -> None:
    wall, instance, _ = served()
    ordered = sorted(requests, key=lambda r: r[0])
    alone, began, made = engine(), wall.now_ns, defaultdict(list[tuple[int, int]])
    instants = sorted(
        [(began + ms * 1_000_000, i) for i, (ms, _, _) in enumerate(ordered)]
        + [(began + ms * 1_000_000, -1) for ms in extra]
    )
    for moment, which in instants:
        while wall.alarms and wall.alarms[-1] <= moment:
            wall.now_ns = max(wall.now_ns, wall.alarms[-1])
            wall.alarms.clear()
            instance.wake()
        wall.now_ns = max(wall.now_ns, moment)
        if which < 0:
            instance.wake()
            continue
        _, isl, osl = ordered[which]
        at = max((wall.now_ns - began) * 1_000, instance.member.engine.now)
        alone.submit(Request(id=which, isl=isl, osl=osl, at=at))
        instance.submit(
            which,
            isl=isl,
            osl=osl,
            deliver=lambda tokens, status, which=which: made[which].append((tokens, status)),
        )
    wall.until_quiet()
    happened = alone.advance()
    for which in range(len(ordered)):
        expected = [
            (int(t), int(s))
            for n, t, s in zip(happened.ids, happened.tokens, happened.status, strict=True)
            if n == which
        ]
        assert made[which] == expected
    assert instance.member.tokens == 0


def test_a_late_wake_up_hands_out_everything_that_was_due() -> None:
    wall, instance, late = served()
    came: list[tuple[int, int]] = []
    instance.submit(0, isl=100, osl=5, deliver=lambda tokens, status: came.append((tokens, status)))
    wall.now_ns += 100 * STEP_NS
    instance.wake()
    assert [tokens for tokens, _ in came] == [1] * 5
    assert came[-1][1] == COMPLETED
    assert max(late) > 90 * STEP_S
    assert not instance.member.live


def test_a_client_that_leaves_gives_up_its_slot_and_its_blocks() -> None:
    wall, instance, _ = served()
    came: list[int] = []
    instance.submit(0, isl=100, osl=500, deliver=lambda tokens, status: came.append(tokens))
    wall.now_ns += 10 * STEP_NS
    instance.wake()
    before = len(came)
    assert instance.cancel(0)
    assert not instance.cancel(0)
    wall.until_quiet()
    assert len(came) == before
    assert instance.member.engine.kv_blocks_used == 0
    assert instance.member.tokens == 0


def test_first_tokens_leave_before_the_others_of_their_step() -> None:
    wall, instance, _ = served()
    order: list[int] = []
    for number in range(3):
        instance.submit(
            number,
            isl=10,
            osl=50,
            deliver=lambda tokens, status, number=number: order.append(number),
        )
    for _ in range(5):
        wall.now_ns = wall.alarms.pop()
        instance.wake()
    instance.submit(4, isl=10, osl=3, deliver=lambda tokens, status: order.append(4))
    order.clear()
    while 4 not in order:
        order.clear()
        wall.now_ns = wall.alarms.pop()
        instance.wake()
    assert order == [4, 0, 1, 2]


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "left"])
def test_nothing_of_a_request_is_kept_after_its_end(ends: bool) -> None:
    """A server that runs for days keeps neither prompts nor outputs: 4,000 requests with outputs of
    1,000 tokens had 780 MB."""
    wall, instance, _ = served(kv_blocks=40, prefix_caching=True)
    preempted = 0
    for number in range(20):
        instance.submit(
            number,
            isl=100,
            osl=80,
            deliver=lambda tokens, status: None,
            content=Content([number] * 100, "", lambda place: place),
        )
    assert len(instance.engine.live._rows) == 20
    if ends:
        wall.until_quiet()
        assert all(job.status == COMPLETED for job in instance.engine.jobs.values())
        preempted = instance.engine.preemptions()
        assert preempted > 0
    for number in range(20):
        assert instance.cancel(number) is not ends
    assert instance.engine.jobs == {}
    assert instance.engine.live._rows == {}
    assert ends is False or instance.engine.preemptions() == preempted
    wall.until_quiet()
    instance.submit(20, isl=100, osl=5, deliver=lambda tokens, status: None)
    wall.until_quiet()
    assert instance.engine.jobs[20].status == COMPLETED


# Simulated time on the wall, at any pace, and with changes of pace.

START = 1_000_000_000
CHANGES = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from([1.0, 1.15, 5.0, 0.5, math.inf])),
    max_size=5,
    unique_by=lambda change: change[0],
).map(sorted)


def changed(speed: float, changes: Sequence[tuple[float, float]]) -> WallClock:
    """A clock that is not read but asked."""
    clock = WallClock(speed, lambda: START)
    clock.change(changes)
    return clock


@given(
    speed=st.sampled_from([1.0, 10.0, 0.3]),
    changes=CHANGES,
    moments=st.lists(st.integers(0, 25 * 10**9), min_size=1),
)
def test_time_never_goes_back_and_a_moment_is_the_first_at_which_a_time_is_reached(
    speed: float, changes: list[tuple[float, float]], moments: list[int]
) -> None:
    clock = changed(speed, changes)
    times = [clock.at(START + moment) for moment in sorted(moments)]
    assert times == sorted(times)
    for at in times:
        moment = clock.moment_ns(at)
        assert clock.at(moment) >= at
        assert at == 0 or clock.at(moment - 1) < at


def test_a_slow_stretch_and_a_standstill() -> None:
    clock = changed(2.0, [(1, 4.0), (3, math.inf), (5, 1.0)])
    seconds = [clock.at(START + s * 10**9) / 1e12 for s in range(7)]
    assert seconds == [0, 2, 2.5, 3, 3, 3, 5]
    assert clock.moment_ns(int(3e12) + 1) == START + 5 * 10**9 + 1


def test_a_clock_that_stands_still_for_ever_never_arrives() -> None:
    clock = changed(1.0, [(1, math.inf)])
    assert clock.moment_ns(2 * 10**12) > START + 365 * 86_400 * 10**9
