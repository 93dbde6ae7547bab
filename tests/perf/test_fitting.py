"""One request that exceeds the pool is refused in one line, and what the line offers in its place
has room."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.deployments import deployment
from tonnage import api
from tonnage.cli.main import run
from tonnage.errors import DoesNotFit, InputError
from tonnage.perf.fitting import check_room, holds
from tonnage.perf.memory import memory_plan
from tonnage.plan.reason import CannotRun

TIGHT = [
    ("--model qwen3-32b --gpu h100 --engine vllm-0.12", 40_000),
    ("--model llama-3.1-8b --gpu l4 --engine vllm", 60_000),
    ("--model llama-3.1-8b --gpu l4 --engine sglang", 100_000),
    ("--model gemma-3-27b --gpu a100 --engine vllm --gpu-memory-utilization 0.75", 120_000),
    ("--model llama-3-70b --gpu h100 --tp 1", 2_000),
    ("--model llama-3.1-405b --gpu h100 --tp 2", 2_000),
    ("--model mixtral-8x7b --gpu l40s --engine vllm --tp 2", 2_000),
]


@pytest.mark.parametrize(("place", "isl"), TIGHT)
def test_memory_and_simulate_refuse_a_request_that_never_fits_with_what_would(
    place: str, isl: int, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = shlex.split(place)
    lengths = ["--isl", str(isl), "--osl", "77"]
    context = run(["memory", *asked, *lengths])
    first = capsys.readouterr()
    assert context == 2
    assert first.out == ""
    assert first.err.count("\n") == 1
    assert (
        run(["simulate", *asked, *lengths, "--concurrency", "10", "--requests", "20", "--json"])
        == 2
    )
    assert capsys.readouterr().err == first.err
    offers = [
        offer.strip().removeprefix("or ").strip()
        for offer in first.err.partition("what fits: ")[2].split(",  or")[0].split(", or ")
    ]
    assert offers
    for offer in offers:
        most = re.fullmatch(r"requests of at most ([\d,]+) tokens", offer)
        if most is None:
            words = shlex.split(offer)
            names = words[::2]
            pairs = zip(asked[::2], asked[1::2], strict=True)
            rest = [word for name, value in pairs if name not in names for word in (name, value)]
            assert run(["memory", *rest, *words, *lengths]) == 0, offer
        else:
            longest = int(most[1].replace(",", ""))
            assert run(["memory", *asked, "--isl", str(longest - 77), "--osl", "77"]) == 0
            assert run(["memory", *asked, "--isl", str(longest - 76), "--osl", "77"]) == 2
    capsys.readouterr()


def test_lengths_that_vary_are_refused_where_none_of_them_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [
        "simulate",
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "l4",
        "--engine",
        "vllm",
        "--osl",
        "5",
        "--request-rate",
        "1",
    ]
    assert run([*asked, "--requests", "20", "--isl", "lognormal:60000,10"]) == 2
    assert "does not fit the KV cache" in capsys.readouterr().err
    assert run([*asked, "--requests", "20", "--isl", "lognormal:30000,9000"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"; \d+ of 20 requests were rejected, as they exceed the KV cache or the context", printed
    )


def test_the_longest_request_of_the_pool_fits_and_one_token_more_does_not() -> None:
    for place in (("llama-3-8b", "l4"), ("gemma-3-27b", "h100"), ("qwen3.6-27b", "h100")):
        asked = deployment(*place, engine="vllm")
        room = memory_plan(asked).room
        assert holds(asked, room - 1, 1)
        assert not holds(asked, room, 1)


def test_what_no_instance_has_room_for_says_so() -> None:
    with pytest.raises(DoesNotFit, match="no instance of 8 GPUs"):
        check_room(deployment("deepseek-v3", "l4", "fp8", engine="tensorrt-llm 1.0"), 10_000_000, 1)


@pytest.mark.parametrize(
    ("engine", "name", "aliases"),
    [
        ("vllm", "gpu_memory_utilization", ()),
        ("sglang", "mem_fraction_static", ()),
        (
            "tensorrt-llm",
            "free_gpu_memory_fraction",
            ("kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction"),
        ),
    ],
)
def test_the_share_of_the_memory_is_the_engines_own_setting(
    engine: str, name: str, aliases: tuple[str, ...]
) -> None:
    half, most = (
        api.memory(model="llama-3.1-8b", engine=engine, **{name: share}).plan
        for share in (0.5, 0.95)
    )  # type: ignore[arg-type]
    whole = half.deployment.gpu.memory_bytes
    spent = half.weight_bytes + half.activation_bytes + half.reserve_bytes
    of = {
        "free_gpu_memory_fraction": whole - spent,
        "gpu_memory_utilization": whole - 500_000_000,
    }.get(name, whole)
    assert most.kv_budget_bytes - half.kv_budget_bytes == pytest.approx(0.45 * of, abs=2)
    for alias in aliases:
        assert api.memory(model="llama-3.1-8b", engine=engine, **{alias: 0.5}).plan == half  # type: ignore[arg-type]
    other = "sglang" if engine != "sglang" else "vllm"
    with pytest.raises(
        InputError,
        match=rf"^{name}: {other}.* has no such setting; write .* 0.95 or engine {engine}$",
    ):
        api.memory(model="llama-3.1-8b", engine=other, **{name: 0.95})  # type: ignore[arg-type]
    for share in (0, -0.1, 1.01, 95):
        with pytest.raises(InputError, match="is not a share of the memory"):
            api.memory(model="llama-3.1-8b", engine=engine, **{name: share})  # type: ignore[arg-type]


def test_a_smaller_step_leaves_more_of_the_memory_to_the_cache() -> None:
    small = api.memory(
        model="llama-3.1-8b", engine="vllm", max_num_batched_tokens=2_048, max_num_seqs=128
    ).plan  # type: ignore[call-arg]
    usual = api.memory(model="llama-3.1-8b", engine="vllm").plan
    assert (small.deployment.knobs.max_num_tokens, small.deployment.knobs.max_batch_size) == (
        2_048,
        128,
    )
    assert (
        small.kv_budget_bytes - usual.kv_budget_bytes
        == usual.activation_bytes - small.activation_bytes
        > 0
    )


def test_a_shorter_context_is_the_longest_request() -> None:
    for name in ("max_model_len", "context_length", "max_seq_len"):
        with pytest.raises(InputError, match=r"exceed the context of llama-3\.1-8b, 4,000 tokens"):
            api.memory(model="llama-3.1-8b", isl=4_000, osl=200, **{name: 4_000})  # type: ignore[arg-type]
    with pytest.raises(
        InputError,
        match=(
            r"max_model_len: 900,000 is longer than the context of llama-3\.1-8b; write at most"
            r" 131072"
        ),
    ):
        api.memory(model="llama-3.1-8b", max_model_len=900_000)


def test_a_sizing_without_an_answer_says_what_fits() -> None:
    plan = api.size(
        model="llama-3.1-405b",
        gpu="h100",
        tp=2,
        pp=1,
        precision="fp16",
        engine="vllm",
        isl=200,
        osl=20,
        peak_rps=1,
    )
    (rejected,) = plan.rejected
    assert isinstance(rejected.reason, CannotRun)
    fits = rejected.reason.error.partition("; what fits: ")
    assert re.fullmatch(r"weights 812 GB .* do not fit 92 % of 2 × 80 GB", fits[0])
    assert re.fullmatch(r"tp 4 precision \w+, or gpu h200 tp 8", fits[2])
    wider = api.size(
        model="llama-3.1-405b",
        gpu="h200",
        tp=8,
        pp=1,
        precision="fp16",
        engine="vllm",
        isl=200,
        osl=20,
        peak_rps=1,
    )
    assert wider.choice is not None
    assert all("what fits" not in str(one.reason) for one in wider.rejected)
