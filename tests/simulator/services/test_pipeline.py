"""Pipelines (Triton's ensembles) against Ciw, and stages that wait for each other."""

import ciw
import numpy as np
import pytest

from tonnage.simulator.services import run_service
from tonnage.sizing.services import load
from tonnage.spec.service import passes
from tonnage.spec.service_file import service_of


def test_two_models_in_a_row_take_as_long_as_in_ciw():
    rate, first, second = 900.0, 1.6, 0.9
    document = {
        "service": {
            "gpus": 3,
            "models": {"a": {"time": {"1": f"{first}ms"}, "gpus": [0, 1]}, "b": {"time": {"1": f"{second}ms"}, "gpus": [2]}},
            "pipelines": {"both": ["a", "b"]},
        },
        "traffic": [{"to": "both", "rate": rate}],
    }
    run = run_service(service_of(document, "test"), requests=20_000, seed=5)
    ciw.seed(1)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate), None],
        service_distributions=[ciw.dists.Deterministic(first / 1e3), ciw.dists.Deterministic(second / 1e3)],
        number_of_servers=[2, 1],
        routing=[[0.0, 1.0], [0.0, 0.0]],
    )
    simulated = ciw.Simulation(network)
    simulated.simulate_until_max_time(15.0)
    records = simulated.get_all_records()
    waits = {node: np.mean([one.waiting_time for one in records if one.node == node]) for node in (1, 2)}
    assert run.waited_s["a"] == pytest.approx(waits[1], rel=0.1)
    assert run.waited_s["b"] == pytest.approx(waits[2], rel=0.1)
    assert run.latencies_s().mean() == pytest.approx((first + second) / 1e3 + waits[1] + waits[2], rel=0.04)


def test_a_stage_waits_for_all_that_it_comes_after():
    models = {name: {"time": {"1": f"{ms}ms"}} for name, ms in {"split": 1, "left": 5, "right": 2, "join": 1}.items()}
    steps = ["split", "left", {"model": "right", "after": ["split"]}, {"model": "join", "after": ["left", "right"]}]
    document = {"service": {"models": models, "pipelines": {"all": steps}, "overlap": 1.0}, "traffic": [{"to": "all", "rate": 0.1}]}
    run = run_service(service_of(document, "test"), requests=20, seed=0)
    assert run.latencies_s() == pytest.approx(np.full(20, 7e-3))


def branching(rate):
    """Every request is classified; 60 % go to one reader, 30 % to another, the rest to neither; all are checked, 25 % again and again."""
    models = {name: {"time": {"1": f"{ms}ms"}} for name, ms in {"classify": 1, "short": 2, "long": 8, "check": 1}.items()}
    steps = [
        "classify",
        {"model": "short", "share": 0.6},
        {"model": "long", "share": 0.75, "instead_of": "short"},
        {"model": "check", "again": 0.25},
    ]
    document = {"service": {"models": models, "pipelines": {"p": steps}, "gpus": 4}, "traffic": [{"to": "p", "rate": rate}]}
    return service_of(document, "test")


def test_branches_and_loops_are_taken_by_their_shares():
    service = branching(0.1)
    assert passes(service.streams[0].stages) == pytest.approx((1, 0.6, 0.3, 4 / 3))
    assert load(branching(1000.0)) == pytest.approx((1 + 0.6 * 2 + 0.3 * 8 + 4 / 3) / 4)
    run = run_service(service, requests=4000, seed=1)
    done = {name: sum(batches.values()) / 4000 for name, batches in run.batches.items()}
    assert done == pytest.approx({"classify": 1, "short": 0.6, "long": 0.3, "check": 4 / 3}, abs=0.03)
    seconds = run.latencies_s()
    assert seconds.mean() == pytest.approx(1e-3 * (1 + 0.6 * 2 + 0.3 * 8 + 4 / 3), rel=0.05)
    assert {2, 4, 10} <= set(np.rint(seconds * 1e3).astype(int))  # neither, the first, the second reader, with one check
