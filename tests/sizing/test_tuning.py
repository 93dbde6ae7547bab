"""Knobs: set by closed form where gaps are limited, searched for the best, left alone where the asker set them."""

from dataclasses import replace

import pytest

from tests.questions import question
from tonnage.sizing.loads.bounds import Carried
from tonnage.sizing.loads.capacity import find_capacity, open_capacity, scan_of
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.limits import worst_limit
from tonnage.sizing.loads.load_scan import SURE
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import MOVES
from tonnage.sizing.search.search import answer
from tonnage.sizing.search.search_space import prepare, trials
from tonnage.sizing.search.token_budget import fitted
from tonnage.sizing.search.tuning import _settings, changes, tuned

GAPS = {"isl": 6000, "osl": 200, "tp": "1", "ttft": "p95<=3s", "itl": "p99<=60ms"}


def carried(**changed: object) -> Carried:
    ready = next(found for found in prepare(question(**changed), Runs()) if isinstance(found, Ready))
    return Carried(ready=ready, capacity=find_capacity(ready.instance))


def test_a_limit_on_gaps_sets_the_token_budget_and_pays() -> None:
    """With the engine's own budget every long prompt is one long gap for all others."""
    asked = question(**GAPS)
    trial = next(iter(trials(asked)))
    found = next(r for r in prepare(asked, Runs()) if isinstance(r, Ready))
    assert found.trial.deployment.knobs.max_num_tokens < trial.deployment.knobs.max_num_tokens
    own = find_capacity(Instance(trial.deployment, found.instance.asked))
    assert find_capacity(found.instance).rate > 2 * own.rate


def test_the_engines_own_budget_stays_where_it_keeps_the_limit() -> None:
    ready = next(r for r in prepare(question(**{**GAPS, "itl": "p99<=2s"}), Runs()) if isinstance(r, Ready))
    assert fitted(ready.instance) == ready.first.deployment.knobs
    mean = next(r for r in prepare(question(**{**GAPS, "itl": "mean 60ms"}), Runs()) if isinstance(r, Ready))
    assert fitted(mean.instance) == mean.first.deployment.knobs


def surely(ready: Ready) -> Carried:
    return Carried(ready=ready, capacity=open_capacity(ready.instance, care=SURE))


@pytest.mark.parametrize("limits", [{"ttft": "p95<=250ms"}, {"ttft": None, "itl": "p99<=25ms"}])
def test_tuning_finds_the_best_of_all_settings(limits: dict[str, object]) -> None:
    """What the search of a setting leaves out early would not have carried more."""
    one = next(found for found in prepare(question(isl=3000, tp="1", **limits), Runs()) if isinstance(found, Ready))
    after = tuned(surely(one))
    rates = []
    for knobs in _settings(one, MOVES):
        instance = Instance(replace(one.trial.deployment, knobs=knobs), one.instance.asked)
        rates.append(scan_of(instance).rate_within(instance.asked.slo))
    assert scan_of(after.ready.instance).rate_within(one.instance.asked.slo) == max(rates)
    assert worst_limit(after.capacity.summary, after.ready.instance.asked.slo) is None


def test_a_bad_knob_is_found_and_mended() -> None:
    """A budget of 512 tokens starves the prompts: the search must leave it."""
    good = carried(tp="1", ttft="p95<=1s")
    d = good.ready.trial.deployment
    starved = replace(d, knobs=replace(d.knobs, max_num_tokens=512, max_batch_size=256))
    instance = Instance(starved, good.ready.instance.asked)
    poor = surely(replace(good.ready, trial=replace(good.ready.trial, deployment=starved), instance=instance))
    found = tuned(poor)
    assert found.capacity.rate > 1.1 * poor.capacity.rate
    assert (changes(found, starved.knobs)[0].knob, changes(found, starved.knobs)[0].default) == ("max_num_tokens", 512)


@pytest.mark.parametrize("given", [{"max_num_tokens": "2048"}, {"max_batch_size": "64"}, {"chunked_prefill": True}])
def test_knobs_that_the_asker_set_are_kept(given: dict[str, object]) -> None:
    asked = replace(question(**{**GAPS, **given}), deepen=False)
    found = answer(asked, prepare(asked, Runs()))
    for one in found.carried:
        knobs = one.ready.trial.deployment.knobs
        for name, value in given.items():
            assert getattr(knobs, name) == (value if isinstance(value, bool) else int(str(value)))


def test_several_values_of_a_knob_are_each_a_deployment() -> None:
    assert len(prepare(question(tp="1", max_batch_size="64,128", max_num_tokens="2048,4096"), Runs())) == 4
