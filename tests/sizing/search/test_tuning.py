"""The knobs that matter: what changing one of them brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.questions import best, contenders, question
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.search.deployment_capacity import Contender
from tonnage.sizing.search.search import Search
from tonnage.sizing.search.search_space import trials
from tonnage.sizing.search.tuning import _ways, changes, fitted

GAPS: dict[str, Any] = {
    "isl": 6000,
    "osl": 200,
    "tp": "1",
    "peak_rps": 40,
    "ttft": "p95<=3s",
    "itl": "p99<=60ms",
}


def with_knobs(one: Contender, **knobs: Any) -> Contender:
    """The same deployment with other knobs."""
    deployment = replace(one.instance.deployment, knobs=replace(one.instance.knobs, **knobs))
    instance = one.runs.instance(deployment, one.instance.traffic)
    return replace(
        one,
        ready=replace(
            one.ready, trial=replace(one.ready.trial, deployment=deployment), instance=instance
        ),
    )


def test_a_limit_on_gaps_sets_the_token_budget_and_pays() -> None:
    """With the engine's own budget every long prompt is one long gap for all others."""
    asked = question(**GAPS)
    own = next(iter(trials(asked))).deployment.knobs.max_num_tokens
    one = contenders(asked)[0]
    assert one.instance.knobs.max_num_tokens < own
    assert one.capacity(4).rate > 2 * with_knobs(one, max_num_tokens=own).capacity(4).rate


@pytest.mark.parametrize("itl", ["p99<=2s", "mean 60ms"])
def test_the_engines_own_budget_stays_where_it_keeps_the_limit(itl: str) -> None:
    asked = question(**GAPS | {"itl": itl})
    one = contenders(asked)[0]
    assert fitted(one.instance, asked.limits) == one.ready.first.deployment.knobs


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"ttft": "p95<=250ms"}, marks=pytest.mark.accuracy),
        {"ttft": None, "itl": "p99<=25ms"},
    ],
)
def test_tuning_finds_what_the_search_of_every_setting_does(limits: dict[str, Any]) -> None:
    """What the search of a setting leaves out early would not have saved a system."""
    asked = question(isl=3000, tp="1", peak_rps=60, **limits)
    pruned, whole = (
        Search(question=asked, runs=Runs(), prune=prune, rows=False).answer().best
        for prune in (True, False)
    )
    assert pruned.systems == whole.systems


def test_a_bad_knob_is_found_and_mended() -> None:
    """A budget of 512 tokens starves the prompts: the search must leave it."""
    asked = question(tp="1", ttft="p95<=1s")
    runs = Runs()
    good = contenders(asked, runs)[0]
    starved = with_knobs(good, max_num_tokens=512, max_batch_size=256)
    found = Search(question=asked, runs=runs, rows=False, seeds=(starved.ready,)).answer().best
    assert found.capacity.rate > 1.1 * starved.capacity(found.instances, care=QUICK).rate
    changed = changes(found.ready, starved.instance.knobs)[0]
    assert (changed.knob, changed.default) == ("max_num_tokens", 512)


def test_whole_prompts_are_tried_where_an_engine_divides_them() -> None:
    ready = contenders(question(engine="vllm", tp="1"))[0].ready
    own = ready.trial.deployment.knobs
    assert list(_ways(ready, ("chunk",), smaller=False, larger=True)) == [
        [replace(own, chunked_prefill=not own.chunked_prefill)]
    ]


@pytest.mark.parametrize(
    "given", [{"max_num_tokens": "2048"}, {"max_batch_size": "64"}, {"chunked_prefill": True}]
)
def test_knobs_that_the_asker_set_are_kept(given: dict[str, Any]) -> None:
    knobs = best(question(**GAPS | given)).ready.trial.deployment.knobs
    for name, value in given.items():
        assert getattr(knobs, name) == (value if isinstance(value, bool) else int(str(value)))
