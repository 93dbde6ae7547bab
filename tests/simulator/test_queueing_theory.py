"""The simulator against queueing theory, and against SimPy and Ciw, which know nothing of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import ciw
import numpy as np
import pytest
import simpy

from tests.simulator.queues import ONE_AT_A_TIME, PLENTY, poisson
from tests.strategies import SCHEDULERS, coefficient_array
from tonnage.perf.step import StepModel
from tonnage.results.requests import Requests
from tonnage.simulator.kernel import run, run_recorded
from tonnage.simulator.request import DURATION, IN_ENGINE, START, WAITING
from tonnage.spec.workload import Lengths, OpenLoop, Workload

CONSTANT = StepModel(coefficients=coefficient_array(host_step=0.01, norm=1.0), frontend_s=0.0)
"""Every step takes 10 ms, so a request of one output token is a service of 10 ms."""


PER_TOKEN = StepModel(coefficients=coefficient_array(linear_flops=1e-6, norm=1.0), frontend_s=0.0)
"""A prompt takes a microsecond a token."""


MEAN_TOKENS = 10_000


BATCHES = 40


def exponential_prompts(count: int, seed: int = 2) -> np.ndarray:
    """Prompts whose prefill by ``PER_TOKEN`` is exponential with mean 10 ms, to a microsecond."""
    tokens = np.random.default_rng(seed).exponential(MEAN_TOKENS, count)
    return np.maximum(np.rint(tokens), 1).astype(np.int64)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error from batch means, which holds for the correlated waits of a
    queue."""
    means = np.array([batch.mean() for batch in np.array_split(values, BATCHES)])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(BATCHES))


def wait_s(requests: Requests, service_s: np.ndarray | float) -> np.ndarray:
    return (requests.first_token_ns - requests.due_ns) / 1e9 - service_s


def assert_close(values: np.ndarray, expected: float) -> None:
    """Within 4 standard errors, and these small enough for the comparison to mean something."""
    mean, error = mean_and_error(values)
    assert error < 0.05 * expected
    assert abs(mean - expected) < 4 * error


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_mean_wait_of_m_d_1(scheduler, load):
    count, service = 400_000, 0.01
    trace = poisson(load / service, count, np.ones(count, np.int64))
    requests = run(trace, CONSTANT, replace(ONE_AT_A_TIME, scheduler=scheduler), PLENTY)
    assert_close(wait_s(requests, service), load * service / (2 * (1 - load)))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_wait_of_m_m_1(load):
    count, service = 400_000, 0.01
    isl = exponential_prompts(count)
    requests = run(poisson(load / service, count, isl), PER_TOKEN, ONE_AT_A_TIME, PLENTY)
    assert_close(wait_s(requests, isl * 1e-6), load * service / (1 - load))


@pytest.mark.parametrize(("servers", "load"), [(2, 0.7), (8, 0.8), (16, 0.85)])
def test_mean_wait_of_servers_behind_one_queue_is_erlangs(servers, load):
    """Steps of 1 ms whatever is in them make each slot a server; outputs are geometric with a mean
    of 100, nearly exponential services."""
    count, step_s, tokens = 300_000, 0.001, 100
    trace = poisson(load * servers / (tokens * step_s), count, np.ones(count, np.int64))
    trace = replace(trace, osl=np.random.default_rng(3).geometric(1 / tokens, count))
    step = StepModel(coefficients=coefficient_array(host_step=step_s, norm=1.0), frontend_s=0.0)
    record = run(
        trace, step, replace(ONE_AT_A_TIME, scheduler="vllm", max_batch_size=servers), PLENTY
    )
    offered = load * servers
    term = total = 1.0
    for k in range(1, servers):
        term *= offered / k
        total += term
    waiting = term * offered / servers / (1 - load)
    expected = waiting / (total + waiting) * tokens * step_s / (servers - offered)
    mean, error = mean_and_error(wait_s(record, step_s)[count // 20 :])
    assert error < 0.1 * expected
    assert expected - 4 * error < mean < expected + 4 * error + 2 * step_s


def test_wait_of_m_m_1_is_exponential_beyond_zero() -> None:
    count, load, service = 400_000, 0.6, 0.01
    isl = exponential_prompts(count)
    waits = wait_s(
        run(poisson(load / service, count, isl), PER_TOKEN, ONE_AT_A_TIME, PLENTY), isl * 1e-6
    )
    for t in (0.0, 0.01, 0.03, 0.08):
        assert_close((waits > t + 1e-8).astype(float), load * math.exp(-(1 - load) * t / service))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_littles_law(scheduler):
    """The time average of the number in the system, read off the record of steps and the due times,
    is λ·W."""
    step = StepModel(
        coefficients=coefficient_array(host_step=0.002, context=1e-8, linear_flops=1e-6, norm=1.0),
        frontend_s=0.0,
    )
    knobs = replace(
        ONE_AT_A_TIME,
        scheduler=scheduler,
        max_batch_size=32,
        max_num_tokens=4096,
        chunked_prefill=True,
    )
    lengths = {
        "isl": Lengths(kind="lognormal", mean=300, std=200),
        "osl": Lengths(kind="normal", mean=80, std=30),
    }
    trace = Workload(**lengths, arrivals=OpenLoop(rate=60), requests=3_000).trace(7)
    requests, record = run_recorded(trace, step, knobs, 1_000, most_steps=1_000_000)
    steps = record.steps
    start, lasts = steps[:, START], steps[:, DURATION]
    in_system = (steps[:, IN_ENGINE] + steps[:, WAITING]).astype(object) @ lasts.astype(object)
    # Requests that arrived while a step ran were not there when it began: add their part of it.
    row = np.searchsorted(start, trace.due_ps, side="right") - 1
    inside = (row >= 0) & (trace.due_ps > start[row]) & (trace.due_ps < start[row] + lasts[row])
    in_system += int((start[row] + lasts[row] - trace.due_ps)[inside].sum())
    span = int(start[-1] + lasts[-1])
    rate = len(requests) / (span / 1e12)
    mean_time = float((requests.last_token_ns - requests.due_ns).mean()) / 1e9
    assert in_system / span == pytest.approx(rate * mean_time, rel=1e-6)
    assert mean_time * rate > 5


def simpy_single_server(due: np.ndarray, service: np.ndarray) -> np.ndarray:
    """End of each service at one server, first come first served, in the integer time of the
    arrivals."""
    env = simpy.Environment()
    server = simpy.Resource(env, capacity=1)
    ends = np.zeros(len(due), np.int64)

    def customer(i: int) -> Iterator[simpy.Event]:
        yield env.timeout(int(due[i]))
        with server.request() as turn:
            yield turn
            yield env.timeout(int(service[i]))
        ends[i] = env.now

    for i in range(len(due)):
        env.process(customer(i))
    env.run()
    return ends


def test_simpy_serves_one_at_a_time_to_the_same_nanosecond() -> None:
    count = 3_000
    isl = exponential_prompts(count, seed=5)
    trace = poisson(85.0, count, isl, seed=6)
    requests = run(trace, PER_TOKEN, ONE_AT_A_TIME, PLENTY)
    np.testing.assert_array_equal(
        requests.last_token_ns, simpy_single_server(trace.due_ps, isl * 1_000_000) // 1000
    )


def simpy_continuous(due: np.ndarray, slots: int, tick_ps: int, lengths: np.ndarray) -> np.ndarray:
    """End of each job at an engine whose every tick gives one token to each of up to ``slots``
    jobs."""
    env = simpy.Environment()
    pool = simpy.Container(env, capacity=slots, init=slots)
    state = {"queue": [], "left": {}, "wake": env.event()}
    ends = np.zeros(len(due), np.int64)

    def arrivals() -> Iterator[simpy.Event]:
        for i, moment in enumerate(due):
            yield env.timeout(int(moment) - env.now)
            state["queue"].append(i)
            if not state["wake"].triggered:
                state["wake"].succeed()

    def engine() -> Iterator[simpy.Event]:
        while True:
            while state["queue"] and pool.level > 0:
                yield pool.get(1)
                job = state["queue"].pop(0)
                state["left"][job] = int(lengths[job])
            if not state["left"]:
                state["wake"] = env.event()
                yield state["wake"]
                continue
            yield env.timeout(tick_ps)
            for job in list(state["left"]):
                state["left"][job] -= 1
                if not state["left"][job]:
                    del state["left"][job]
                    ends[job] = env.now
                    yield pool.put(1)

    env.process(arrivals())
    env.process(engine())
    env.run()
    return ends


@pytest.mark.parametrize("scheduler", ["tensorrt-llm", "vllm"])
def test_simpy_batches_in_flight_to_the_same_nanosecond(scheduler):
    trace = Workload(
        isl=Lengths(mean=10),
        osl=Lengths(kind="normal", mean=20, std=9),
        arrivals=OpenLoop(rate=75),
        requests=2_000,
    ).trace(4)
    requests = run(
        trace, CONSTANT, replace(ONE_AT_A_TIME, scheduler=scheduler, max_batch_size=16), PLENTY
    )
    ends = simpy_continuous(trace.due_ps, 16, 10_000_000_000, trace.osl)
    np.testing.assert_array_equal(requests.last_token_ns, ends // 1000)


def test_ciw_serves_one_at_a_time_as_we_do() -> None:
    count = 2_000
    isl = exponential_prompts(count, seed=8)
    trace = poisson(85.0, count, isl, seed=9)
    requests = run(trace, PER_TOKEN, ONE_AT_A_TIME, PLENTY)
    gaps = np.diff(trace.due_ps, prepend=0) / 1e12
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps, 1e9])],
        service_distributions=[ciw.dists.Sequential(list(isl * 1e-6))],
        number_of_servers=[1],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(1e8)
    records = sorted(simulation.get_all_records(), key=lambda row: row.arrival_date)
    assert len(records) == count
    np.testing.assert_allclose(
        [row.exit_date for row in records], requests.last_token_ns / 1e9, atol=1e-7
    )
