"""One request that exceeds the pool is refused in one line, and what the line offers in its place
has room."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import pytest

from tests.deployments import deployment
from tonnage import api
from tonnage.cli.main import run
from tonnage.errors import DoesNotFit
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


@pytest.mark.parametrize(("tokens", "offer"), [(1, None), (2, 2), (700, 700)])
def test_a_pool_of_few_tokens(tokens: int, offer: int | None) -> None:
    """SGLang's blocks hold one token: one is room for nobody's request, two for a shorter one."""
    asked = deployment("llama-3-8b", "h100", "fp16", engine="sglang")
    plan = memory_plan(asked)
    rest = plan.kv_budget_bytes - (tokens + 0.5) * plan.kv_bytes_per_token
    smaller = asked.gpu.memory_bytes - int(rest / asked.knobs.kv_fraction)
    tight = replace(asked, gpu=replace(asked.gpu, memory_bytes=smaller))
    assert memory_plan(tight).room == tokens
    assert holds(tight)
    assert [holds(tight, isl) for isl in (tokens, tokens + 1)] == [True, False]
    with pytest.raises(DoesNotFit) as error:
        check_room(tight, 900, 100)
    assert str(error.value).startswith(
        f"one request of 1,000 tokens does not fit the KV cache of {tokens} tokens; what fits: tp 2"
    )
    assert ("requests of at most" in str(error.value)) == (offer is not None)
    assert offer is None or str(error.value).endswith(f", or requests of at most {offer} tokens")
    check_room(tight, tokens, 0)
