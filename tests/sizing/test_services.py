"""How many servers a service needs: the least number on which the limits hold, with the evidence
one server below."""

import math

import pytest

from tonnage.errors import InputError
from tonnage.sizing.services import choose_settings, settings_of, size_service
from tonnage.spec.service import service_of


def service(rate, latency, **model):
    wanted = {"time": {"1": "1ms"}, **model}
    return service_of(
        {
            "service": {"models": {"m": wanted}},
            "traffic": [{"to": "m", "rate": rate}],
            "latency": latency,
        },
        "test",
    )


def test_the_answer_is_that_of_the_queue_m_d_1():
    """A mean of 2 ms in M/D/1 with 1 ms of service is reached at a utilisation of 2/3: 10,000 a
    second need 15 or 16 servers."""
    answer = size_service(service(10_000.0, "mean<=2ms"), requests=8_000, seed=0)
    assert answer.least == 11
    assert answer.servers in (15, 16)
    assert all(one.holds for one in answer.met)
    assert not all(one.holds for one in answer.one_fewer)


def test_batching_saves_servers():
    alone = size_service(service(4000.0, "p99<=20ms"), requests=3000, seed=0).servers
    model = {"time": {"1": "1ms", "8": "2ms"}, "max_batch_size": 8, "dynamic_batching": {}}
    assert (
        size_service(service(4000.0, "p99<=20ms", **model), requests=3000, seed=0).servers
        == 2
        < alone
    )


def test_a_limit_below_the_service_time_is_met_by_no_number():
    assert size_service(service(100.0, "p99<=0.5ms"), requests=500, seed=0).servers == 0


def test_requests_that_are_turned_away_miss_the_limit():
    bounded = {"dynamic_batching": {"default_queue_policy": {"max_queue_size": 1}}}
    tight, loose = (
        size_service(service(2000.0, "p99<=50ms", **model), requests=3000, seed=0).servers
        for model in (bounded, {})
    )
    assert tight > loose


@pytest.mark.parametrize(
    ("traffic", "latency"), [({"rate": 1.0}, ()), ({"concurrency": 3}, "p99<=1s")]
)
def test_what_cannot_be_sized_is_said(traffic, latency):
    document = {
        "service": {"models": {"m": {"time": {"1": "1ms"}}}},
        "traffic": [{"to": "m", **traffic}],
        "latency": latency,
    }
    with pytest.raises(InputError):
        size_service(service_of(document, "test"), requests=10, seed=0)


GRID = {"instances": [1, 2], "max_batch_size": [2, 8], "max_queue_delay_microseconds": [0, 2000]}


def choosing(**search):
    models = {
        "m": {
            "time": {"fixed": "4ms", "each": "1ms"},
            "max_batch_size": 1,
            "dynamic_batching": {},
            "search": search,
        },
        "after": {"time": {"1": "500us"}, "search": {"instances": [1, 2]} if search else {}},
    }
    server = {"models": models, "overlap": 0.3, "pipelines": {"p": ["m", "after"]}}
    return service_of(
        {"service": server, "traffic": [{"to": "p", "rate": 900}], "latency": "p99<=40ms"}, "test"
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.accuracy) for seed in (1, 2))]
)
def test_the_search_finds_what_every_combination_sized_to_the_end_finds(seed):
    answer, tried = choose_settings(choosing(**GRID), requests=1000, seed=seed)
    whole = [size_service(one, requests=1000, seed=seed) for one in settings_of(choosing(**GRID))]
    ranks = [
        (one.servers or math.inf, max(met.seconds / met.limit.seconds for met in one.met))
        for one in whole
    ]
    best = whole[ranks.index(min(ranks))]
    assert len(tried) == len(whole) == 16
    assert (answer.servers, answer.service.models) == (best.servers, best.service.models)
    for one, brute in zip(tried, whole, strict=True):
        assert one.servers in (brute.servers, -1)
        assert one.servers > 0 or brute.servers > answer.servers
    assert any(one.servers < 0 for one in tried)  # some were given up, so that something was saved
