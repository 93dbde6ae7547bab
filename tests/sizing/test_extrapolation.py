"""When not to believe an answer: for each cause a deployment or a question that has it, and one
that has not; and the line that says it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deployments import deployment
from tests.questions import best as chosen_of
from tests.questions import question
from tonnage.perf.prediction_error import regime_of
from tonnage.perf.terms import step_model
from tonnage.plan.candidate import Candidate
from tonnage.plan.notes import FrontEnds
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import (
    Beyond,
    ClosedLoopNearSaturation,
    OpenLoopNearSaturation,
    OutOfRange,
    Unmeasured,
)
from tonnage.report.plans.confidence import beyond_text
from tonnage.report.plans.notes import note_text
from tonnage.sizing.extrapolation import (
    CLOSED_TIMES,
    GROWTH,
    STEADY,
    _growth,
    _hardware,
    _in_flight,
    _layers,
    _near_saturation,
    _out_of_range,
    beyond,
    unmeasured,
)
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.planner import size
from tonnage.sizing.search.candidate import candidate
from tonnage.sizing.search.deployment_capacity import Sized
from tonnage.sizing.search.search import Search
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.deployment import Deployment, Parallelism, parse_speculation
from tonnage.spec.engine import default_knobs
from tonnage.spec.lengths import Lengths
from tonnage.spec.step_times import StepSource


def absent(of: Deployment) -> tuple[Unmeasured, ...]:
    return tuple(unmeasured(of, regime_of(of, isl=2000, osl=200)))


def codes(of: Deployment) -> list[str]:
    return [one.code for one in absent(of)]


CURRENT = {
    "model": "llama-3.1-70b",
    "gpu": "h200-sxm-141gb",
    "precision": "fp8",
    "tp": 4,
    "engine": "vllm",
}


@pytest.mark.parametrize(
    ("changed", "item"),
    [
        (
            {"model": "llama-3.1-405b", "tp": 8},
            Unmeasured(code="model", name="llama-3.1-405b", nearest="falcon-180b"),
        ),
        (
            {"model": "kimi-k3", "tp": 8},
            Unmeasured(code="model", name="kimi-k3", nearest="kimi-k2.5"),
        ),
        (
            {"gpu": "h100-pcie-80gb"},
            Unmeasured(code="gpu", name="h100-pcie-80gb", nearest="h100-nvl-94gb"),
        ),
        ({"gpu": "gaudi3", "engine": "vllm-0.10"}, Unmeasured(code="gpu", name="gaudi3")),
        ({"gpu": "mi350x"}, Unmeasured(code="gpu", name="mi350x", rows=2, nearest="mi355x")),
        (
            {"gpu": "rtx-pro-6000-blackwell-se"},
            Unmeasured(code="gpu", name="rtx-pro-6000-blackwell-se", rows=6),
        ),
        (
            {"gpu": "a100-sxm-80gb", "precision": "fp16", "engine": "tensorrt-llm-1.2"},
            Unmeasured(code="engine", name="tensorrt-llm-1.2", on="a100-sxm-80gb"),
        ),
        (
            {"gpu": "gh200-96gb-hbm3", "tp": 1, "model": "llama-3.1-8b"},
            Unmeasured(
                code="engine", name="vllm-0.32", on="gh200-96gb-hbm3", nearest="h100-sxm-80gb"
            ),
        ),
        (
            {"gpu": "l40s", "model": "llama-3.1-8b", "tp": 1},
            Unmeasured(code="engine", name="vllm-0.32", on="l40s", rows=4),
        ),
        (
            {"engine": "tensorrt-llm-0.10"},
            Unmeasured(code="engine", name="tensorrt-llm-0.10", nearest="tensorrt-llm-0.9"),
        ),
        ({"precision": "awq"}, Unmeasured(code="format", name="awq", nearest="gptq")),
        ({"precision": "fp8+2:4"}, Unmeasured(code="format", name="fp8+2:4", nearest="fp8")),
    ],
)
def test_what_no_row_is_of_is_named_with_the_nearest_that_was_measured(
    changed: dict[str, Any], item: Unmeasured
) -> None:
    assert item in absent(deployment(**{**CURRENT, **changed}))
    assert item.code not in codes(deployment(**CURRENT))


def test_experts_and_latent_attention_without_rows_in_an_engine_name_the_engine_that_has_them() -> (
    None
):
    latent = {"model": "deepseek-v3", "precision": "fp8", "tp": 8, "gpu": "h200-sxm-141gb"}
    item = Unmeasured(
        code="layers", name="latent attention", on="tensorrt-llm-0.15", nearest="tensorrt-llm"
    )
    assert item in absent(deployment(**latent, engine="tensorrt-llm-0.15"))
    assert codes(deployment(**latent, engine="tensorrt-llm-1.2")) == []
    assert "layers" in codes(
        deployment(model="mixtral-8x7b", precision="fp8", tp=2, engine="nim-2024")
    )
    assert "layers" not in codes(
        deployment(model="mixtral-8x7b", precision="fp8", tp=2, engine="tensorrt-llm-0.15")
    )


def test_pipelines_ranks_and_speculation_are_named_where_they_are_used() -> None:
    plain = deployment(**CURRENT)
    assert codes(replace(plain, parallelism=Parallelism(tp=4, pp=2))) == ["pipeline"]
    assert codes(replace(plain, speculation=parse_speculation("ngram k=4 acceptance=0.3"))) == [
        "speculation"
    ]
    old = deployment(model="mixtral-8x7b", precision="fp8", tp=2, engine="tensorrt-llm-0.15")
    assert codes(old) == []
    assert codes(replace(old, parallelism=Parallelism(tp=1, dp=2, ep=2))) == ["ranks"]


def test_step_times_from_elsewhere_are_the_only_item() -> None:
    of = replace(
        deployment(**{**CURRENT, "model": "llama-3.1-405b", "tp": 8}),
        step_source=StepSource(name="steps.csv"),
    )
    assert absent(of) == (Unmeasured(code="step-times", name="steps.csv"),)
    assert beyond_text(absent(of)) == "not measured: the step times of steps.csv"


def test_what_its_owner_measured_is_measured() -> None:
    new = deployment(**{**CURRENT, "model": "llama-3.1-405b", "tp": 8})
    regime = regime_of(new, isl=2000, osl=200)
    assert list(unmeasured(new, regime))
    assert not list(unmeasured(new, replace(regime, calibrated=True)))
    assert not list(unmeasured(new, replace(regime, own_terms=True)))


@cache
def sized(load: str = "open") -> Sized:
    """One deployment of the small question: measured in all its parts."""
    asked = question(tp="1", load=load, peak_rps=40)
    best = Search(question=replace(asked, tune=False, deepen=False), runs=Runs()).answer().best
    assert best is not None
    return best


@cache
def stated(load: str = "open") -> Candidate:
    return candidate(sized(load), chosen=True)


def items_of(best: Sized, chosen: Candidate, **changed: Any) -> tuple[Beyond, ...]:
    """What is said of the choice where the question, or the choice, has other values than those
    that were sized."""
    asked = replace(best.contender.question, **changed)
    return beyond(replace(best, contender=replace(best.contender, question=asked)), chosen)


def test_a_question_inside_what_was_measured_has_no_item() -> None:
    assert items_of(sized(), stated()) == ()


@pytest.mark.parametrize(
    ("lengths", "code", "tail"),
    [
        ({"isl": "exact:30000"}, "isl", False),
        ({"isl": "exact:10"}, "isl", False),
        ({"osl": "exact:6000"}, "osl", False),
        ({"osl": "exact:2"}, "osl", False),
        ({"isl": "lognormal:12000,10000"}, "isl", True),
        ({"isl": "exact:24500", "osl": "exact:4000"}, "context", False),
    ],
)
def test_lengths_beyond_the_rows_are_named_and_those_near_them_are_not(
    lengths: dict[str, str], code: str, tail: bool
) -> None:
    asked = question(**lengths)
    (item,) = items_of(sized(), stated(), isl=asked.isl, osl=asked.osl)
    assert isinstance(item, OutOfRange)
    assert (item.code, item.tail) == (code, tail)
    assert item.most in (20_000, 4_096, 22_000)
    near = question(isl="exact:24000", osl="exact:20")
    assert items_of(sized(), stated(), isl=near.isl, osl=near.osl) == ()


def test_more_requests_in_flight_than_any_row_held_are_named() -> None:
    peak = stated().at_peak
    assert peak.e2e_ms.mean is not None
    longer = replace(
        peak, e2e_ms=replace(peak.e2e_ms, mean=1e3 * 3_000 / peak.requests_per_second_per_instance)
    )
    (item,) = items_of(sized(), replace(stated(), at_peak=longer))
    assert item == OutOfRange(code="in-flight", value=pytest.approx(3_000), most=2_048)


@pytest.mark.parametrize("cached", [True, False])
def test_prompts_from_a_cache_are_named_where_the_engine_keeps_one(cached: bool) -> None:
    """The fit leaves out the rows whose prompts look cached."""
    asked = question(
        tp="1", engine="vllm", isl="exact:1000", shared_prefix=2_000, peak_rps=5, ttft="p95<=2s"
    )
    found = chosen_of(replace(asked, tune=False, deepen=False, prefix_caching=cached))
    items = beyond(found, candidate(found, chosen=True))
    assert [one.code for one in items] == (["prefix-caching"] if cached else [])
    assert beyond_text(items) == ("not measured: prompts from a cache" if cached else "")


def test_an_open_loop_near_saturation_names_what_a_usual_error_does() -> None:
    chosen = stated()
    peak, busy = chosen.at_peak, chosen.saturation_requests_per_second_per_instance
    assert peak is not None

    def at(share: float) -> tuple[Beyond, ...]:
        return items_of(
            sized(),
            replace(chosen, at_peak=replace(peak, requests_per_second_per_instance=share * busy)),
        )

    assert at(STEADY - 0.01) == ()
    (item,) = at(0.9)
    assert isinstance(item, OpenLoopNearSaturation)
    assert (item.share, item.times) == (pytest.approx(0.9), pytest.approx(dict(GROWTH)[0.9]))
    assert item.times_below == dict(GROWTH)[STEADY]
    (fuller,) = at(0.99)
    assert isinstance(fuller, OpenLoopNearSaturation)
    assert fuller.times == GROWTH[-1][1]
    assert "at 90% of saturation" in beyond_text((item,))
    assert "multiplies p95 TTFT by more than 10 (by 1.3 at 85%)" in beyond_text((fuller,))


def test_a_closed_loop_near_saturation_names_the_errors_that_were_measured_there() -> None:
    chosen, busy = stated("closed"), stated("closed").saturation_requests_per_second_per_instance
    assert chosen.at_peak is None

    def at(share: float) -> tuple[Beyond, ...]:
        return items_of(
            sized("closed"), replace(chosen, requests_per_second_per_instance=share * busy)
        )

    assert at(0.9) == ()
    assert at(0.97) == (
        ClosedLoopNearSaturation(share=pytest.approx(0.97), times=CLOSED_TIMES, below=0.8),
    )
    assert (
        beyond_text(at(0.97)) == "at 97% of saturation errors of p95 TTFT are 1.6 × those below 80%"
    )


SMALL_MODEL: dict[str, object] = {
    "model": "llama-3.2-1b",
    "gpu": "b200",
    "tp": "1",
    "engine": "vllm",
    "isl": 100,
    "osl": 200,
    "ttft": None,
    "itl": "p99<=50ms",
}


def front_ends(plan: Plan) -> FrontEnds | None:
    return next((note for note in plan.notes if isinstance(note, FrontEnds)), None)


def planned(**changed: object) -> Plan:
    return size(replace(question(**{**SMALL_MODEL, **changed}), deepen=False, tune=False))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_front_ends_share_the_sequences_of_all_ranks(count: int) -> None:
    d = deployment(model="deepseek-r1", gpu="h200", precision="fp8", engine="vllm")
    wide = replace(d, parallelism=Parallelism(dp=8, ep=8), knobs=replace(d.knobs, front_ends=count))
    one = replace(wide, knobs=replace(d.knobs, front_ends=1))
    assert step_model(wide).stream_s == pytest.approx(step_model(one).stream_s / count)
    assert step_model(one).stream_s == pytest.approx(8 * step_model(d).stream_s)


@pytest.mark.parametrize(
    ("engine", "front_ends"),
    [("vllm", 8), ("sglang", 8), ("tensorrt-llm", 8), ("tensorrt-llm-0.15", 1), ("nim", 1)],
)
def test_data_parallel_attention_has_a_front_end_for_each_rank_where_the_engine_can(
    engine: str, front_ends: int
) -> None:
    assert default_knobs(find_engine(engine), find_gpu("h200"), 8).front_ends == front_ends
    assert default_knobs(find_engine(engine), find_gpu("h200"), ranks=1).front_ends == 1
    launch = find_engine(engine).launch
    assert front_ends == 1 or (launch is not None and launch.flag("front_ends"))


def test_a_single_front_end_that_ends_the_load_is_told_and_more_of_them_carry_more() -> None:
    one, four = planned(), planned(front_ends=4)
    told, more = front_ends(one), front_ends(four)
    assert told.front_ends == 1
    assert more.front_ends == 4
    assert (
        0.85 * told.requests_per_second_of_one
        < one.choice.requests_per_second_per_instance
        <= 1.02 * told.requests_per_second_of_one
    )
    assert four.choice.requests_per_second_per_instance > 1.5 * told.requests_per_second_of_one
    assert note_text(told).endswith("several of them (--api-server-count) would carry more.")
    assert note_text(more).startswith(
        "Every instance is taken to run 4 API servers (--api-server-count 4): one can serve "
    )
    assert "--api-server-count" not in one.choice.launch
    assert four.choice.launch[four.choice.launch.index("--api-server-count") + 1] == "4"


def test_a_front_end_that_ends_nothing_is_not_spoken_of() -> None:
    plan = planned(model="llama-3.1-70b", tp="4", isl=2_000)
    assert plan.choice is not None
    assert front_ends(plan) is None


def test_the_search_tries_several_api_servers_where_one_works_most_of_its_time() -> None:
    """Llama 3.2 1B on a B200 outruns one API server threefold; a number that the asker gave is
    kept."""
    busy = size(replace(question(**{**SMALL_MODEL, "peak_rps": 5_000.0}), deepen=False))
    assert busy.choice is not None
    assert busy.choice.knobs is not None
    assert busy.choice.knobs.front_ends > 1
    assert busy.choice.launch[busy.choice.launch.index("--api-server-count") + 1] == str(
        busy.choice.knobs.front_ends
    )
    assert "front_ends" not in question(**SMALL_MODEL, front_ends=1).free_moves


ROWS = SimpleNamespace(isl=(80, 8_000), osl=(16, 800), context=10_000, in_flight=100, gpus=8)
"""What made rows cover: a value is near them up to a quarter more, and down to an eighth."""


@pytest.mark.parametrize(
    ("isl", "osl", "in_flight", "gpus", "named"),
    [
        (1_000, 100, 100.0, 8, []),
        (10_000, 100, 125.0, 10, []),
        (10_001, 100, 10.0, 8, [("isl", 10_001)]),
        (10, 2, 10.0, 8, []),
        (9, 100, 10.0, 8, [("isl", 9)]),
        (1_000, 1_001, 10.0, 8, [("osl", 1_001)]),
        (1_000, 1, 10.0, 8, [("osl", 1)]),
        (9_000, 1, 10.0, 8, [("osl", 1)]),
        (1_000, 100, 125.1, 8, [("in-flight", 125.1)]),
        (1_000, 100, 10.0, 11, [("gpus", 11)]),
        (
            10_001,
            1_001,
            130.0,
            16,
            [("isl", 10_001), ("osl", 1_001), ("in-flight", 130.0), ("gpus", 16)],
        ),
    ],
)
def test_what_is_beyond_the_rows_is_named_once_each(
    isl: int, osl: int, in_flight: float, gpus: int, named: list[tuple[str, float]]
) -> None:
    found = out_of_range((isl, osl), in_flight, gpus)
    assert [(item.code, item.value) for item in found] == [
        (code, pytest.approx(value)) for code, value in named
    ]


def out_of_range(
    lengths: tuple[int, int],
    in_flight: float,
    gpus: int,
    ranks: int = 1,
    rows: Any = ROWS,
    **regime: bool,
) -> list[OutOfRange]:
    asked = SimpleNamespace(isl=Lengths(mean=lengths[0]), osl=Lengths(mean=lengths[1]))
    deployment = SimpleNamespace(
        step_source=regime.pop("step_source", None),
        parallelism=SimpleNamespace(gpus=gpus, dp=ranks),
    )
    known = SimpleNamespace(**{"calibrated": False, "own_terms": False} | regime)
    chosen = SimpleNamespace(at_peak=None, concurrency_per_instance=in_flight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tonnage.sizing.extrapolation.shipped_ranges",
            lambda: SimpleNamespace(of=lambda deployment: rows),
        )
        return list(_out_of_range(asked, deployment, known, chosen))  # type: ignore[arg-type]


def test_ranges_are_of_a_rank_and_of_what_the_fit_knows() -> None:
    assert out_of_range((1_000, 100), 500.0, 8, ranks=4) == []
    (item,) = out_of_range((1_000, 100), 504.0, 8, ranks=4)
    assert item == OutOfRange(code="in-flight", value=126.0, most=100)
    # lengths that are inside, and their sum is not
    short = SimpleNamespace(**{**vars(ROWS), "context": 4_000})
    (item,) = out_of_range((4_950, 100), 1.0, 8, rows=short)
    assert item == OutOfRange(code="context", value=5_050, most=4_000)
    assert out_of_range((4_900, 100), 1.0, 8, rows=short) == []
    (item,) = out_of_range((10_001, 100), 1.0, 8)
    assert item == OutOfRange(code="isl", value=10_001, least=80, most=8_000)
    for unknown in ({"calibrated": True}, {"own_terms": True}, {"step_source": True}):
        assert out_of_range((10_001, 100), 1.0, 8, **unknown) == []
    assert out_of_range((10_001, 100), 1.0, 8, rows=None) == []


@pytest.mark.parametrize(
    ("share", "times"),
    [
        (0.3, 1.1),
        (0.5, 1.1),
        (0.65, 1.15),
        (0.8, 1.2),
        (0.86, 1.37),
        (0.885, 2.715),
        (0.9, 3.96),
        (0.95, 14.7),
    ],
)
def test_the_factor_of_a_share_is_on_the_line_between_two_that_were_simulated(
    share: float, times: float
) -> None:
    assert _growth(share) == pytest.approx(times)


def test_requests_in_flight_follow_littles_law() -> None:
    peak = SimpleNamespace(
        requests_per_second_per_instance=20.0, e2e_ms=SimpleNamespace(mean=1_500.0)
    )
    chosen = SimpleNamespace(at_peak=peak, concurrency_per_instance=7.0)
    assert _in_flight(chosen) == pytest.approx(30.0)  # type: ignore[arg-type]
    peak.e2e_ms.mean = None
    assert _in_flight(chosen) == 7.0  # type: ignore[arg-type]
    chosen.concurrency_per_instance = None
    assert _in_flight(chosen) == 0.0  # type: ignore[arg-type]


def test_a_job_and_a_deployment_without_a_limit_are_near_nothing() -> None:
    peak = SimpleNamespace(requests_per_second_per_instance=9.9)

    def near(offline: bool, saturation: float, at_peak: Any = peak) -> list[Beyond]:
        chosen = SimpleNamespace(
            saturation_requests_per_second_per_instance=saturation,
            at_peak=at_peak,
            requests_per_second_per_instance=9.6,
        )
        asked = SimpleNamespace(offline=offline)
        return list(_near_saturation(asked, chosen))  # type: ignore[arg-type]

    assert near(True, 10.0) == near(False, 0.0) == near(True, 10.0, None) == []
    (item,) = near(False, 10.0)
    assert item == OpenLoopNearSaturation(
        share=0.99, times=14.7, below=0.85, times_below=pytest.approx(1.27)
    )
    assert near(False, 9.9 / 0.85 + 1e-9) == []
    (item,) = near(False, 10.0, None)
    assert item == ClosedLoopNearSaturation(share=0.96, times=1.6, below=0.8)
    assert near(False, 9.6 / 0.95 + 1e-9, None) == []


# By hand: rows of three GPUs, and versions of an engine.

MODULE = "tonnage.sizing.extrapolation"


def of_rows(monkeypatch: pytest.MonkeyPatch, **engine: int) -> SimpleNamespace:
    """Rows in 16 bits of a and b, in 8 bits of b and of 19 alone of c; the generation has ``engine``
    rows of each GPU."""
    rows = SimpleNamespace(
        gpus={"a": {"16": 20}, "b": {"16": 30, "8": 20}, "c": {"8": 19}},
        generation=lambda deployment: "generation",
        by_gpu=lambda generation: {"a": 0, "b": 0, "c": 0} | engine,
    )
    monkeypatch.setattr(f"{MODULE}.shipped_ranges", lambda: rows)
    monkeypatch.setattr(f"{MODULE}.fitted_bits", lambda precision: precision)
    monkeypatch.setattr(f"{MODULE}.nearest_gpu", lambda gpu, names: "/".join(names))
    monkeypatch.setattr(
        f"{MODULE}.find_engine", lambda name: SimpleNamespace(coefficients=name, family=name[0])
    )
    monkeypatch.setattr(f"{MODULE}.shipped", lambda: {"origins": {"engines": {"borrowed": "x"}}})
    return rows


def on(gpu: str, bits: str, engine: str = "own") -> Any:
    card = SimpleNamespace(name=gpu, executes=lambda precision: bits)
    return SimpleNamespace(gpu=card, precision="p", engine=engine, model="m")


def regime(**changed: bool) -> Any:
    known = {"known_gpu": False, "known_engine": False, "before_rows": False}
    return SimpleNamespace(**known | changed)


@pytest.mark.parametrize(
    ("deployment", "changed", "item"),
    [
        # too few rows of the GPU in as many bits; the width is said where it has others
        (on("a", "8"), {}, {"code": "gpu", "name": "a", "bits": 8, "nearest": "b"}),
        (on("c", "8"), {}, {"code": "gpu", "name": "c", "rows": 19, "nearest": "b"}),
        (on("c", "16"), {}, {"code": "gpu", "name": "c", "nearest": "a/b"}),
        (on("z", "16"), {}, {"code": "gpu", "name": "z", "nearest": "a/b"}),
        # enough rows of the GPU: then of the engine on it
        (
            on("a", "16"),
            {},
            {"code": "engine", "name": "own", "on": "a", "rows": 19, "nearest": "b"},
        ),
        (on("b", "16"), {}, None),
        (on("a", "8"), {"known_gpu": True, "known_engine": True}, None),
        (
            on("a", "8"),
            {"known_gpu": True},
            {"code": "engine", "name": "own", "on": "a", "rows": 19, "nearest": "b"},
        ),
        # versions before all rows, and those whose terms are of others
        (
            on("b", "16"),
            {"before_rows": True},
            {"code": "engine", "name": "own", "nearest": "generation"},
        ),
        (
            on("b", "16", "borrowed"),
            {"known_engine": True},
            {"code": "engine", "name": "borrowed", "nearest": "generation"},
        ),
    ],
)
def test_hardware_and_engines_without_rows_by_hand(
    deployment: Any,
    changed: dict[str, bool],
    item: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_rows(monkeypatch, a=19, b=20)
    found = list(_hardware(deployment, regime(**changed)))
    assert found == ([] if item is None else [Unmeasured(**item)])


def test_layers_without_rows_name_the_engine_of_the_family_or_the_one_with_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = of_rows(monkeypatch)
    monkeypatch.setattr(f"{MODULE}.kind_of", lambda model: "experts")

    def loads(**counts: int) -> None:
        rows.loads = {
            name: {"experts": SimpleNamespace(rows={"a": count - 1, "b": 1})}
            for name, count in counts.items()
        } | {"plain": {"dense": SimpleNamespace(rows={"a": 999})}}

    for counts, nearest in (
        ({"other": 9, "tensor": 40, "old": 5}, "other"),  # the family of "own" begins with an o
        ({"third": 9, "tensor": 40}, "tensor"),
        ({}, ""),
    ):
        loads(**counts)
        assert _layers(on("a", "8")) == Unmeasured(
            code="layers", name="experts", on="own", nearest=nearest
        )


@pytest.mark.parametrize(("shares", "caching"), [(True, True), (True, False), (False, True)])
def test_every_item_beyond_the_rows_in_its_order(
    shares: bool, caching: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SimpleNamespace(sharing=object() if shares else None)
    deployment = SimpleNamespace(engine="e")
    known = SimpleNamespace(regime="regime")
    best: Any = SimpleNamespace(
        contender=SimpleNamespace(
            question=asked,
            errors={"requests_s": known},
            instance=SimpleNamespace(knobs=SimpleNamespace(prefix_caching=caching)),
        ),
        ready=SimpleNamespace(trial=SimpleNamespace(deployment=deployment)),
    )
    monkeypatch.setattr(f"{MODULE}.unmeasured", lambda *what: iter([what]))
    monkeypatch.setattr(f"{MODULE}._out_of_range", lambda *what: iter([what]))
    monkeypatch.setattr(f"{MODULE}._near_saturation", lambda *what: iter([what]))
    cached = (Unmeasured(code="prefix-caching", name="e"),) if shares and caching else ()
    assert beyond(best, "chosen") == (  # type: ignore[arg-type]
        (deployment, "regime"),
        *cached,
        (asked, deployment, "regime", "chosen"),
        (asked, "chosen"),
    )
