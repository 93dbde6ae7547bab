"""Several use cases on one fleet: the simulated mixture holds every limit of each, and sharing
never takes more."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.plan.candidates import candidate
from tests.questions import plans_with, question
from tests.sizing.mixtures import KINDS, asked
from tonnage.cost.options import with_cost_together
from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Breach, limit_of
from tonnage.plan.reason import (
    Behind,
    NeedsMoreGpus,
    NothingMeetsLimits,
    Outdone,
    Rejected,
    rejected,
)
from tonnage.plan.use_cases import Arrangement, NotShared, UseCasePool, UseCases
from tonnage.report.plans.use_cases import use_cases_text
from tonnage.report.writers.terminal import terminal
from tonnage.results.metrics import Latencies
from tonnage.sizing.fleet.standby import Failures, Reserve
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.mixture import Mixture
from tonnage.sizing.planner import size
from tonnage.sizing.use_cases import (
    Asked,
    Tried,
    _arranged,
    _case,
    _deployments,
    _fewest,
    _in_groups,
    _options,
    _shared,
    use_cases,
)
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.deployment import parse_limit

few_parts = plans_with()


def answered(*cases: Asked) -> UseCases:
    found = use_cases(cases)
    assert UseCases.from_json(found.to_json()) == found
    return found


@cache
def together() -> UseCases:
    return answered(asked("chat"), asked("documents"))


def held(arrangement: Arrangement) -> dict[str, list[float]]:
    """The share of each limit that is used, by use case."""
    return {
        case.name: [use.used or 0.0 for use in case.limits]
        for pool in arrangement.pools
        for case in pool.cases
    }


def test_the_shared_pool_holds_every_limit_of_each_on_no_more_gpus() -> None:
    """Read off the record again, by lengths and not by the mixture's own books: prompts of about
    500 are chat, of 6,000 documents."""
    chat, documents, found = asked("chat"), asked("documents"), together()
    assert found.chosen == "shared"
    assert (found.shared.gpus, found.shared.gpus_in_use) <= (
        found.separate.gpus,
        found.separate.gpus_in_use,
    )
    used = held(found.shared)
    assert set(used) == {"chat", "documents"}
    assert all(0 < share <= 1 for shares in used.values() for share in shares)
    (pool,) = found.shared.pools
    cases = [_case(one, one.plan.candidates[0]) for one in (chat, documents)]
    record = (
        Mixture([case for case in cases if case is not None], as_predicted=True)
        .run(pool.instances)
        .record
    )
    middle = slice(int(0.2 * len(record)), int(0.97 * len(record)))
    due, first, last, isl, osl = (
        getattr(record, name)[middle]
        for name in ("due_ns", "first_token_ns", "last_token_ns", "isl", "osl")
    )
    of_chat, ms = isl < 2_000, 1e6
    assert np.percentile((first - due)[of_chat], 95) / ms <= 400
    assert np.percentile(((last - first) / (osl - 1))[of_chat], 95) / ms <= 40
    assert np.percentile((first - due)[~of_chat], 95) / ms <= 3_000
    assert np.percentile((last - due)[~of_chat], 95) / ms <= 20_000
    seen = {case.name: case for case in pool.cases}
    assert np.percentile((first - due)[of_chat], 95) / ms == pytest.approx(seen["chat"].ttft_ms.p95)


def test_one_pool_that_takes_more_is_not_chosen_and_says_how_many() -> None:
    found = answered(asked("chat", peak_rps=150, tpot="p95<=15ms"), asked("documents", peak_rps=12))
    assert (found.chosen, found.not_shared.code) == ("separate", "more-gpus")
    assert found.not_shared.gpus > found.not_shared.separate_gpus


def test_what_would_break_a_limit_in_one_pool_is_kept_apart_and_says_why() -> None:
    """Prompts of 6,000 tokens stall the gaps of a chat that allows 12 ms at p99; alone it holds
    them."""
    chat = asked("chat", tpot=None, itl="p99<=12ms", isl=100, peak_rps=100)
    found = answered(chat, asked("documents", engine="tensorrt-llm-0.15"))
    assert found.chosen == "separate"
    assert found.not_shared.code in ("limit", "more-gpus")
    if found.shared is None:
        assert found.not_shared.breach.limit.metric == "itl"
        assert found.not_shared.case == "chat"
    assert found.separate is not None
    assert all(share <= 1 for shares in held(found.separate).values() for share in shares)


def test_other_models_and_jobs_stay_apart() -> None:
    chat, other = asked("chat"), asked("documents", model="llama-3-8b", isl=3000)
    found = answered(chat, other)
    assert (found.not_shared.code, found.chosen) == ("models", "separate")
    job = asked("documents", peak_rps=None, ttft=None, e2e=None, requests=50_000, within="1h")
    found = answered(chat, job)
    assert (found.not_shared.code, found.not_shared.case, found.chosen) == (
        "demand",
        "documents",
        "separate",
    )


SECOND: dict[str, Any] = {"model": "llama-3-8b", "isl": 3000, "peak_rps": 20}


def test_each_model_has_the_instances_that_size_finds_in_systems_of_one_instance() -> None:
    """Asked directly: the same shape in servers of as many GPUs as one instance takes."""
    cases = (asked("chat", tp="1,2"), asked("documents", **SECOND, tp="2"))
    found = answered(*cases)
    assert found.choice.gpus == 8 < found.alone.gpus == 16
    (part,) = found.choice.placement
    assert part.instances == tuple(pool.instances for pool in found.choice.pools)
    for case, pool in zip(cases, found.choice.pools, strict=True):
        changed = {} if case.name == "chat" else SECOND
        group = {"system": f"{pool.tp}xh100-sxm-80gb", "tp": pool.tp}
        direct = replace(
            question(**(KINDS[case.name] | changed | group)),
            deepen=False,
            tune=False,
        )
        alone = size(direct).choice
        assert (pool.instances, pool.tp) == (alone.systems, alone.tp)
        assert pool.alone == alone
        assert pool.cases[0].ttft_ms == alone.at_peak.ttft_ms
        assert all(use.used <= 1 for use in pool.cases[0].limits)


def test_use_cases_of_one_model_share_a_pool_next_to_another_model() -> None:
    cases = (asked("chat"), asked("documents"), replace(asked("documents", **SECOND), name="other"))
    found = answered(*cases)
    assert found.chosen == "shared"
    assert [[case.name for case in pool.cases] for pool in found.choice.pools] == [
        ["chat", "documents"],
        ["other"],
    ]
    assert found.choice.gpus_in_use <= found.separate.gpus_in_use
    names = [share.name for share in with_cost_together(found, catalog_prices()).choice.shares]
    assert names == ["chat", "documents", "other"]
    text = " ".join(terminal(use_cases_text(found)).split())
    assert "one pool for each model" in text
    assert f"{found.choice.pools[1].instances} × other (TP 1)" in text


def test_a_further_model_keeps_the_instances_of_the_others_and_adds_its_own() -> None:
    cases = (asked("chat", tp="1,2"), asked("documents", **SECOND, tp="2"))
    fewer, more = answered(*cases).choice, answered(*cases, asked("small", peak_rps=1)).choice
    assert [pool.instances for pool in more.pools[:2]] == [pool.instances for pool in fewer.pools]
    assert more.gpus >= fewer.gpus
    assert more.gpus_in_use == fewer.gpus_in_use + more.pools[2].gpus


def pool(systems_of: str, tp: int, instances: int) -> UseCasePool:
    names = {
        "gpu": systems_of,
        "precision": "fp8",
        "engine": "vllm-0.32",
        "engine_preset": "vllm-0.32",
    }
    return UseCasePool(
        **names,
        tp=tp,
        system=systems_of,
        gpus_per_system=8,
        knobs=None,
        instances=instances,
        instances_exact=1.0,
        cases=(),
    )


FAILURES = Failures(mtbf_hours=1_000, repair_hours=50)


def test_the_availability_of_two_kinds_of_systems_is_that_of_both_together() -> None:
    pools, asked = (pool("h100", 2, 9), pool("h200", 8, 2)), 0.999
    found = _arranged(pools, 0, Reserve(asked=asked, failures=FAILURES))
    assert [one.needed for one in found.standby] == [3, 2]
    assert [one.systems for one in found.systems] == [one.standing for one in found.standby]
    both = math.prod(FAILURES.availability(one.standing, one.needed) for one in found.standby)
    assert both >= asked == found.standby[0].asked
    fewer = [FAILURES.availability(one.standing - 1, one.needed) for one in found.standby]
    assert all(share < asked**0.5 for share in fewer)
    assert _arranged(pools, 0, Reserve()).systems == _arranged(pools, 0).systems


def test_instances_that_stand_by_have_room_on_the_systems() -> None:
    pools = (pool("h100", 4, 3), pool("h100", 1, 3))
    assert [one.systems for one in _arranged(pools, 0).systems] == [2]
    found = _arranged(pools, 0, Reserve(unit="instance", spare_instances=1))
    assert [(one.needed, one.standing) for one in found.standby] == [(3, 4), (3, 4)]
    assert [one.systems for one in found.systems] == [3]
    assert [
        one.systems
        for one in _arranged(pools, 2, Reserve(unit="instance", spare_instances=1)).systems
    ] == [4]
    failing = _arranged(pools, 0, Reserve(unit="instance", asked=0.999, failures=FAILURES))
    assert (
        math.prod(FAILURES.availability(one.standing, one.needed) for one in failing.standby)
        >= 0.999
    )


def test_what_stands_by_is_in_the_answer_and_its_text() -> None:
    cases = (asked("chat"), asked("documents"))
    bare = together()
    found = use_cases(cases, reserve=Reserve(asked=0.9999, failures=FAILURES))
    assert UseCases.from_json(found.to_json()) == found
    (known,) = found.choice.standby
    assert (known.needed, known.standing) == (
        bare.choice.systems[0].systems,
        found.choice.systems[0].systems,
    )
    assert known.standing == FAILURES.standing(known.needed, 0.9999) > known.needed
    assert "(99.99% asked)" in " ".join(terminal(use_cases_text(found)).split())


def test_deployments_are_tried_in_the_order_of_the_gpus_that_all_use_cases_would_take() -> None:
    def case(name: str, *rates: float) -> SimpleNamespace:
        kinds = [
            SimpleNamespace(
                engine="e",
                engine_preset="e",
                identity=gpus,
                sized_rate=rate,
                parallelism=SimpleNamespace(gpus=gpus),
            )
            for gpus, rate in enumerate(rates, 1)
        ]
        demand = SimpleNamespace(sizing_requests_per_second=100.0)
        return SimpleNamespace(
            name=name,
            question=SimpleNamespace(demand=demand),
            plan=SimpleNamespace(candidates=kinds),
        )

    found = _deployments([case("chat", 10.0, 25.0), case("documents", 10.0, 30.0)])
    assert [one.identity for one in found] == [2, 1], (
        "100/25 + 100/30 instances of two GPUs before 20 of one"
    )


def test_each_use_case_pays_its_share_of_the_peak_and_of_the_year() -> None:
    found = with_cost_together(together(), catalog_prices())
    for arrangement in (found.shared, found.separate):
        shares = {share.name: share for share in arrangement.shares}
        assert set(shares) == {"chat", "documents"}
        for name in ("at_peak", "over_year", "usd_per_year"):
            whole = arrangement.owned_usd_per_year if name == "usd_per_year" else 1.0
            parts = [getattr(share, name) for share in shares.values()]
            assert math.fsum(parts) == pytest.approx(whole)
    (pool,) = found.shared.pools
    exact = {case.name: case.instances_exact for case in pool.cases}
    assert found.shared.shares[0].at_peak == pytest.approx(exact["chat"] / sum(exact.values()))


# Without a search: the options of a use case, the fewest instances, and which deployment is taken.


def identity(tp: int, *, precision: str = "fp8", gpu: str = "h100-sxm-80gb") -> Identity:
    return Identity(
        gpu=gpu, precision=precision, tp=tp, engine="vllm-0.32", engine_preset="vllm-0.32"
    )


def of_plan(*candidates: Any, rejected: tuple[Rejected, ...] = (), **demand: Any) -> Asked:
    """A use case of 100 requests/s with these candidates."""
    of = question(peak_rps=100)
    plan = SimpleNamespace(candidates=candidates, rejected=rejected)
    return Asked(name="chat", question=replace(of, **demand), plan=plan)  # type: ignore[arg-type]


def test_what_a_plan_left_out_is_tried_with_the_fewest_instances_that_it_may_take() -> None:
    """Deployments that a closed form or a comparison left out, the fewest GPUs first: 100 requests/s
    at 10 a GPU are 10 GPUs, and two and a half systems 20."""
    other = identity(1)
    left_out = (
        rejected(identity(2), NeedsMoreGpus(gpus=24, systems_exact=2.5, other=other, other_gpus=8)),
        rejected(identity(4), Outdone(at_most_per_gpu=10.0, other=other, needed_per_gpu=12.0)),
        rejected(identity(8), Outdone(at_most_per_gpu=0.0, other=other, needed_per_gpu=12.0)),
        rejected(
            identity(1, precision="fp16"),
            Behind(
                breach=Breach(limit=limit_of(parse_limit("ttft", "1s")), value_ms=1.0),
                requests_per_second=1.0,
                per_gpu=8.0,
                other=other,
            ),
        ),
        rejected(identity(1, gpu="l4"), left(other)),
        replace(rejected(identity(2), left(other)), engine="vllm-0.32+mtp"),
        rejected(identity(1), NothingMeetsLimits()),
    )
    options = _options(of_plan(rejected=left_out))
    assert [
        (one.pool.tp, one.pool.precision, one.pool.instances, one.pool.instances_exact)
        for one in options
    ] == [
        (4, "fp8", 3, pytest.approx(2.5)),
        (1, "fp16", 13, pytest.approx(12.5)),
        (2, "fp8", 10, pytest.approx(10.0)),
    ]
    assert [one.rank for one in options] == [0, 1, 2]
    assert all(one.left_out and not one.sized for one in options)
    assert {(one.pool.system, one.pool.gpus_per_system) for one in options} == {("dgx-h100", 8)}


def left(other: Identity) -> NeedsMoreGpus:
    return NeedsMoreGpus(gpus=8, systems_exact=1.0, other=other, other_gpus=8)


def test_the_pools_of_a_plan_are_by_division_or_as_it_has_them() -> None:
    """Two and a half systems of four instances are ten; a job's are the whole systems without the
    spare one and one on standby."""
    of = candidate(tp=2, systems=5, systems_exact=2.5)
    (drawn,) = _options(of_plan(of))
    assert (drawn.pool.instances, drawn.pool.instances_exact, drawn.pool.cases) == (10, 10.0, ())
    assert (drawn.rank, drawn.sized, drawn.left_out) == (0, False, False)
    standing = replace(of, standby=SimpleNamespace(extra_systems=1), systems_exact=4.0)
    job = of_plan(
        standing, load="closed", spare=1, rejected=(rejected(identity(2), left(identity(1))),)
    )
    (option,) = _options(job)
    assert (option.pool.instances, option.pool.instances_exact, option.sized) == (12, 16.0, True)
    (case,) = option.pool.cases
    assert (case.name, case.requests_per_second, case.instances_exact) == ("chat", 100.0, 16.0)
    assert (case.limits, case.ttft_ms) == ((), Latencies())
    wide = candidate(tp=8, pp=2, systems=6, systems_exact=5.0, instances=3)
    (of_two,) = _options(of_plan(wide))
    assert (of_two.pool.instances, of_two.pool.instances_exact) == (3, 2.5)


@pytest.mark.parametrize("start", [1, 2, 5, 19, 40, 60])
@pytest.mark.parametrize("needs", [1, 2, 18, 41, 60, 61])
def test_the_fewest_instances_that_hold(start: int, needs: int) -> None:
    """Up to sixty: from a number on every limit holds."""

    def run(count: int) -> Any:
        ran.append(count)
        return SimpleNamespace(holds=count >= needs, worst=("chat", count), count=count)

    ran: list[int] = []
    count, found = _fewest(SimpleNamespace(run=run), start, 60)  # type: ignore[arg-type]
    if needs > 60:
        assert (count, found) == (60, ("chat", max(ran)))
    else:
        assert (count, found.count, found.holds) == (needs, needs, True)  # type: ignore[union-attr]
    assert max(ran) <= 60
    assert _fewest(SimpleNamespace(run=run), 0, 60) == (60, None)  # type: ignore[arg-type]


def test_a_shared_pool_is_the_best_of_four_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    """By GPUs of whole systems, then by those in use; a broken limit says why there is none."""
    kinds = [
        SimpleNamespace(gpu="h100", precision="fp8", parallelism=n, engine="e", engine_preset="e")
        for n in range(6)
    ]
    broken = NotShared(code="limit", case="chat", breach=SimpleNamespace())
    pools: dict[int, Any] = {}
    looked: list[tuple[int, int]] = []

    def one_pool(tried: Any, one: Any, most: int, spare: int, *, by_priority: bool) -> Any:
        looked.append((one.parallelism, most))
        return pools.get(one.parallelism, NotShared(code="limit"))

    monkeypatch.setattr("tonnage.sizing.use_cases._one_pool", one_pool)
    monkeypatch.setattr("tonnage.sizing.use_cases._deployments", lambda asked: kinds)
    monkeypatch.setattr("tonnage.sizing.use_cases.together", lambda asked: None)
    monkeypatch.setattr("tonnage.sizing.use_cases.has_priorities", lambda engine: engine == "p")
    tried, said = SimpleNamespace(asked=()), list[str]()

    def found(*, by_priority: bool = False) -> Any:
        looked.clear()
        return _shared(tried, 80, 1, said.append, by_priority=by_priority)  # type: ignore[arg-type]

    for place, (gpus, in_use) in enumerate([(64, 50), (56, 48), (56, 40), (56, 40)]):
        pools[place] = SimpleNamespace(gpus=gpus, gpus_in_use=in_use, place=place)
    assert found() == (pools[2], None)
    assert looked == [(0, 80), (1, 64), (2, 56), (3, 56)]
    assert said[0] == "shared pool of h100 fp8 0 e"
    pools.clear()
    assert found() == (None, NotShared(code="limit"))
    pools[1] = broken
    assert found() == (None, broken)
    assert found(by_priority=True) == (None, NotShared(code="no-priority"))
    kinds[5].engine_preset = "p"
    found(by_priority=True)
    assert looked == [(5, 80)]


def test_the_first_use_case_that_a_deployment_does_not_serve_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And each deployment is looked at once."""
    looked: list[str] = []
    served: dict[str, Any] = {"a": "A", "b": None, "c": "C"}

    def case(one: Any, candidate: Any) -> Any:
        looked.append(one.name)
        return served[one.name]

    monkeypatch.setattr("tonnage.sizing.use_cases._case", case)
    tried = Tried(asked=[SimpleNamespace(name=name) for name in served])  # type: ignore[arg-type]
    deployment = SimpleNamespace(identity=identity(1))
    for _ in range(2):
        assert tried.of(deployment) == NotShared(code="no-deployment", case="b")  # type: ignore[arg-type]
    assert looked == ["a", "b"]
    served["b"] = "B"
    assert tried.of(SimpleNamespace(identity=identity(2))) == ("A", "B", "C")  # type: ignore[arg-type]


@pytest.mark.parametrize(("preset", "drafts"), [("vllm-0.32", False), ("vllm", True)])
def test_a_pool_is_sized_in_systems_of_one_instance(
    preset: str, drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is of the pool's deployment alone, without spare systems; with drafts where its
    engine's name says more than its preset."""
    made: list[Any] = []

    def search(**what: Any) -> SimpleNamespace:
        made.append(what)
        return SimpleNamespace(answer=lambda: SimpleNamespace(best=None))

    monkeypatch.setattr("tonnage.sizing.use_cases.Search", search)
    guesses = SimpleNamespace()
    of = replace(question(spare=2), speculation=guesses, growth_per_month=0.1)  # type: ignore[arg-type]
    one = Asked(name="chat", question=of, plan=SimpleNamespace())  # type: ignore[arg-type]
    names = {
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "engine": "vllm-0.32",
        "engine_preset": preset,
    }
    narrow = UseCasePool(
        **names,
        tp=2,
        system="dgx-h100",
        gpus_per_system=8,
        knobs=None,
        instances=3,
        instances_exact=2.5,
        cases=(),
    )
    runs = Runs()
    assert _in_groups(one, narrow, runs) is None
    (what,) = made
    found = what["question"]
    assert (what["runs"], what["rows"]) == (runs, False)
    assert (found.deepen, found.spare, found.remarks, found.growth_per_month) == (
        False,
        0,
        (),
        None,
    )
    assert [gpu.name for gpu in found.gpus] == ["h100-sxm-80gb"]
    assert [precision.name for precision in found.precisions] == ["fp8"]
    assert (found.engines, found.tps, found.pps) == ((preset,), (2,), (1,))
    assert (found.dps, found.eps) == ((1,), (1,))
    assert found.speculation is (guesses if drafts else None)
    (group,) = found.systems
    assert (group.name, group.gpus) == ("2xh100-sxm-80gb", 2)
    assert _in_groups(one, replace(narrow, tp=8), runs) is None
    assert made[1]["question"].systems == of.systems  # an instance fills a system
