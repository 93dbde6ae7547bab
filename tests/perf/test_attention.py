"""What layers that mix tokens reach of the datasheet and add to a step: each kind by hand."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

import pytest

from tonnage.perf import step_terms as at
from tonnage.perf.attention import AttentionTerms, add_attention, attention_terms
from tonnage.perf.terms_file import TermGroups
from tonnage.spec.attention_layers import SlidingAttention
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.layers import Layers
from tonnage.spec.model import Model
from tonnage.spec.precision import find_precision


def near(expected: Any) -> Any:
    """As exactly as the order of sums allows; seconds of a pair of tokens are below 1e-12."""
    return pytest.approx(expected, rel=1e-9, abs=0.0)


NEEDED = {
    "kv_bandwidth": 0.8,
    "kv_8bit": 0.9,
    "kv_single": 0.6,
    "head_arithmetic": 0.1,
    "walk_s": 1e-9,
}
MORE = {
    "attention": 0.95,
    "kv_8bit_hopper": 0.7,
    "head_8bit": 0.4,
    "latent_bandwidth": 0.5,
    "latent_attention": 1.5,
    "latent_arithmetic": 1.2,
}
SHARED = {"attention": 0.5, "gathered": 0.75, "state_bandwidth": 0.65, "index": 0.3, "scan": 0.2}


def terms_of_kind(
    model: str,
    place: int,
    precision: str,
    engine: dict[str, float],
    *,
    kv: bool = True,
    **sizes: Any,
) -> tuple[float, ...]:
    groups = TermGroups(
        gpu=find_gpu("h100"),
        shared=SHARED,
        generation={"attention": 0.9, "head_arithmetic": 4.0} | ({"kv": 1.1} if kv else {}),
        own={},
        engine=NEEDED | engine,
        links={},
        formats={},
    )
    mixer = replace(find_model(model), **sizes).by_kind[place].mixer
    return astuple(attention_terms(groups, mixer, find_precision(precision)))


PREFILL = 0.5 * 0.9 * 0.95


@pytest.mark.parametrize(
    ("of_kind", "engine", "expected"),
    [
        # prompts, bandwidth, arithmetic, walk, bounded
        (("llama-3.1-8b", 0, "fp16"), {}, (0.45, 0.88, 0.4, 1e-9, 0.66)),
        (("llama-3.1-8b", 0, "fp16"), MORE, (PREFILL, 0.88, 0.4, 1e-9, 0.66)),
        (("llama-3.1-8b", 0, "fp8"), {}, (0.45, 0.792, 0.4, 1e-9, 0.594)),
        (("llama-3.1-8b", 0, "fp8"), MORE, (PREFILL, 0.5544, 0.16, 1e-9, 0.4158)),
        (
            ("llama-3.1-8b", 0, "fp16"),
            {"head_arithmetic": 0.0, "walk_s": 0.0},
            (0.45, 0.88, math.inf, 0.0, 0.66),
        ),
        # a KV head for every query head
        (("llama-2-7b", 0, "fp16"), MORE, (PREFILL, 0.528, 0.4, 1e-9, 0.396)),
        # windows are read as they lie
        (("gpt-oss-20b", 1, "fp16"), MORE, (PREFILL, 0.88, 0.4, 1e-9, 0.88)),
        # latent attention is arithmetic of the matrix units
        (("deepseek-v3", 0, "fp16"), MORE, (PREFILL * 1.5, 0.44, PREFILL * 1.2, 1e-9, 0.33)),
        (("deepseek-v3", 0, "fp16"), {}, (0.45, 0.88, 0.45, 1e-9, 0.66)),
        (("deepseek-v3", 0, "fp8"), MORE, (PREFILL * 1.5, 0.2772, PREFILL * 1.2, 1e-9, 0.2079)),
        (("deepseek-v3.2", 0, "fp16"), MORE, (PREFILL * 1.5, 0.44, PREFILL * 1.2, 1e-9, 0.33)),
        (("deepseek-v4-pro", 0, "fp16"), MORE, (PREFILL * 1.5, 0.44, PREFILL * 1.2, 1e-9, 0.33)),
        # and so are blocks that are chosen
        (("minimax-m3", 1, "fp16"), MORE, (PREFILL, 0.88, PREFILL, 1e-9, 0.66)),
        (("qwen3.5-397b-a17b", 1, "fp16"), MORE, (PREFILL, 0.88, PREFILL, 1e-9, 0.65)),
    ],
)
def test_terms_of_each_kind_by_hand(
    of_kind: tuple[str, int, str], engine: dict[str, float], expected: tuple[float, ...]
) -> None:
    found_terms = terms_of_kind(*of_kind, engine)
    assert found_terms == near((*expected, 0.3, 0.2))


def test_a_generation_may_say_nothing_of_caches() -> None:
    assert terms_of_kind("llama-3.1-8b", 0, "fp16", {}, kv=False)[1] == near(0.8)


REACHED = AttentionTerms(
    prefill=0.5,
    kv_bandwidth=0.8,
    head_arithmetic=0.25,
    walk_s=0.0,
    bounded=0.4,
    index=0.2,
    scan=0.1,
)
RATE, INDEX, BANDWIDTH = 1e15, 2e15, 1e12


def joined(read_s: float, computed_s: float) -> float:
    """The smooth maximum: the fourth root of the sum of fourth powers."""
    return math.sqrt(math.hypot(read_s**2, computed_s**2))


def added(
    model: Model, tp: int, precision: str = "fp16", *, fp8: float | None = 2000.0, **terms: float
) -> dict[str, float]:
    gpu = replace(
        find_gpu("h100"), fp16_tflops=1000.0, fp8_tflops=fp8, memory_bandwidth_gb_s=1000.0
    )
    c = [0.0] * at.COEFFICIENTS
    of_kinds = tuple(replace(REACHED, **terms) for _ in model.by_kind)
    add_attention(c, of_kinds, model, gpu, find_precision(precision), tp)
    return {at.TERMS[place].name: c[place] for place in range(len(c)) if c[place]}


def only(model: str, kind: str, place: int = 0, layers: int = 10) -> Model:
    whole = find_model(model)
    mixers = [group.mixer for group in whole.by_kind if group.mixer.kind == kind]
    return replace(whole, mixers=(Layers(layers=layers, mixer=mixers[place]),))


def test_full_attention_by_hand() -> None:
    """Ten layers of 32 heads of 128, 8 of them of keys and values, on two GPUs."""
    flop, size = 4 * 16 * 128, 2 * 4 * 128 * 2
    reading, computing = size / (0.8 * BANDWIDTH), flop / (0.25 * RATE)
    assert added(only("llama-3.1-8b", "full"), 2) == near(
        {
            "attention": 10 * flop / (0.5 * RATE),
            "context": 10 * joined(reading, computing),
        }
    )
    # heads that are taken together cost no arithmetic by themselves
    together = replace(only("llama-3.1-8b", "full"), mixers=(), layers=10, heads=64, kv_heads=8)
    assert added(together, 2) == near(
        {"attention": 20 * flop / (0.5 * RATE), "context": 10 * reading}
    )


def test_windows_by_hand() -> None:
    """gpt-oss: 64 heads of 64, 8 of keys and values, see 128 tokens; prompts count for every token
    of a step. Not taken together they are arithmetic, too."""
    model = only("gpt-oss-20b", "sliding")
    flop, size = 128 * 4 * 64 * 64, 128 * 2 * 8 * 64 * 2
    assert added(model, 1) == near(
        {"activation": 10 * flop / (0.5 * RATE), "bounded": 10 * size / (0.4 * BANDWIDTH)}
    )
    apart = SlidingAttention(heads=64, kv_heads=16, head_dim=64, window=128)
    several = replace(model, mixers=(Layers(layers=10, mixer=apart),))
    reading, computing = 2 * size / (0.4 * BANDWIDTH), flop / (0.25 * RATE)
    assert added(several, 1)["bounded"] == near(10 * joined(reading, computing))


def test_latent_attention_by_hand() -> None:
    """DeepSeek V3 on eight GPUs: 16 heads, expanded to 192 + 128 in prompts and absorbed to 2 · 512
    + 64 in decodes, which read 576 bytes."""
    reading, computing = 576 / (0.8 * BANDWIDTH), 2 * 16 * 1088 / (0.25 * RATE)
    assert added(only("deepseek-v3", "latent"), 8, "fp8") == near(
        {
            "attention": 10 * 2 * 16 * 320 / (0.5 * RATE),
            "context": 10 * joined(reading, computing),
        }
    )


def test_sparse_latent_attention_by_hand() -> None:
    """DeepSeek V3.2: 64 index heads of 128 score all tokens, in FP8; 2,048 are read, of 512 + 16 +
    128 bytes, by 16 heads."""
    scores, reads = 2 * 64 * 128, 2048 * 656
    chosen = 2 * 16 * 1088 * 2048
    expected = {
        "sparse": 10 * 2 * 16 * 320 / (0.5 * RATE),
        "sparse_most": 10 * chosen / (0.5 * RATE),
        "attention": 10 * scores / (0.2 * INDEX),
        "context": 10 * joined(132 / (0.8 * BANDWIDTH), scores / (0.2 * INDEX)),
        "bounded": 10 * joined(reads / (0.4 * BANDWIDTH), chosen / (0.25 * RATE)),
    }
    model = only("deepseek-v3.2", "sparse-latent")
    assert added(model, 8, "fp8") == near(expected)
    wide = added(model, 8, "fp8", fp8=None)
    assert wide["attention"] == near(2 * expected["attention"])


@pytest.mark.parametrize("place", [0, 1])
def test_compressed_attention_by_hand(place: int) -> None:
    """DeepSeek V4 on eight GPUs: 16 heads of 512 that are key and value; an entry of 128 tokens, or
    of four with an indexer that scores them and chooses 1,024; 584 bytes each, and 0.15 µs."""
    per_entry, entry = 4 * 16 * 512, 584
    most = 128 + 1024 * place
    fixed = joined(most * entry / (0.4 * BANDWIDTH), most * per_entry / (0.25 * RATE))
    expected = {
        "scan": 10 * 128 * per_entry / (0.5 * RATE),
        "bounded": 10 * (fixed + 0.15e-6),
    }
    scores = 2 * 64 * 128 / 4
    if place:
        expected |= {
            "sparse": 10 * per_entry / 4 / (0.5 * RATE),
            "sparse_most": 10 * per_entry * 1024 / (0.5 * RATE),
            "attention": 10 * scores / (0.2 * INDEX),
            "context": 10 * joined(32 / (0.8 * BANDWIDTH), scores / (0.2 * INDEX)),
        }
    else:
        expected |= {
            "attention": 10 * per_entry / 128 / (0.5 * RATE),
            "context": 10
            * joined(entry / 128 / (0.8 * BANDWIDTH), per_entry / 128 / (0.25 * RATE)),
        }
    assert added(only("deepseek-v4-pro", "compressed", place), 8, "fp8") == near(expected)


def test_states_by_hand() -> None:
    """Qwen3.5: 64 value heads of 128 by 128 in 32 bits, on two GPUs, read and written; prompts in
    chunks of 64 tokens."""
    square, heads = 128 * 128, 32
    prompts = heads * (64 * (6 * 128 + 4 * 128) + 6 * square)
    fixed = joined(2 * heads * square * 4 / (0.4 * BANDWIDTH), 7 * heads * square / (0.25 * RATE))
    assert added(only("qwen3.5-397b-a17b", "gated-delta"), 2) == near(
        {"scan": 10 * prompts / (0.1 * RATE), "bounded": 10 * fixed}
    )


@pytest.mark.parametrize(
    ("gpu", "multiprocessors"),
    [
        ("h100", 132),
        ("h100-pcie", 114),
        ("a100", 108),
        ("a30", 56),
        ("a10", 72),
        ("a10g", 80),
        ("l4", 58),
        ("l20", 92),
        ("l40s", 142),
        ("t4", 40),
        ("v100-sxm2-32gb", 80),
        ("b200", 132),
    ],
)
def test_kernels_of_2024_walk_in_waves_by_hand(gpu: str, multiprocessors: int) -> None:
    """Ten layers with 64 heads of 256 and 8 of keys and values: twice the width that a walk is for.
    On eight GPUs a head of keys and values is left, and on sixteen half of one is still one."""
    card = find_gpu(gpu)
    model = replace(find_model("llama-3.1-8b"), layers=10, heads=64, kv_heads=8, head_dim=256)
    terms = (replace(REACHED, walk_s=1e-9),)
    bandwidth, rate = card.memory_bandwidth_gb_s * 1e9, card.fp16_tflops * 1e12
    for tp, kv_heads in ((4, 2), (8, 1), (16, 1)):
        c = [0.0] * at.COEFFICIENTS
        add_attention(c, terms, model, card, find_precision("fp16"), tp)
        reading = kv_heads * 1024 / (0.8 * bandwidth)
        expected = {
            "attention": 10 * 4 * 64 / tp * 256 / (0.5 * rate),
            "context": 10 * reading,
            "walk": 10 * 2e-9,
            "heads": 10 * joined(reading, 4 * 64 / tp * 256 / (0.25 * rate)),
            "wave": 64 / tp / multiprocessors,
            "grouped_from": multiprocessors / 4 / kv_heads,
        }
        named = {at.TERMS[place].name: c[place] for place in range(len(c)) if c[place]}
        assert named == near(expected)


def test_what_walks_and_what_is_never_taken_together() -> None:
    """Windows walk their own length; four heads are no group of eight; states and blocks that are
    chosen came after these kernels."""
    window = added(only("gpt-oss-20b", "sliding"), 1, walk_s=1e-9)
    still = added(only("gpt-oss-20b", "sliding"), 1)
    assert window["bounded"] - still["bounded"] == near(10 * 128 * 1e-9 / 2)
    assert window.keys() == still.keys()
    four = added(only("llama-3.1-8b", "full"), 1, walk_s=1e-9)
    assert (four["grouped_from"], four["wave"]) == (1e9, 32 / 132)
    latent = added(only("deepseek-v3", "latent"), 8, walk_s=1e-9)
    assert (latent["grouped_from"], latent["wave"]) == (1e9, 16 / 132)
    assert latent["walk"] == near(10e-9)
    for model, kind in (("minimax-m3", "block-sparse"), ("qwen3.5-397b-a17b", "gated-delta")):
        assert added(only(model, kind), 1, walk_s=1e-9) == added(only(model, kind), 1)
