"""Priority levels and their policies are Triton's rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.simulator.services.queue import ModelQueue, Ticket
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
