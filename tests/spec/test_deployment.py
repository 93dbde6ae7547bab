"""Latency limits as people write them."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.deployment import METHODS, NO_WINDOWS, Windows, parse_limit, parse_speculation

LIMITS = {
    "p95<=3s": ("p95", 3.0),
    "P99 <= 500ms": ("p99", 0.5),
    "avg 300ms": ("mean", 0.3),
    "p50≤1.5s": ("p50", 1.5),
    "2s": ("p95", 2.0),
    "p90=0.25 s": ("p90", 0.25),
    "median<=1 second": ("p50", 1.0),
}


@pytest.mark.parametrize("text", LIMITS)
def test_limit_is_read(text: str) -> None:
    limit = parse_limit("ttft", text)
    assert (limit.metric, limit.statistic, limit.seconds) == (
        "ttft",
        LIMITS[text][0],
        pytest.approx(LIMITS[text][1]),
    )


def test_limits_are_read_or_refused_with_their_flag() -> None:
    assert parse_limit("tpot", "mean 20 tokens/s") == parse_limit("tpot", "mean<=50ms")
    assert parse_limit("itl", "p99<=10 tok/s") == parse_limit("itl", "p99<=100ms")
    with pytest.raises(InputError, match="not a number with a unit"):
        parse_limit("ttft", "20 tokens/s")
    for text in [
        "",
        "p95<=",
        "p97<=3s",
        "p95<=3",
        "p95<=0s",
        "3 parsecs",
        "p95>=3s",
        "nan s",
        "p99.9<=3s",
        "p95<=3s, mean<=1s",
    ]:
        with pytest.raises(InputError, match=r"^ttft: ") as error:
            parse_limit("ttft", text)
        assert "\n" not in str(error.value)


# Speculative decoding as it is written.


def test_a_speculation_is_read_or_refused() -> None:
    found = parse_speculation("eagle k=3 acceptance=0.7")
    assert (found.method, found.tokens, found.acceptance, found.draft) == ("eagle", 3, 0.7, None)
    small = parse_speculation("draft=llama-3.2-1b acceptance=0.85 k=5")
    assert small.draft == find_model("llama-3.2-1b")
    assert parse_speculation("none") is parse_speculation(None) is None
    for method in METHODS:
        text = f"{'draft=llama-3.2-1b' if method == 'draft' else method} k=4 acceptance=0.25"
        assert str(parse_speculation(text)) == text
    for text in [
        *(
            "",
            "eagle",
            "eagle k=3",
            "eagle k=0 acceptance=0.5",
            "eagle k=17 acceptance=0.5",
            "eagle k=x acceptance=0.5",
        ),
        *(
            "eagle k=3 acceptance=1.1",
            "eagle k=3 acceptance=nan",
            "eagle k=3 acceptance=much",
            "draft k=3 acceptance=0.5",
        ),
        *(
            "magic k=3 acceptance=0.5",
            "eagle=llama-3.2-1b k=3 acceptance=0.5",
            "eagle k=3 acceptance=0.5 depth=2",
        ),
    ]:
        with pytest.raises(InputError, match=r"^speculation: ") as error:
            parse_speculation(text)
        assert "\n" not in str(error.value)


def test_drafters_have_the_sizes_of_their_papers() -> None:
    llama, deepseek = find_model("llama-3.1-8b"), find_model("deepseek-v3")
    eagle, mtp, medusa = (
        parse_speculation(f"{name} k=2 acceptance=0.5") for name in ("eagle", "mtp", "medusa")
    )
    layer = eagle.layers_of(llama)
    # EAGLE's head for an 8B model: 0.25 billion parameters with its projection.
    assert layer.linear_parameters + eagle.projection_parameters(llama) == pytest.approx(
        0.25e9, rel=0.02
    )
    of_mtp = mtp.layers_of(deepseek)
    # DeepSeek-V3's card: 11.5 billion of the MTP module's 14 are its own; embedding and head are
    # shared.
    assert of_mtp.linear_parameters + mtp.projection_parameters(deepseek) == pytest.approx(
        11.5e9, rel=0.05
    )
    assert medusa.layers_of(llama) is None
    assert medusa.head_parameters(llama) == 2 * (4096 * 4096 + 4096 * 128256)


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (12, 3), (1_000_000, 3)]
)
def test_a_sequence_shorter_than_the_window_has_its_share(tokens: int, blocks: int) -> None:
    assert Windows(blocks=3, tokens=12).of(tokens) == blocks
    assert Windows(blocks=3).of(tokens) == 3
    assert NO_WINDOWS.of(tokens) == 0
