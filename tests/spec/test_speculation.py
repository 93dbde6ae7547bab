"""Speculative decoding as it is written."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError, UnknownName
from tonnage.spec.catalog import find_model
from tonnage.spec.deployment import METHODS, parse_speculation


def test_what_is_written_is_read() -> None:
    found = parse_speculation("eagle k=3 acceptance=0.7")
    assert found is not None
    assert (found.method, found.tokens, found.acceptance, found.draft) == ("eagle", 3, 0.7, None)
    small = parse_speculation("draft=llama-3.2-1b acceptance=0.85 k=5")
    assert small is not None
    assert small.draft == find_model("llama-3.2-1b")
    assert parse_speculation("none") is parse_speculation(None) is None


@pytest.mark.parametrize("method", METHODS)
def test_as_text_and_back(method: str) -> None:
    text = f"{'draft=llama-3.2-1b' if method == 'draft' else method} k=4 acceptance=0.25"
    assert str(parse_speculation(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "eagle", "eagle k=3", "eagle k=0 acceptance=0.5", "eagle k=17 acceptance=0.5", "eagle k=x acceptance=0.5"),
        *("eagle k=3 acceptance=1.1", "eagle k=3 acceptance=nan", "eagle k=3 acceptance=much", "draft k=3 acceptance=0.5"),
        *("magic k=3 acceptance=0.5", "eagle=llama-3.2-1b k=3 acceptance=0.5", "eagle k=3 acceptance=0.5 depth=2"),
    ],
)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^speculation: ") as error:
        parse_speculation(text)
    assert "\n" not in str(error.value)


def test_an_unknown_draft_model_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown model 'nothing-1b'"):
        parse_speculation("draft=nothing-1b k=3 acceptance=0.5")


def test_drafters_have_the_sizes_of_their_papers() -> None:
    llama, deepseek = find_model("llama-3.1-8b"), find_model("deepseek-v3")
    eagle, mtp, medusa = (parse_speculation(f"{name} k=2 acceptance=0.5") for name in ("eagle", "mtp", "medusa"))
    assert eagle is not None
    assert mtp is not None
    assert medusa is not None
    layer = eagle.layers_of(llama)
    assert layer is not None
    # EAGLE's head for an 8B model: 0.25 billion parameters with its projection.
    assert layer.linear_parameters + eagle.projection_parameters(llama) == pytest.approx(0.25e9, rel=0.02)
    of_mtp = mtp.layers_of(deepseek)
    assert of_mtp is not None
    # DeepSeek-V3's card: 11.5 billion of the MTP module's 14 are its own; embedding and head are shared.
    assert of_mtp.linear_parameters + mtp.projection_parameters(deepseek) == pytest.approx(11.5e9, rel=0.05)
    assert medusa.layers_of(llama) is None
    assert medusa.head_parameters(llama) == 2 * (4096 * 4096 + 4096 * 128256)
