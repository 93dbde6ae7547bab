import math
from dataclasses import astuple, replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deployments import array
from tests.deployments import deployment as deployed
from tonnage.errors import InputError
from tonnage.perf import step_terms as at
from tonnage.perf.links import check_split
from tonnage.perf.memory import expert_weights, kv_bytes_per_token, memory_plan, weight_bytes
from tonnage.perf.step import batch_seconds, step_seconds
from tonnage.perf.terms import (
    NARROW_FFN,
    WIDE_FFN,
    ExpertTerms,
    add_dispatch,
    add_experts,
    by_width,
    coefficients,
    expert_terms,
    remote_copies,
    resolve,
    step_model,
)
from tonnage.perf.terms_file import groups_of, shipped
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.deployment import Deployment, Parallelism
from tonnage.spec.engine import default_knobs
from tonnage.spec.precision import Precision, find_precision


def deployment(
    model: str = "deepseek-v3", precision: str = "fp8", engine: str = "vllm", **split: int
) -> Deployment:
    spec, gpu = find_engine(engine), find_gpu("h200-sxm-141gb")
    return Deployment(
        model=find_model(model),
        gpu=gpu,
        precision=find_precision(precision),
        parallelism=Parallelism(**split),
        engine=spec.name,
        knobs=default_knobs(spec, gpu, ranks=split.get("dp", 1)),
    )


def touched(experts: int, chosen: int, tokens: int, **split: int) -> tuple[float, float]:
    """Mean and fullest touched share of the experts of a GPU as the coefficients have it."""
    c = np.zeros(at.COEFFICIENTS)
    model = replace(find_model("mixtral-8x7b"), experts=experts, experts_per_token=chosen)
    array = c.tolist()
    add_experts(
        array,
        terms=ExpertTerms(compute=1.0, memory=1.0, spread=1.0),
        model=model,
        precision=find_precision("fp8"),
        parallelism=Parallelism(**split),
        flops_s=1e15,
        bytes_s=(1e12, 1.0),
    )
    share = 1.0 - array[at.EXPERT_REST] * array[at.EXPERT_MISS] ** tokens
    return share, min(share + array[at.EXPERT_UNEVEN] * max(share * (1 - share), 0.0) ** 0.5, 1.0)


@pytest.mark.parametrize(
    ("experts", "chosen", "tokens", "ranks"),
    [(8, 2, 3, 1), (128, 8, 20, 1), (256, 8, 8, 4), (64, 4, 1, 8)],
)
def test_the_expected_touched_share_is_that_of_a_count(
    experts: int, chosen: int, tokens: int, ranks: int
) -> None:
    rng = np.random.default_rng(1)
    draws = rng.random((2000, tokens * ranks, experts)).argsort(axis=2)[:, :, :chosen]
    counted = np.mean([np.unique(draw).size for draw in draws]) / experts
    assert touched(experts, chosen, tokens, dp=ranks)[0] == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(
    ("experts", "chosen", "tokens", "groups"), [(256, 8, 8, 8), (128, 8, 16, 4), (128, 4, 8, 8)]
)
def test_the_fullest_group_is_about_as_full_as_a_count_says(
    experts: int, chosen: int, tokens: int, groups: int
) -> None:
    rng = np.random.default_rng(2)
    draws = rng.random((2000, tokens, experts)).argsort(axis=2)[:, :, :chosen]
    each = experts // groups
    fullest = (
        np.mean([np.bincount(np.unique(draw) // each, minlength=groups).max() for draw in draws])
        / each
    )
    mean, estimate = touched(experts, chosen, tokens, tp=groups, ep=groups)
    assert mean < fullest
    assert estimate == pytest.approx(fullest, rel=0.15)


@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b"])
@pytest.mark.parametrize(
    "split",
    [
        {"tp": 8},
        {"tp": 8, "ep": 8},
        {"tp": 4, "dp": 2, "ep": 8},
        {"dp": 8, "ep": 8},
        {"tp": 2, "dp": 4, "ep": 2},
    ],
)
def test_the_weights_of_all_gpus_are_the_whole_and_a_copy_of_attention_per_rank(
    model: str, split: dict[str, int]
) -> None:
    d = deployment(model, engine="tensorrt-llm-0.15", **split)
    m, p = d.model, d.parallelism
    experts = expert_weights(m)
    routers = m.router_parameters * 2 * p.gpus
    common = (m.common_parameters - m.router_parameters) * p.dp + m.head_parameters * 2 * (
        1 if m.tied_embeddings else 2
    ) * p.dp
    assert weight_bytes(d) * p.gpus == pytest.approx(experts + common + routers, abs=p.gpus)


def test_deepseek_on_eight_h200_by_hand() -> None:
    """671 B in FP8: 256 experts of 3 · 7168 · 2048 weights in 58 layers over 8 GPUs, all else once
    per GPU of a rank."""
    experts = 58 * 256 * 3 * 7168 * 2048
    assert expert_weights(find_model("deepseek-v3")) == experts
    tables = 2 * 129280 * 7168 * 2 + 58 * 256 * 7168 * 2
    others = 671.0e9 - experts - tables / 2
    ranks = deployment(dp=8, ep=8)
    assert weight_bytes(ranks) == pytest.approx(experts / 8 + others + tables, rel=0.01)
    assert weight_bytes(deployment(tp=8, ep=8)) == weight_bytes(deployment(tp=8))
    assert kv_bytes_per_token(ranks) == 61 * (512 + 64)
    plan = memory_plan(ranks)
    assert plan.tokens * plan.kv_bytes_per_token < 0.92 * ranks.gpu.memory_bytes - plan.weight_bytes


def test_keys_and_values_of_a_rank_are_split_over_its_gpus_alone() -> None:
    assert kv_bytes_per_token(deployment("qwen3-235b-a22b", tp=2, dp=4, ep=8)) == 2 * 94 * 2 * 128
    assert kv_bytes_per_token(deployment("qwen3-235b-a22b", tp=4, ep=4)) == 2 * 94 * 1 * 128


@given(
    split=st.sampled_from(
        [
            {"tp": 8},
            {"tp": 8, "ep": 8},
            {"dp": 8, "ep": 8},
            {"tp": 2, "dp": 4, "ep": 8},
            {"tp": 4, "dp": 2},
        ]
    ),
    tokens=st.integers(1, 4000),
)
def test_more_tokens_never_cost_less(split: dict[str, int], tokens: int) -> None:
    c = step_model(deployment(**split)).coefficients
    assert batch_seconds(c, tokens + 1, 8) >= batch_seconds(c, tokens, 8)


def test_ranks_touch_together_what_none_would_alone() -> None:
    alone, together = (step_model(deployment(tp=1, dp=n, ep=n)).coefficients for n in (2, 8))
    share = [1.0 - c[at.EXPERT_REST] * c[at.EXPERT_MISS] ** 4 for c in (alone, together)]
    assert share[1] > 2.5 * share[0]
    assert together[at.EXPERT_BYTES] == pytest.approx(alone[at.EXPERT_BYTES] / 4)


def test_ranks_send_tokens_to_their_experts_in_place_of_reducing_over_all_gpus() -> None:
    ranks, tensor = (
        step_model(deployment(**split)).coefficients
        for split in ({"dp": 8, "ep": 8}, {"tp": 8, "ep": 8})
    )
    assert ranks[at.COMM_TOKEN] > 0
    assert ranks[at.SMALL_TOKENS] == 0
    assert tensor[at.SMALL_TOKENS] > 0
    lone = replace(find_model("mixtral-8x7b"), experts_per_token=1)
    assert remote_copies(lone, Parallelism(dp=8, ep=8)) == pytest.approx(7 / 8)
    assert remote_copies(lone, Parallelism(tp=2, dp=2)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("model", "split", "words"),
    [
        (
            "llama-3.1-8b",
            {"tp": 2, "ep": 2},
            "ep: llama-3.1-8b has no experts to spread over GPUs; use tp",
        ),
        (
            "llama-3.1-8b",
            {"dp": 2},
            "dp: llama-3.1-8b has no experts to spread over GPUs; replicate it instead",
        ),
        (
            "deepseek-v3",
            {"tp": 8, "ep": 3},
            "ep: 3 groups of experts do not divide TP 8 × DP 1 = 8 GPUs; use 1, 2, 4, 8",
        ),
        (
            "mixtral-8x7b",
            {"tp": 4, "dp": 4, "ep": 16},
            "ep: 8 experts of mixtral-8x7b cannot be spread over 16 groups evenly",
        ),
        ("deepseek-v3", {"tp": 8, "dp": 0}, "dp: must be 1 or more, not 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    model: str, split: dict[str, int], words: str
) -> None:
    with pytest.raises(InputError) as error:
        check_split(deployment(model, **split))
    assert str(error.value) == words


def test_windows_cut_attention_to_the_layers_without_them() -> None:
    d = deployment("gpt-oss-120b", engine="tensorrt-llm-0.15", tp=2)
    full = replace(d, model=replace(d.model, window=0, windowed_layers=0))
    c, whole = (step_model(each).coefficients for each in (d, full))
    assert c[at.CONTEXT] == pytest.approx(whole[at.CONTEXT] / 2)
    at_window = [step_seconds(each, 0, 0, 16, 0, 16 * d.model.window) for each in (c, whole)]
    assert at_window[0] == pytest.approx(at_window[1], rel=1e-3)
    assert step_seconds(c, 0, 0, 16, 0, 16 * 4096) < step_seconds(whole, 0, 0, 16, 0, 16 * 4096)


def test_terms_of_experts_leave_a_dense_model_alone() -> None:
    d = deployment("llama-3.1-8b", engine="vllm")
    t = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, "vllm")
    other = replace(
        t,
        experts=ExpertTerms(
            compute=0.01,
            memory=0.01,
            spread=0.5,
            rows=9.0,
            layer_s=1.0,
            prefill_s=1.0,
            sequence_s=1.0,
        ),
    )
    arrays = [coefficients(each, d.model, d.gpu, d.precision, d.parallelism) for each in (t, other)]
    assert arrays[0] == arrays[1]


@pytest.mark.parametrize(
    ("width", "share"),
    [(1536, 0.3), (NARROW_FFN, 0.3), (6_426, math.sqrt(0.3 * 0.8)), (WIDE_FFN, 0.8), (16_384, 0.8)],
)
def test_wide_experts_reach_what_mixtrals_do_and_fitted_widths_what_was_fitted(
    width: int, share: float
) -> None:
    assert by_width(0.3, 0.8, width) == pytest.approx(share, rel=1e-4)


def test_norms_over_all_heads_add_one_small_sum_per_layer_between_gpus() -> None:
    joint = deployment("minimax-m2.5", tp=4)
    apart = replace(joint, model=replace(joint.model, joint_norms=False))
    with_sums, without = (step_model(d).coefficients for d in (joint, apart))
    one = without[at.COMM_STEP] / (2 * joint.model.layers)
    for place in (at.COMM_STEP, at.COMM_LARGE):
        assert with_sums[place] - without[place] == pytest.approx(joint.model.layers * one)
    alone = [
        step_model(replace(d, parallelism=Parallelism(tp=1))).coefficients for d in (joint, apart)
    ]
    assert (alone[0] == alone[1]).all()


def test_experts_of_a_random_batch_are_all_read_and_those_of_equal_prompts_are_not() -> None:
    random, equal = (
        array(model="mixtral-8x7b", tp=2, engine=e)
        for e in ("tensorrt-llm-0.15", "tensorrt-llm-0.9")
    )

    def read(c: np.ndarray, tokens: int) -> float:
        return float(1.0 - c[at.EXPERT_REST] * c[at.EXPERT_MISS] ** tokens)

    assert read(random, 1) == pytest.approx(0.25)
    # both choices of such a token are the same expert
    assert read(equal, 1) == pytest.approx(0.125)
    assert read(random, 64) > 0.99
    assert read(equal, 64) < 0.35
    assert array()[at.EXPERT_BYTES] == 0.0


def test_choosing_experts_costs_the_host_time_of_every_layer() -> None:
    d = deployed(model="mixtral-8x7b", tp=2, engine="tensorrt-llm-0.9")
    t = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, "tensorrt-llm-0.9")
    with_it, without = (
        coefficients(
            replace(t, experts=replace(t.experts, layer_s=each)),
            d.model,
            d.gpu,
            d.precision,
            d.parallelism,
        )[at.HOST_STEP]
        for each in (3e-5, 0.0)
    )
    assert t.experts.layer_s > 0.0
    assert with_it - without == pytest.approx(32 * 3e-5)


def test_a_layer_of_experts_sends_its_tokens_twice() -> None:
    """Once to dispatch them and once to combine them."""
    model, split = find_model("deepseek-v3"), Parallelism(dp=8, ep=8)
    terms = ExpertTerms(compute=1.0, memory=1.0, spread=1.0, dispatch_s=1e-5, dispatch_bytes_s=1e11)
    c = [0.0] * at.COEFFICIENTS
    add_dispatch(c, terms, model, split)
    once, each = at.MESSAGES[0]
    assert c[once] == pytest.approx(2 * model.expert_layers * 1e-5)
    assert c[each] == pytest.approx(
        2 * model.expert_layers * 2 * model.expert_width * remote_copies(model, split) / 1e11
    )


def test_experts_of_mixtral_on_two_ranks_by_hand() -> None:
    """8 experts, of which 2 are chosen, in 32 layers; two ranks of one GPU with four experts of
    each layer."""
    model, split = find_model("mixtral-8x7b"), Parallelism(dp=2, ep=2)
    parameters = model.expert_parameters
    assert parameters == 32 * 3 * 4096 * 14_336
    terms = ExpertTerms(
        compute=0.5,
        memory=0.8,
        spread=2.0,
        rows=3.0,
        layer_s=1e-5,
        each_s=1e-6,
        sequence_s=2e-6,
        prefill_s=3e-6,
        skew=0.1,
    )

    def added(terms: ExpertTerms) -> list[float]:
        c = [0.0] * at.COEFFICIENTS
        for place in (at.ACTIVATION, at.HOST_STEP, at.HOST_SEQUENCE, at.HOST_PREFILL):
            c[place] = 1e-4
        add_experts(
            c,
            terms=terms,
            model=model,
            precision=find_precision("fp16"),
            parallelism=split,
            flops_s=1e15,
            bytes_s=(3e12, 0.9),
        )
        return c

    expected = [0.0] * at.COEFFICIENTS
    expected[at.EXPERT_FLOPS] = 1.1 * 2 * 2 * parameters / 0.5e15
    expected[at.EXPERT_BYTES] = 8 * parameters * 2 / 2 / 2.16e12
    expected[at.EXPERT_MISS] = 0.75**4  # of two ranks
    expected[at.EXPERT_REST] = 0.75 / 0.75**2
    expected[at.EXPERT_UNEVEN] = NormalDist().inv_cdf(1.625 / 2.25) / 2
    # each GPU gets the copies of both ranks for half of the experts, a tenth more on the fullest
    expected[at.ACTIVATION] = 1e-4 + 3 * 2 * 32 * 4096 * 1.1 * 2 / 3e12
    expected[at.HOST_STEP] = 1e-4 + 32 * (1e-5 + 8e-6)
    expected[at.HOST_SEQUENCE] = 1e-4 + 2e-6
    expected[at.HOST_PREFILL] = 1e-4 + 32 * 3e-6
    assert added(terms) == pytest.approx(expected, rel=1e-12)
    fast = added(replace(terms, memory=2.0, first=1.0))
    assert fast[at.EXPERT_BYTES] == pytest.approx(
        8 * parameters / 3e12
    )  # no more than the datasheet
    assert fast[at.EXPERT_REST] == pytest.approx(0.875 / 0.75**2)


@pytest.mark.parametrize(
    ("chosen", "split", "copies"),
    [
        (1, Parallelism(tp=2, dp=2, ep=2), 2 * 3 / 4),
        (2, Parallelism(tp=4, ep=4), 4 * (1 - 0.75**2) * 3 / 4),
        (2, Parallelism(tp=2, dp=2, ep=2), 1.5 * 2 * 3 / 4),
    ],
)
def test_a_token_goes_to_the_groups_of_its_experts_by_hand(
    chosen: int, split: Parallelism, copies: float
) -> None:
    model = replace(find_model("mixtral-8x7b"), experts_per_token=chosen)
    assert remote_copies(model, split) == pytest.approx(copies)


PLAIN = {"expert_memory": 0.9, "expert_spread": 2.0, "layer_s": 1e-5, "sequence_s": 1e-6}
CORRECTIONS = {
    "expert_layer": 1.5,
    "expert_hopper": 0.7,
    "expert_layer_hopper": 1.2,
    "expert_compute": 0.6,
    "expert_compute_fp8": 0.5,
    "expert_memory_fp8": 0.8,
    "expert_layer_s": 2e-6,
    "expert_layer_4bit_s": 7e-6,
    "expert_rows": 3.0,
    "expert_each_s": 4e-7,
    "expert_sequence": 3.0,
    "expert_prefill_s": 5e-6,
    "expert_first": 2.0,
    "expert_skew": 0.2,
}
GENERATION = {
    "expert_compute": 0.9,
    "expert_compute_fp8": 0.8,
    "expert_memory": 0.95,
    "layer": 2.0,
    "sequence": 0.5,
}


def test_terms_of_experts_by_hand() -> None:
    """Without corrections an engine has the shared share of arithmetic and its own of memory; with
    them each is a factor."""
    d = deployed(model="mixtral-8x7b", gpu="h100-sxm-80gb", tp=2, engine="vllm")
    groups = groups_of(shipped(), d.gpu, "vllm")
    fp8, fp16, four = (find_precision(name) for name in ("fp8", "fp16", "w4a16"))
    needed = {"allreduce_s": groups.engine["allreduce_s"]}
    generation = {name: groups.generation[name] for name in ("link", "latency")}

    def resolved(
        engine: dict[str, float], more: dict[str, float], precision: Precision
    ) -> ExpertTerms:
        changed = replace(
            groups,
            shared={"expert_compute": 0.4},
            engine=needed | PLAIN | engine,
            generation=generation | more,
        )
        terms = expert_terms(changed, d.model, precision, 2)
        assert terms.dispatch_s > 0
        return replace(terms, dispatch_s=0.0, dispatch_bytes_s=math.inf)

    assert resolved({}, {}, fp8) == ExpertTerms(compute=0.4, memory=0.9, spread=2.0)
    assert resolved({}, {}, four) == ExpertTerms(compute=0.4, memory=0.9, spread=2.0)
    whole = resolved(CORRECTIONS, GENERATION, fp8)
    expected = ExpertTerms(
        compute=0.4 * 0.7 * 0.9 * 0.8 * 0.6 * 0.5,
        memory=0.9 * 0.8 * 0.95,
        spread=2.0,
        rows=3.0,
        layer_s=(1e-5 * (1.5 * 1.2 - 1) + 2e-6) * 2,
        each_s=4e-7,
        sequence_s=1e-6 * 2 * 0.5,
        prefill_s=5e-6,
        first=2.0,
        skew=0.2,
    )
    assert astuple(whole) == pytest.approx(astuple(expected), rel=1e-12)
    # what is said of a format goes before what is said of a generation
    by_format = resolved(CORRECTIONS | {"expert_layer_hopper_fp8": 1.0}, GENERATION, fp8)
    assert by_format.layer_s == pytest.approx((1e-5 * 0.5 + 2e-6) * 2)
    other = resolved(CORRECTIONS, GENERATION, fp16)
    assert other.compute == pytest.approx(0.4 * 0.7 * 0.9 * 0.6)
    assert other.memory == pytest.approx(0.9 * 0.95)
    # unpacked weights save nothing by a generation's kernels
    narrow = resolved(CORRECTIONS, GENERATION, four)
    assert four.unpacked
    assert narrow.layer_s == pytest.approx((1e-5 * 0.5 + 2e-6) * 2 + 7e-6)
    # Mixtral's experts are as wide as the wide ones
    wide = resolved(CORRECTIONS | {"expert_compute_wide": 0.75}, GENERATION, fp8)
    assert wide.compute == pytest.approx(0.4 * 0.7 * 0.9 * 0.8 * 0.75)
