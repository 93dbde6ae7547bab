"""How many servers a service needs: the least number on which the limits hold, with the evidence
one server below."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.sizing.services import (
    best_item_s,
    choose_settings,
    limits_met,
    load,
    settings_of,
    shared,
    size_service,
    statistic_s,
    with_clients,
    with_rate,
)
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


def two_streams(**server):
    """Batches of 4 take 2 ms and of 8 take 3 ms: 0.375 ms an item; a second model takes 5 ms for 2."""
    models = {
        "a": {"time": {"4": "2ms", "8": "3ms"}, "max_batch_size": 8, "dynamic_batching": {}},
        "b": {"time": {"2": "5ms"}, "max_batch_size": 2},
    }
    document = {
        "service": {"models": models, "pipelines": {"p": ["a", "b"]}, **server},
        "traffic": [{"to": "a", "rate": 100, "items": 4}, {"to": "p", "rate": 50}],
        "latency": ["p99<=20ms", "mean<=5ms"],
    }
    return service_of(document, "test")


def test_the_load_of_a_server_is_that_of_every_item_at_its_best_batch():
    """450 items a second of 0.375 ms and 50 of 2.5 ms: 0.29375 GPUs."""
    needed = 450 * 0.375e-3 + 50 * 2.5e-3
    assert load(two_streams()) == pytest.approx(needed)
    assert load(two_streams(gpus=2)) == pytest.approx(max(needed / 2, 450 * 0.375e-3 / 2))
    assert load(two_streams(overlap=0.5)) == pytest.approx(max(needed / 1.5, 450 * 0.375e-3))
    assert load(shared(two_streams(), 4)) == pytest.approx(needed / 4)
    models = two_streams().models
    assert best_item_s(models["a"]) == pytest.approx(0.375e-3)
    assert best_item_s(models["b"]) == pytest.approx(2.5e-3)
    single = service_of(
        {
            "service": {"models": {"m": {"time": {"1": "1ms", "2": "3ms"}, "max_batch_size": 2}}},
            "traffic": [{"to": "m", "rate": 1}],
        },
        "test",
    )
    assert best_item_s(single.models["m"]) == pytest.approx(1.5e-3)  # no batching: as the file says
    batched = replace(single.models["m"], batching=models["a"].batching)
    assert best_item_s(batched) == pytest.approx(1e-3)


def test_rates_keep_their_proportions_and_clients_are_of_one_stream():
    both = with_rate(two_streams(), 300.0)
    assert [stream.rate for stream in both.streams] == [200.0, 100.0]
    assert replace(both, streams=two_streams().streams) == two_streams()
    with pytest.raises(InputError, match="the file has 2 kinds of traffic"):
        with_clients(two_streams(), 3)
    one = replace(two_streams(), streams=two_streams().streams[:1])
    (closed,) = with_clients(one, 3.0).streams
    assert closed == replace(one.streams[0], rate=0.0, concurrency=3)
    with pytest.raises(InputError, match="clients of a closed loop"):
        with_rate(with_clients(one, 3.0), 5.0)


@pytest.mark.parametrize(
    ("statistic", "values", "seconds"),
    [
        ("mean", [1.0, 2.0, 6.0], 3.0),
        ("p50", [1.0, 2.0, 6.0, 7.0], 4.0),
        ("p90", [0.0, 10.0], 9.0),
        ("p50", [1.0, math.inf, 2.0, 3.0], 3.0),  # the higher of two where some never came
        ("p99", [1.0, math.inf], math.inf),
        ("p50", [], math.inf),
    ],
)
def test_a_statistic_of_latencies(statistic, values, seconds):
    assert statistic_s(np.array(values), statistic) == pytest.approx(seconds)


def test_limits_are_held_against_the_second_half_of_each_stream():
    run = SimpleNamespace(
        latencies_s=lambda place: np.array([[9.0, 9.0, 1e-3, 3e-3], [9.0, 4e-3, 6e-3]][place])
    )
    found = limits_met(two_streams(), run)
    assert [(met.stream, met.limit.statistic) for met in found] == [
        ("a", "p99"),
        ("a", "mean"),
        ("p", "p99"),
        ("p", "mean"),
    ]
    assert [met.seconds for met in found] == pytest.approx([2.98e-3, 2e-3, 5.98e-3, 5e-3])
    assert [met.holds for met in found] == [True, True, True, True]
    assert not replace(found[0], seconds=20.01e-3).holds
    assert replace(found[0], seconds=20e-3).holds


def test_every_combination_of_settings_is_tried():
    def rest(one):
        yield one.models["m"].batching.max_queue_delay_microseconds
        yield one.models["after"].instances

    grid = settings_of(choosing(**GRID))
    made = [(one.models["m"].instances, one.models["m"].max_batch_size, *rest(one)) for one in grid]
    assert made == list(itertools.product([1, 2], [2, 8], [0, 2000], [1, 2]))
    assert all(one.models["after"].batching is None for one in grid)
    kept = service(10.0, "p99<=20ms", dynamic_batching={"max_queue_delay_microseconds": 70})
    assert settings_of(kept) == (kept,)
    model = kept.models["m"]
    for count in (1_000, 1_001):
        choices = replace(model.choices, instances=tuple(range(1, count + 1)))
        many = replace(kept, models={"m": replace(model, choices=choices)})
        if count == 1_000:
            assert len(settings_of(many)) == count
        else:
            with pytest.raises(InputError, match="1,001 combinations of settings are more than"):
                settings_of(many)


@pytest.mark.parametrize(
    ("needs", "servers", "looked", "fewer"),
    [
        (3, 3, (3,), False),  # the closed form's number at once
        (4, 4, (3, 4, 6), True),  # 3, then 6, then 4 between
        (6, 6, (3, 4, 5, 6), True),
        (7, 7, (3, 6, 7, 9, 12), True),
        (12, 12, (3, 6, 9, 10, 11, 12), True),
    ],
)
def test_numbers_are_doubled_and_halved_between(needs, servers, looked, fewer, monkeypatch):
    """The limits hold from a number on; the closed form asks for three."""
    asked = service(2_500.0, "p99<=20ms")

    def run(share, *, requests, seed):
        slow = 2_500.0 / share.streams[0].rate < needs - 0.5
        return SimpleNamespace(latencies_s=lambda place: np.full(4, 1.0 if slow else 1e-3))

    monkeypatch.setattr("tonnage.sizing.services.run_service", run)
    said = []
    answer = size_service(asked, requests=9, seed=0, progress=said.append)
    assert (answer.least, answer.servers, answer.looked) == (3, servers, looked)
    assert (answer.gpus, answer.service) == (servers, shared(asked, servers))
    assert [met.seconds for met in answer.met] == [pytest.approx(1e-3)]
    assert [met.seconds for met in answer.one_fewer] == ([1.0] if fewer else [])
    assert sorted(said) == sorted(f"{count} servers" for count in looked)
    assert size_service(asked, requests=9, seed=0, most_servers=servers) is not None
    assert (size_service(asked, requests=9, seed=0, most_servers=servers - 1) is None) is fewer


@pytest.mark.parametrize(("rate", "most"), [(9_500.0, 19_000), (100.0, 16)])
def test_no_number_of_servers_helps(rate, most, monkeypatch):
    """Servers that are all but idle miss the limit, or there would be ten thousand GPUs of them."""
    looked = []

    def run(share, *, requests, seed):
        looked.append(share)
        return SimpleNamespace(latencies_s=lambda place: np.full(4, 1.0))

    monkeypatch.setattr("tonnage.sizing.services.run_service", run)
    answer = size_service(service(rate, "p99<=20ms"), requests=9, seed=0)
    assert (answer.servers, answer.gpus) == (0, 0)
    assert answer.one_fewer == ()
    assert answer.met[0].seconds == 1.0
    assert max(answer.looked) <= most


@pytest.mark.parametrize(
    ("needs", "asked_with", "tried", "chosen"),
    [
        # of five settings those of the least load first; others are given up beyond the best's number
        ([3, 2, 2, 5, 1], [None, 3, 2, 2, 2], [3, 2, 2, -1, 1], 4),
        ([0, 4, 4, 9, 4], [None, None, 4, 4, 4], [0, 4, 4, -1, 4], 2),
        ([0, 0, 0, 0, 0], [None] * 5, [0] * 5, 2),
        ([1, 1, 1, 1, 1], [None, 1, 1], [1, 1, 1, -1, -1], 2),
    ],
)
def test_settings_are_tried_from_the_least_load(
    *,
    needs: list[int],
    asked_with: list[int | None],
    tried: list[int],
    chosen: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loads of 0.2, 0.4, 0.6, 2.5 and 1.5 of a server's GPUs ask for 1, 1, 1, 3 and 2 servers; the
    third uses least of its limits."""
    loads = [0.2, 0.4, 0.6, 2.5, 1.5]
    shown = [loads.index(load) for load in loads]
    looked: list[tuple[int, int | None]] = []
    said: list[str] = []

    def sized(place, *, requests, seed, progress, most_servers):
        assert (requests, seed) == (70, 3)
        looked.append((place, most_servers))
        if most_servers is not None and needs[place] > most_servers:
            return None
        limit = SimpleNamespace(seconds=2.0)
        used = 0.5 if place == 2 else 1.0
        met = (
            SimpleNamespace(seconds=0.2, limit=limit),
            SimpleNamespace(seconds=used, limit=limit),
        )
        return SimpleNamespace(servers=needs[place], met=met, place=place)

    module = "tonnage.sizing.services"
    monkeypatch.setattr(f"{module}.settings_of", lambda service: tuple(shown))
    monkeypatch.setattr(f"{module}.load", lambda place: loads[place])
    monkeypatch.setattr(f"{module}.size_service", sized)
    answer, rows = choose_settings("service", requests=70, seed=3, progress=said.append)
    order = sorted(range(5), key=loads.__getitem__)
    assert [place for place, _ in looked] == [
        place for place in order if place in {at for at, _ in looked}
    ]
    assert [most for _, most in looked] == asked_with[: len(looked)]
    assert answer.place == chosen
    assert [row.service for row in rows] == shown
    assert [row.least for row in rows] == [1, 1, 1, 3, 2]
    assert [row.servers for row in rows] == tried
    assert [row.use for row in rows] == [
        math.inf if count < 0 else (0.25 if place == 2 else 0.5)
        for place, count in enumerate(tried)
    ]
    assert said == [f"settings {place + 1} of 5" for place, _ in looked]


def test_one_setting_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = "tonnage.sizing.services", []
    answer = SimpleNamespace(servers=1, met=())
    monkeypatch.setattr(f"{module}.settings_of", lambda service: ("only",))
    monkeypatch.setattr(f"{module}.load", lambda place: 0.2)
    monkeypatch.setattr(f"{module}.size_service", lambda *what, **how: answer)
    found, (row,) = choose_settings("service", requests=70, seed=3, progress=said.append)
    assert (found, said, row.use) == (answer, [], math.inf)
    monkeypatch.setattr(f"{module}.size_service", lambda *what, **how: None)
    with pytest.raises(InputError, match="no settings were simulated"):
        choose_settings("service", requests=70, seed=3)
