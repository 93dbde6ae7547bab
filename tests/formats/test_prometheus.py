"""Pages and series of Prometheus: counters, restarts, and every engine's names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.watch.pages import observed
from tests.watch.served_weeks import weeks
from tests.workload.prometheus_history import BOUNDS, MONDAY, TRUE, answer, exported, series
from tonnage.errors import InputError
from tonnage.formats.prometheus import HISTORIES, Buckets, curves, selected, together
from tonnage.workload.history import history_of


def test_a_restart_counts_from_its_beginning() -> None:
    (many,) = observed([0.3] * 9)
    (few,) = observed([0.15] * 2)
    assert few.since(many).count == 2
    assert few.since(Buckets()).count == 2


def test_instances_are_added_and_an_empty_stretch_has_no_numbers() -> None:
    first, second = observed([0.05], [])
    assert together([first, first, Buckets()]).count == 2
    assert math.isnan(second.since(second).mean)
    assert math.isnan(second.since(second).quantile(0.95))
    assert together([]) == Buckets()


@pytest.mark.parametrize("engine", HISTORIES)
def test_every_engine_s_names_are_read(engine: str) -> None:
    """A request a second of 600 and 40 tokens for two hours, one in three of whose tokens the cache
    has; each GPU draws 400 W."""
    signals, times = HISTORIES[engine], MONDAY + np.arange(0, 7_201, 60.0)
    counts = times - MONDAY
    rows = [series(signals.requests, times, counts)]
    for tokens, histogram, counter in (
        (600, signals.isl, signals.prompt_tokens),
        (40, signals.osl, signals.output_tokens),
    ):
        if histogram:
            rows.append(series(f"{histogram}_sum", times, counts * tokens))
            rows += [
                series(f"{histogram}_bucket", times, counts * (bound >= tokens), le=str(bound))
                for bound in BOUNDS
            ]
        if counter:
            rows.append(series(counter, times, counts * tokens))
    if signals.cache_hits:
        rows += [series(signals.cache_hits, times, counts * 200)]
        rows += (
            []
            if signals.cache_queries == signals.prompt_tokens
            else [series(signals.cache_queries, times, counts * 600)]
        )
    rows += [
        series("DCGM_FI_DEV_POWER_USAGE", times, np.full(times.size, 400.0), gpu=gpu)
        for gpu in "01"
    ]
    found = history_of(curves([answer(rows)], "x"), "x")
    assert (found.engine, found.requests.tolist()) == (engine, [3_600.0, 3_600.0])
    lengths = (None, None) if engine == "triton" else (600, 40)
    assert (found.mean("isl"), found.mean("osl")) == lengths
    assert found.cache == (pytest.approx(1 / 3) if signals.cache_hits else None)
    assert found.watts.tolist() == [800.0, 800.0]


ONCE = {
    "replicas of one Prometheus": ({"prometheus_replica": "a"}, {"prometheus_replica": "b"}, 1),
    "two jobs of one target": ({"job": "vllm"}, {"job": "kubernetes-pods"}, 1),
    "a service and a pod monitor": ({"job": "vllm", "service": "vllm"}, {"job": "pods"}, 1),
    "two targets": ({"pod": "vllm-0"}, {"pod": "vllm-1"}, 2),
    "two models": ({"model_name": "one"}, {"model_name": "two"}, 2),
}


@pytest.mark.parametrize("name", ONCE)
def test_a_target_that_was_scraped_twice_counts_once(name: str) -> None:
    first, second, times = ONCE[name]
    rows = exported(TRUE, days=3)
    # the other scrapes 7 s later
    late = [{**row, "values": [[at + 7, value] for at, value in row["values"]]} for row in rows]
    both = [
        {**row, "metric": {**row["metric"], **labels}}
        for some, labels in ((rows, first), (late, second))
        for row in some
    ]
    alone, pair = (history_of(curves([answer(each)], "x"), "x") for each in (rows, both))
    assert np.nansum(pair.requests) == pytest.approx(times * np.nansum(alone.requests), rel=0.01)
    assert pair.mean("isl") == pytest.approx(alone.mean("isl"), rel=1e-3)
    said = [
        word
        for word in ("scraped more than once", "models are counted together")
        if any(word in remark for remark in pair.remarks)
    ]
    assert (
        said
        == {
            1: ["scraped more than once"],
            2: ["models are counted together"] if "model" in name else [],
        }[times]
    )


def test_two_engines_behind_one_instance_are_two() -> None:
    rows, others = (
        exported(TRUE, days=3),
        exported(weeks(days=3, a_day=500, growth_per_day=0.0, seed=4), days=3),
    )
    both = [
        {**row, "metric": {**row["metric"], "job": job}}
        for some, job in ((rows, "a"), (others, "b"))
        for row in some
    ]
    parts = [
        np.nansum(history_of(curves([answer(some)], "x"), "x").requests) for some in (rows, others)
    ]
    assert np.nansum(history_of(curves([answer(both)], "x"), "x").requests) == pytest.approx(
        sum(parts)
    )


def test_matchers_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="is no list of label matchers"):
        selected([], "model_name=llama", "select")
