"""Priority levels and their policies are Triton's rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.simulator.services.queue import NO_DEADLINE, ModelQueue, Ticket
from tonnage.spec.service import DynamicBatching, QueuePolicy


def queued(items, *, batching=None, most=8, at=None):
    queue = ModelQueue(batching or DynamicBatching(), most)
    for number, (size, since) in enumerate(zip(items, at or [0] * len(items), strict=True)):
        queue.enter(Ticket(request=number, stage=0, items=size, since=since), 0, 0.0)
    return queue


def sizes(formed):
    return [ticket.items for ticket in formed.batch]


class TestTritonsRules:
    """docs/user_guide/batcher.md and dynamic_batch_scheduler.cc of Triton (June 2026)."""

    @pytest.mark.parametrize(
        ("items", "preferred", "delay", "most", "sent"),
        [
            ([1] * 9, (4, 8), 0, 16, [1] * 8),
            ([1] * 7, (4, 8), 0, 16, [1] * 4),
            ([1] * 3, (4, 8), 0, 16, [1] * 3),  # no preferred size can be formed
            ([1] * 11, (), 0, 8, [1] * 8),
            ([3, 6], (4, 8), 0, 16, [3]),  # with the second it would pass all preferred sizes
            ([1, 1, 2], (4,), 100, 8, [1, 1, 2]),  # filled before the delay is over
        ],
    )
    def test_what_is_sent_at_once(self, items, preferred, delay, most, sent):
        rules = DynamicBatching(preferred_batch_size=preferred, max_queue_delay_microseconds=delay)
        assert sizes(queued(items, batching=rules, most=most).form(0)) == sent

    def test_a_batch_waits_for_its_size_as_long_as_the_delay_allows(self):
        rules = DynamicBatching(preferred_batch_size=(4,), max_queue_delay_microseconds=100)
        queue = queued([1, 1], batching=rules, at=[10, 20])
        assert queue.form(30) == ([], [], 10 + 100_000_000)
        assert sizes(queue.form(10 + 100_000_000)) == [1, 1]

    def test_a_level_is_served_before_the_next_and_in_order(self):
        queue = ModelQueue(DynamicBatching(priority_levels=2, default_priority_level=2), 3)
        for number, level in enumerate([0, 1, 2, 1]):
            queue.enter(Ticket(request=number, stage=0, items=1, since=0), level, 0.0)
        assert [ticket.request for ticket in queue.form(0).batch] == [1, 3, 0]

    @pytest.mark.parametrize(
        ("action", "batch", "expired"), [("REJECT", [1], [0]), ("DELAY", [1, 0], [])]
    )
    def test_a_request_that_waited_too_long_is_rejected_or_goes_behind_the_others(
        self, action, batch, expired
    ):
        queue = ModelQueue(
            DynamicBatching(
                default_queue_policy=QueuePolicy(
                    timeout_action=action, default_timeout_microseconds=1
                )
            ),
            8,
        )
        queue.enter(Ticket(request=0, stage=0, items=1, since=0), 0, 0.0)
        queue.enter(Ticket(request=1, stage=0, items=1, since=900_000), 0, 0.0)
        formed = queue.form(1_000_000)
        assert (
            [ticket.request for ticket in formed.batch],
            [ticket.request for ticket in formed.expired],
        ) == (batch, expired)

    def test_a_request_brings_a_shorter_timeout_only_where_that_is_allowed(self):
        for allowed, wanted in ((True, 500_000), (False, 1_000_000)):
            queue = ModelQueue(
                DynamicBatching(
                    default_queue_policy=QueuePolicy(
                        default_timeout_microseconds=1, allow_timeout_override=allowed
                    )
                ),
                8,
            )
            ticket = Ticket(request=0, stage=0, items=1, since=0)
            queue.enter(ticket, 0, 0.5e-6)
            assert ticket.deadline == wanted

    def test_a_full_queue_takes_no_more(self):
        queue = ModelQueue(DynamicBatching(default_queue_policy=QueuePolicy(max_queue_size=2)), 8)
        assert [
            queue.enter(Ticket(request=n, stage=0, items=1, since=0), 0, 0.0) for n in range(3)
        ] == [True, True, False]

    @given(
        items=st.lists(st.integers(1, 8), min_size=1, max_size=30),
        preferred=st.sets(st.integers(1, 8), max_size=3),
        delay=st.sampled_from([0, 1]),
        now=st.integers(0, 2_000_000),
    )
    @settings(max_examples=60)
    def test_a_batch_is_the_first_of_the_queue_and_never_too_large(
        self, items, preferred, delay, now
    ):
        queue = queued(
            items,
            batching=DynamicBatching(
                preferred_batch_size=tuple(sorted(preferred)), max_queue_delay_microseconds=delay
            ),
        )
        formed = queue.form(now)
        assert sizes(formed) == items[: len(formed.batch)]
        assert sum(sizes(formed)) <= 8
        assert len(queue) == len(items) - len(formed.batch)
        assert formed.batch or formed.wake is not None


US = 1_000_000


def entered(rules: DynamicBatching | None, *tickets: tuple[int, int, int], most: int = 8):
    """A queue of tickets of so many items since a microsecond, with a level."""
    queue = ModelQueue(rules, most)
    for number, (items, since, level) in enumerate(tickets):
        queue.enter(Ticket(request=number, stage=0, items=items, since=since * US), level, 0.0)
    return queue


def test_what_passes_the_preferred_size_leaves_without_waiting_for_it() -> None:
    """Of 3 and 2 items neither the first nor both are a batch of 4: the first leaves alone, and
    where its delay is over all that fit."""
    rules = DynamicBatching(preferred_batch_size=(4,), max_queue_delay_microseconds=10)
    for now, batch in ((9, [3]), (10, [3, 2])):
        formed = entered(rules, (3, 0, 0), (2, 1, 0)).form(now * US)
        assert (sizes(formed), formed.wake) == (batch, None)


@pytest.mark.parametrize(
    ("tickets", "delay", "now", "batch", "wake"),
    [
        ([(1, 0, 0), (1, 3, 0)], 10, 9, [], 10),
        ([(1, 0, 0), (1, 3, 0)], 10, 10, [1, 1], None),
        ([(1, 5, 0), (1, 3, 0)], 10, 9, [], 13),  # the one that waits for longest, wherever it is
        ([(4, 0, 0), (4, 0, 0), (1, 0, 0)], 10, 0, [4, 4], None),  # the largest is full
        ([(5, 0, 0), (4, 0, 0)], 10, 0, [5], None),  # the second has no room
        ([(7, 0, 0)], 10, 0, [], 10),
        ([(8, 0, 0)], 10, 0, [8], None),
        ([(9, 0, 0), (1, 0, 0)], 10, 0, [9], None),  # larger than the largest, by itself
        ([(1, 0, 0)], 0, 0, [1], None),
        ([], 10, 5, [], None),
    ],
)
def test_when_a_batch_of_eight_leaves_by_hand(tickets, delay, now, batch, wake) -> None:
    queue = entered(DynamicBatching(max_queue_delay_microseconds=delay), *tickets)
    formed = queue.form(now * US)
    assert (sizes(formed), formed.expired) == (batch, [])
    assert formed.wake == (None if wake is None else wake * US)
    assert len(queue) == len(tickets) - len(batch)


def test_without_dynamic_batching_each_leaves_alone_and_nothing_is_waited_for() -> None:
    queue = entered(None, (3, 0, 0), (2, 0, 0))
    assert [queue.form(0) for _ in range(3)][2] == ([], [], None)
    queue = entered(None, (3, 0, 0), (2, 0, 0))
    first = queue.form(0)
    assert (sizes(first), first.expired, first.wake, len(queue)) == ([3], [], None, 1)


@pytest.mark.parametrize(
    ("default", "override", "brought", "deadline"),
    [
        (0, True, 2e-6, 2),
        (0, True, 0.0, None),
        (0, False, 2e-6, None),
        (5, True, 2e-6, 2),
        (5, True, 9e-6, 5),
        (5, True, 0.0, 5),
        (5, False, 2e-6, 5),
    ],
)
def test_the_deadline_of_a_request_by_its_policy(default, override, brought, deadline) -> None:
    policy = QueuePolicy(default_timeout_microseconds=default, allow_timeout_override=override)
    queue = ModelQueue(DynamicBatching(default_queue_policy=policy), 8)
    ticket = Ticket(request=0, stage=0, items=1, since=100)
    assert queue.enter(ticket, 0, brought)
    assert ticket.deadline == (NO_DEADLINE if deadline is None else 100 + deadline * US)


def test_levels_have_policies_of_their_own_and_a_look_is_due_at_the_first_deadline() -> None:
    """Level 1 may wait 3 µs, level 2 any time; a delay of 10 µs."""
    rules = DynamicBatching(
        priority_levels=2,
        default_priority_level=2,
        max_queue_delay_microseconds=10,
        priority_queue_policy={1: QueuePolicy(default_timeout_microseconds=3)},
    )
    queue = entered(rules, (1, 0, 0), (1, 1, 1), (1, 1, 2))
    assert (queue.form(2 * US), len(queue)) == (([], [], 4 * US), 3)
    late = queue.form(4 * US)
    assert ([ticket.request for ticket in late.expired], late.batch) == ([1], [])
    assert (late.wake, len(queue)) == (10 * US, 2)
    assert [ticket.request for ticket in queue.form(10 * US).batch] == [0, 2]
    assert len(queue) == 0
