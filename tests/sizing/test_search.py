"""The contest itself: the same answer from any number of threads, everything accounted for, nothing better left out."""

import json
from dataclasses import replace

import pytest

from tests.questions import contenders, question
from tonnage.report.plans.candidates import reason_text
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.search.search import Search

WIDE = {"gpu": "h100,l40s", "precision": "fp16,fp8", "tp": "1,2,4,8", "engine": "tensorrt-llm-0.15,vllm", "ttft": "p95<=200ms"}


def test_the_answer_of_any_number_of_threads_accounts_for_every_deployment_with_numbers_and_progress_counts_them() -> None:
    asked = replace(question(**WIDE), deepen=False)
    told: list[tuple[int, int]] = []
    plan = size(asked, workers=1, progress=lambda done, total, name: told.append((done, total)))
    assert size(asked, workers=4).to_json() == plan.to_json()
    assert len(plan.candidates) + len(plan.rejected) == 2 * 2 * 4 * 2
    assert all(any(letter.isdigit() for letter in reason_text(r.reason)) for r in plan.rejected)
    assert told[-1][0] == told[-1][1] >= 16
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert [total for _, total in told] == sorted(total for _, total in told)


def test_what_closed_forms_leave_out_would_not_have_been_chosen() -> None:
    """Each deployment answered by itself, with nothing to be held against, needs no fewer GPUs than the choice."""
    asked = replace(question(**{**WIDE, "gpu": "h100", "tp": "1,2,4"}), deepen=False, tune=False)
    runs = Runs()
    chosen = Search(question=asked, runs=runs, rows=False).answer().best
    assert chosen is not None
    for one in contenders(asked, runs):
        found = one.needed(one.slowdown(asked.confidence))
        assert not isinstance(found, tuple) or found[0] * one.ready.trial.system.gpus >= chosen.gpus


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"gpu": "h100,l40s", "tp": "1,2", "ttft": "p95<=200ms"}, marks=pytest.mark.accuracy),
        {"isl": "lognormal:6000,3000", "osl": 50, "tp": "1", "engine": "vllm", "peak_rps": 40, "ttft": "p90<=2s", "tpot": "p95<=60ms"},
    ],
)
def test_pruning_changes_no_answer(changed: dict[str, object]) -> None:
    """Everything that bounds, limits of the search and rivals leave out, simulated in full; benchmarks/pruning.py asks many more."""
    asked = replace(question(**changed), deepen=False)
    pruned, whole = (size(asked, prune=prune).choice for prune in (True, False))
    assert (pruned.identity, pruned.systems) == (whole.identity, whole.systems)
    assert pruned.systems_exact == pytest.approx(whole.systems_exact, rel=0.08)  # knobs that save no system are not looked for


@pytest.mark.parametrize("load", ["open", "closed"])
def test_every_load_gives_a_whole_plan(load: str) -> None:
    plan = size(question(tp="1", load=load))
    assert plan.choice is not None
    assert plan.explain is not None
    assert plan.sensitivity is not None
    assert (plan.fleet_check is not None) == (load == "open")
    assert bool(plan.curve) == (load == "open")
    json.dumps(plan.to_json())


def test_a_spare_system_is_bought_beside_what_the_check_finds() -> None:
    bare, spare = (size(replace(question(tp="1", spare=count), deepen=False)) for count in (0, 1))
    assert spare.choice.systems == bare.choice.systems + 1
    assert spare.fleet_check == bare.fleet_check
