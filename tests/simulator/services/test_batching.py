"""Dynamic batching against Triton's documented examples and measurements, and against closed forms
of batch service."""

from __future__ import annotations

import math

import ciw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.results.requests import COMPLETED, FAILED, REJECTED
from tonnage.simulator.services import run_service
from tonnage.simulator.services.queue import ModelQueue, Ticket
from tonnage.sizing.services import load
from tonnage.spec.service import DynamicBatching, QueuePolicy, passes, service_of


def service(model, traffic, **server):
    document = {
        "service": {"models": {"m": model}, **server},
        "traffic": [{"to": "m", **one} for one in traffic],
    }
    return service_of(document, "test")


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


TUTORIAL = {"time": {"1": "9ms"}, "max_batch_size": 8}
"""The example of NVIDIA's Triton tutorials, part 2: a batch takes X = 9 ms whatever its size, and
the largest has 8."""


@pytest.mark.parametrize(
    ("batching", "rounds"), [(None, 5), ({}, 3), ({"max_queue_delay_microseconds": 6000}, 2)]
)
def test_the_tutorials_five_requests_take_five_three_or_two_rounds(batching, rounds):
    """A and C of 4 and 2 items come at 0, B of 2 at X/3, D and E of 6 and 2 at 2X/3: without
    dynamic batching 5X, with it 3X."""
    from tonnage.simulator.services import _Run

    model = TUTORIAL if batching is None else {**TUTORIAL, "dynamic_batching": batching}
    came = [(0, 4), (0, 2), (3, 2), (6, 6), (6, 2)]
    traffic = [{"rate": 1.0, "items": items} for _, items in came]
    run = _Run(service(model, traffic), [np.array([ms * 10**9]) for ms, _ in came], 5)
    run.go()
    assert len(run.requests) == 5
    batches = sum(run.models["m"].batches.values())
    assert batches == rounds
    begins = 0 if batching is None or not batching else 3
    assert run.now == (begins + 9 * rounds) * 10**9


MEASURED = {
    2: (955.7, 998.1),
    4: (977.3, 1765.7),
    6: (973.4, 2518.5),
    8: (974.6, 3095.9),
    12: (976.2, 3181.3),
    16: (975.0, 3187.8),
}
"""Inferences per second by clients of 2 items each, without and with dynamic batching: a text
recogniser on one A100, measured with perf_analyzer in NVIDIA's Triton tutorials, part 2 (read
2026-11-22)."""


@pytest.mark.parametrize("clients", MEASURED)
def test_throughput_is_within_six_percent_of_what_nvidia_measured(clients):
    """Two numbers are taken from the table, the times of 2 and of 8 items; the turnaround is its
    send, receive and overhead."""
    for batching, measured in zip((None, {}), MEASURED[clients], strict=True):
        model = {"time": {"2": "2.05ms", "8": "2.51ms"}, "max_batch_size": 8}
        model |= {} if batching is None else {"dynamic_batching": batching}
        run = run_service(
            service(model, [{"concurrency": clients, "items": 2, "turnaround_microseconds": 54}]),
            requests=2000,
            seed=0,
        )
        rate = 2 * len(run.requests) / (run.requests.last_token_ns.max() / 1e9)
        assert rate == pytest.approx(measured, rel=0.06)


def mean_sojourn(rate, seconds):
    """Mean time in a queue M/D^[1,b]/1 whose server takes all that wait, at most b, as soon as it
    is free and one is there.

    Args:
        rate: Poisson arrivals a second.
        seconds: of a batch of 1 to b.

    The chain of those left behind at the ends of batches (Bailey 1954; Neuts 1967, the general bulk
    service rule with a = 1) is solved by iteration; Little's law turns the mean number into a time.
    """
    b, states = len(seconds), 60 * len(seconds)
    came = np.zeros((b, states))
    for k in range(b):
        mean = rate * seconds[k]
        came[k] = [math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(states)]
    step = np.zeros((states, states))
    for left in range(states):
        size = min(max(left, 1), b)
        rest = max(left - b, 0)
        step[left, rest:] = came[size - 1][: states - rest]
    step /= step.sum(axis=1, keepdims=True)
    share = np.linalg.matrix_power(step, 1 << 14)[0]
    size = np.minimum(np.maximum(np.arange(states), 1), b)
    lasts, rest = np.array(seconds)[size - 1], np.maximum(np.arange(states) - b, 0)
    waiting = share @ (rest * lasts + rate * lasts**2 / 2)
    present = share @ ((rest + size) * lasts + rate * lasts**2 / 2)
    cycle = share @ lasts + share[0] / rate
    return waiting / cycle / rate, present / cycle / rate


@pytest.mark.parametrize(
    ("rate", "table", "most"),
    [
        (700.0, {"1": "1ms"}, 1),  # M/D/1
        (1200.0, {"1": "1ms", "4": "2.5ms"}, 4),
        *(
            pytest.param(rate, {"1": "2ms"}, 8, marks=pytest.mark.accuracy)
            for rate in (1500.0, 3000.0)
        ),
    ],
)
def test_the_mean_time_is_that_of_bulk_service(rate, table, most):
    model = {"time": table, "max_batch_size": most, "dynamic_batching": {}}
    wanted = service(model, [{"rate": rate}])
    run = run_service(wanted, requests=40_000, seed=3)
    times = [wanted.models["m"].time.of(size) for size in range(1, most + 1)]
    waits, takes = mean_sojourn(rate, times)
    assert run.waited_s["m"] == pytest.approx(waits, rel=0.04)
    assert run.latencies_s().mean() == pytest.approx(takes, rel=0.04)
    if most == 1:
        assert run.busy[0] == pytest.approx(0.7, rel=0.02)


@pytest.mark.parametrize(("overlap", "mean_s"), [(0.0, 1e-3 / 0.3), (1.0, 1e-3)])
def test_many_instances_on_a_gpu_share_it(overlap, mean_s):
    """Processor sharing has the mean 1 / (μ − λ) whatever the distribution of the work; where
    nothing is shared, nothing waits."""
    shared = service({"time": {"1": "1ms"}, "instances": 64}, [{"rate": 700.0}], overlap=overlap)
    assert run_service(shared, requests=40_000, seed=1).latencies_s().mean() == pytest.approx(
        mean_s, rel=0.03
    )


def test_answers_keep_the_order_of_requests_where_that_is_asked_for():
    model = {
        "time": {"1": "1ms", "8": "8ms"},
        "max_batch_size": 8,
        "instances": 4,
        "dynamic_batching": {"preserve_ordering": True},
    }
    run = run_service(
        service(model, [{"rate": 900.0, "items": 1}, {"rate": 200.0, "items": 7}], overlap=1.0),
        requests=3000,
        seed=2,
    )
    assert (run.requests.status == COMPLETED).all()
    assert (np.diff(run.requests.last_token_ns) >= 0).all()


def test_queues_reject_and_time_out_under_overload_and_nobody_is_lost():
    policy = {"default_timeout_microseconds": 5000, "max_queue_size": 20}
    model = {"time": {"1": "1ms"}, "dynamic_batching": {"default_queue_policy": policy}}
    run = run_service(service(model, [{"rate": 3000.0}]), requests=5000, seed=2)
    counts = {
        status: int((run.requests.status == status).sum())
        for status in (COMPLETED, REJECTED, FAILED)
    }
    assert sum(counts.values()) == 5000
    assert counts[REJECTED] > 100
    assert counts[FAILED] > 100
    assert run.latencies_s()[run.requests.status == COMPLETED].max() <= 6.001e-3


# Pipelines (Triton's ensembles) against Ciw, and stages that wait for each other.


def test_two_models_in_a_row_take_as_long_as_in_ciw():
    rate, first, second = 900.0, 1.6, 0.9
    document = {
        "service": {
            "gpus": 3,
            "models": {
                "a": {"time": {"1": f"{first}ms"}, "gpus": [0, 1]},
                "b": {"time": {"1": f"{second}ms"}, "gpus": [2]},
            },
            "pipelines": {"both": ["a", "b"]},
        },
        "traffic": [{"to": "both", "rate": rate}],
    }
    run = run_service(service_of(document, "test"), requests=20_000, seed=5)
    ciw.seed(1)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate), None],
        service_distributions=[
            ciw.dists.Deterministic(first / 1e3),
            ciw.dists.Deterministic(second / 1e3),
        ],
        number_of_servers=[2, 1],
        routing=[[0.0, 1.0], [0.0, 0.0]],
    )
    simulated = ciw.Simulation(network)
    simulated.simulate_until_max_time(15.0)
    records = simulated.get_all_records()
    waits = {
        node: np.mean([one.waiting_time for one in records if one.node == node]) for node in (1, 2)
    }
    assert run.waited_s["a"] == pytest.approx(waits[1], rel=0.1)
    assert run.waited_s["b"] == pytest.approx(waits[2], rel=0.1)
    assert run.latencies_s().mean() == pytest.approx(
        (first + second) / 1e3 + waits[1] + waits[2], rel=0.04
    )


def test_a_stage_waits_for_all_that_it_comes_after():
    models = {
        name: {"time": {"1": f"{ms}ms"}}
        for name, ms in {"split": 1, "left": 5, "right": 2, "join": 1}.items()
    }
    steps = [
        "split",
        "left",
        {"model": "right", "after": ["split"]},
        {"model": "join", "after": ["left", "right"]},
    ]
    document = {
        "service": {"models": models, "pipelines": {"all": steps}, "overlap": 1.0},
        "traffic": [{"to": "all", "rate": 0.1}],
    }
    run = run_service(service_of(document, "test"), requests=20, seed=0)
    assert run.latencies_s() == pytest.approx(np.full(20, 7e-3))


def branching(rate):
    """Every request is classified; 60 % go to one reader, 30 % to another, the rest to neither; all
    are checked, 25 % again and again."""
    models = {
        name: {"time": {"1": f"{ms}ms"}}
        for name, ms in {"classify": 1, "short": 2, "long": 8, "check": 1}.items()
    }
    steps = [
        "classify",
        {"model": "short", "share": 0.6},
        {"model": "long", "share": 0.75, "instead_of": "short"},
        {"model": "check", "again": 0.25},
    ]
    document = {
        "service": {"models": models, "pipelines": {"p": steps}, "gpus": 4},
        "traffic": [{"to": "p", "rate": rate}],
    }
    return service_of(document, "test")


def test_branches_and_loops_are_taken_by_their_shares():
    service = branching(0.1)
    assert passes(service.streams[0].stages) == pytest.approx((1, 0.6, 0.3, 4 / 3))
    assert load(branching(1000.0)) == pytest.approx((1 + 0.6 * 2 + 0.3 * 8 + 4 / 3) / 4)
    run = run_service(service, requests=4000, seed=1)
    done = {name: sum(batches.values()) / 4000 for name, batches in run.batches.items()}
    assert done == pytest.approx(
        {"classify": 1, "short": 0.6, "long": 0.3, "check": 4 / 3}, abs=0.03
    )
    seconds = run.latencies_s()
    assert seconds.mean() == pytest.approx(1e-3 * (1 + 0.6 * 2 + 0.3 * 8 + 4 / 3), rel=0.05)
    # neither, the first, the second reader, with one check
    assert {2, 4, 10} <= set(np.rint(seconds * 1e3).astype(int))
