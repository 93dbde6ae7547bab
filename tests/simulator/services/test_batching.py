"""Dynamic batching against Triton's documented examples and measurements, and against closed forms
of batch service."""

from __future__ import annotations

import math
from dataclasses import replace

import ciw
import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.results.requests import COMPLETED, FAILED, REJECTED
from tonnage.simulator import services as module
from tonnage.simulator.services import SharedGpu, _arrivals, _record, _Run, run_service
from tonnage.simulator.services.queue import Batch
from tonnage.sizing.services import load
from tonnage.spec.service import passes, service_of


def service(model, traffic, **server):
    document = {
        "service": {"models": {"m": model}, **server},
        "traffic": [{"to": "m", **one} for one in traffic],
    }
    return service_of(document, "test")


TUTORIAL = {"time": {"1": "9ms"}, "max_batch_size": 8}
"""The example of NVIDIA's Triton tutorials, part 2: a batch takes X = 9 ms whatever its size, and
the largest has 8."""


@pytest.mark.parametrize(
    ("batching", "rounds"), [(None, 5), ({}, 3), ({"max_queue_delay_microseconds": 6000}, 2)]
)
def test_the_tutorials_five_requests_take_five_three_or_two_rounds(batching, rounds):
    """A and C of 4 and 2 items come at 0, B of 2 at X/3, D and E of 6 and 2 at 2X/3: without
    dynamic batching 5X, with it 3X."""
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


def test_a_gpu_shares_its_speed_by_hand():
    """Half of the speed is won by a second batch: each then has 0.75 of it."""
    gpu = SharedGpu(0.5)
    long, short, later = (Batch(model="m", gpu=0, tickets=[]) for _ in range(3))
    assert (len(gpu), gpu.next_end(), gpu.version) == (0, None, 0)
    gpu.start(long, 1000, 0)
    assert (gpu.next_end(), gpu.version) == (1000, 1)
    gpu.start(short, 600, 200)
    assert (len(gpu), gpu.next_end(), gpu.version) == (2, 1000, 2)
    assert gpu.ended(999) == []
    assert gpu.ended(1000) == [short]
    assert (gpu.next_end(), gpu.version, gpu.busy_ps) == (1200, 4, 1000)
    assert gpu.ended(1200) == [long]
    assert (gpu.next_end(), gpu.busy_ps) == (None, 1200)
    gpu.start(later, 10, 5000)
    assert (gpu.next_end(), gpu.busy_ps) == (5010, 1200)
    assert gpu.ended(5010) == [later]
    assert gpu.busy_ps == 1210


def test_every_field_of_a_run_of_two_clients_by_hand():
    """The clients begin a microsecond apart and turn round in half a millisecond; a batch takes 1 ms,
    and one is computed at a time. The last client comes at 3.5 ms, and no request is left for it."""
    model = {"time": {"1": "1ms"}, "max_batch_size": 2}
    traffic = [{"concurrency": 2, "items": 2, "turnaround_microseconds": 500}]
    run = run_service(service(model, traffic), requests=3, seed=0)
    requests = run.requests
    assert requests.due_ns.tolist() == requests.sent_ns.tolist() == [0, 1_000, 1_500_000]
    ends = [1_000_000, 2_000_000, 3_000_000]
    assert requests.first_token_ns.tolist() == requests.last_token_ns.tolist() == ends
    assert (requests.isl.tolist(), requests.osl.tolist()) == ([2] * 3, [1] * 3)
    assert (requests.status == COMPLETED).all()
    for zeros in (requests.cached_tokens, requests.instance, requests.preemptions, run.stream):
        assert zeros.tolist() == [0] * 3
    assert requests.gaps.sum() == 0
    assert run.batches == {"m": {2: 3}}
    assert run.waited_s["m"] == pytest.approx((0.999e-3 + 0.5e-3) / 3)
    assert run.busy == (pytest.approx(3 / 3.5),)


def test_what_is_turned_away_by_hand():
    """Three come at once to an instance of 1 ms with a queue of one: the third finds it full, the
    second has waited too long when the first ends."""
    policy = {"max_queue_size": 1, "default_timeout_microseconds": 500}
    model = {"time": {"1": "1ms"}, "dynamic_batching": {"default_queue_policy": policy}}
    came = [np.array([0]), np.array([10**8]), np.array([2 * 10**8])]
    run = _Run(service(model, [{"rate": 1.0}] * 3), came, 3, 0)
    run.go()
    found = _record(run)
    assert found.requests.status.tolist() == [COMPLETED, FAILED, REJECTED]
    assert found.requests.instance.tolist() == [0, 0, -1]
    assert found.requests.last_token_ns.tolist() == [1_000_000, -1, -1]
    assert found.requests.osl.tolist() == [1, 0, 0]
    assert found.stream.tolist() == [0, 1, 2]
    assert found.batches == {"m": {1: 1}}


def test_arrivals_are_shared_out_by_rates_and_stretched_by_them():
    slow, fast = (
        _arrivals(service(TUTORIAL, [{"rate": rate}, {"rate": 3 * rate}]), 8, 4) for rate in (1, 2)
    )
    assert [len(column) for column in slow] == [2, 6]
    for stretched, column in zip(slow, fast, strict=True):
        assert np.diff(stretched).tolist() == pytest.approx((2 * np.diff(column)).tolist(), abs=2)
    with pytest.raises(InputError, match="1 or more"):
        run_service(service(TUTORIAL, [{"rate": 1.0}]), requests=0, seed=0)
    assert len(run_service(service(TUTORIAL, [{"rate": 1.0}]), requests=1, seed=0).requests) == 1


def test_the_end_that_was_foretold_before_another_batch_began_is_passed_over() -> None:
    """Two batches of 1 ms that take turns begin at 0 and 0.4 ms: the first ends at 1.6 ms, the
    other at 2 ms. The GPU is looked at for these two ends alone, not at 1 ms."""
    model = {"time": {"1": "1ms"}, "instances": 2}
    came = [np.array([0]), np.array([4 * 10**8])]
    run = _Run(service(model, [{"rate": 1.0}] * 2), came, 2)
    run.go()
    assert [request.ended for request in run.requests] == [16 * 10**8, 2 * 10**9]
    assert run.gpus[0].version == 2 + 2
    assert run.pushed == 2 + 2 + 1, "two arrivals, an end with each start, and one after an end"


def test_latencies_of_one_stream_and_of_all() -> None:
    """A stream of 10 requests a second and one of 30, of which one in four is the first's."""
    traffic = [{"rate": 1.0}, {"rate": 3.0}]
    run = run_service(service({"time": {"1": "1us"}}, traffic), requests=8, seed=0)
    assert [len(run.latencies_s(stream)) for stream in (None, 0, 1)] == [8, 2, 6]
    assert run.latencies_s() == pytest.approx(np.full(8, 1e-6))
    unanswered = replace(
        run, requests=replace(run.requests, status=np.where(run.stream == 0, FAILED, COMPLETED))
    )
    assert np.isinf(unanswered.latencies_s(0)).all()
    assert unanswered.latencies_s(1) == pytest.approx(np.full(6, 1e-6))


def test_a_run_is_as_long_as_it_may_be_or_refused(monkeypatch) -> None:
    """Eight requests at 1 a second with this seed take between 5 and 6 seconds; one stream needs
    another as little as clients need one."""
    one = service({"time": {"1": "1us"}}, [{"rate": 1.0}])
    lasts = _arrivals(one, 8, 0)[0][-1] / 1e12
    for most, fits in ((lasts * 1.001, True), (lasts * 0.999, False)):
        monkeypatch.setattr(module, "LONGEST_S", most)
        if fits:
            assert len(run_service(one, requests=8, seed=0).requests) == 8
        else:
            with pytest.raises(InputError, match=r"requests: 8 at 1 a second take longer than"):
                run_service(one, requests=8, seed=0)
    monkeypatch.undo()
    closed = _arrivals(service(TUTORIAL, [{"rate": 2.0}, {"concurrency": 3}]), 5, 0)
    assert [len(column) for column in closed] == [5, 0]
    rare = _arrivals(service(TUTORIAL, [{"rate": 1e-3}, {"rate": 1.0}]), 5, 0)
    assert [len(column) for column in rare] == [1, 5]


def test_clients_of_a_closed_loop_and_a_bounded_queue_are_refused_together() -> None:
    bounded = {
        "time": {"1": "1ms"},
        "dynamic_batching": {"default_queue_policy": {"max_queue_size": 9}},
    }
    with pytest.raises(InputError, match="turn them away for ever"):
        run_service(service(bounded, [{"concurrency": 2}]), requests=5, seed=0)
    assert len(run_service(service(bounded, [{"rate": 2.0}]), requests=5, seed=0).requests) == 5
