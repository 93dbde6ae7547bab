"""Lengths in every form that people write, and pairs that stay together."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tonnage
from tonnage import api
from tonnage.errors import InputError
from tonnage.spec.lengths import Pairs, histogram, of_values, parse_lengths, parse_part, read_pairs
from tonnage.spec.use_cases import PRESETS, mixture_of

T = TypeVar("T")


def made(make: Callable[..., T], *values: str) -> T | str:
    """What is made, or what the input error says."""
    try:
        return make(*values)
    except InputError as error:
        return str(error)


FORMS = [
    "2000",
    "2000+-500",
    "normal:2000,500",
    "lognormal:2000,500",
    "lognormal:300,90+4600",
    "uniform:1600-2000",
    "histogram:100:0.2,500:0.5,2000:0.3",
    "3500words",
    "2000+-300words",
    "1e3+1e3",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_form_reads_back_as_itself_and_draws_its_mean(text: str) -> None:
    lengths = parse_lengths(text, "--isl")
    again = parse_lengths(str(lengths), "--isl")
    assert again.mean == pytest.approx(lengths.mean)
    assert again.std == pytest.approx(lengths.std, rel=1e-4)
    drawn = lengths.draw(40_000, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(lengths.mean, rel=0.02)
    assert drawn.std() == pytest.approx(lengths.std, rel=0.03, abs=0.6)
    assert drawn.min() >= 1


SHORT = {
    "2k": "2000",
    "2,000": "2000",
    "1500words": "2000",
    "8000 characters": "2000",
    "2000 +/- 500": "normal:2000,500",
    "1000-3000": "uniform:1000-3000",
}


def test_short_forms_mean_the_long_ones_and_distributions_are_told_as_written() -> None:
    for text, same in SHORT.items():
        short, long = parse_lengths(text, "--isl"), parse_lengths(same, "--isl")
        assert (short.mean, short.std) == (long.mean, long.std), text
    for text in [
        "uniform:500-3500",
        "uniform:500-3500+300",
        "uniform:2000,5000",
        "1000000",
        "10000000",
    ]:
        assert str(parse_lengths(text, "--isl")) == text
    for text, count, tokens in [
        ("5x400", 5, 400),
        ("3 × 300words", 3, 400),
        ("500", 1, 500),
        ("75words", 1, 100),
        ("0", 1, 0),
        ("2X1e2", 2, 100),
    ]:
        assert parse_part(text, "--retrieved") == (count, pytest.approx(tokens))


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("2000", 2000),
        ("uniform:1600-2000", 2000),
        ("histogram:10:1,99:1,5000:0", 99),
        ("100+-10", 131),
        ("lognormal:100,50+1000", 1385),
    ],
)
def test_the_longest_is_the_maximum_or_the_999th_of_a_thousand(text: str, longest: int) -> None:
    lengths = parse_lengths(text, "--isl")
    assert lengths.longest == longest
    drawn = lengths.draw(100_000, np.random.default_rng(0))
    assert np.quantile(drawn, 0.999) == pytest.approx(longest, rel=0.03)


@pytest.mark.parametrize("text", FORMS)
def test_scaled_and_longer_change_every_length_alike(text: str) -> None:
    lengths = parse_lengths(text, "--isl")
    drawn = lengths.draw(1000, np.random.default_rng(3))
    np.testing.assert_allclose(
        lengths.scaled(2).draw(1000, np.random.default_rng(3)), 2 * drawn, atol=1
    )
    np.testing.assert_allclose(
        lengths.longer(700).draw(1000, np.random.default_rng(3)), drawn + 700, atol=1
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a page", "not a length"),
        ("nan", "not a length"),
        ("0", "below one token"),
        ("0.2words", "below one token"),
        ("uniform:9-1", "ends below"),
        ("histogram:", "not a histogram"),
        ("1e12", "above 10,000,000"),
        ("lognormal:1,1e300", "above 10,000,000"),
    ],
)
def test_what_is_no_length_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        parse_lengths(text, "--isl")
    assert str(caught.value).startswith("--isl: ")


@given(st.text(alphabet="0123456789.,:+-±ewordstknahigulmfc ", max_size=25) | st.text(max_size=12))
def test_any_text_is_lengths_or_an_input_error(text: str) -> None:
    found = made(parse_lengths, text, "--isl")
    if isinstance(found, str):
        assert len(found.splitlines()) == 1
        return
    lengths = found
    assert lengths.mean >= 1
    assert math.isfinite(lengths.std)
    assert lengths.longest >= 1
    assert lengths.draw(5, np.random.default_rng(0)).min() >= 1


PAIRS = Pairs(isl=(10, 1000, 1000), osl=(900, 5, 7), source="x.csv")


def test_pairs_stay_together() -> None:
    isl, osl = PAIRS.draw(500, np.random.default_rng(0))
    assert set(zip(isl.tolist(), osl.tolist(), strict=True)) == {(10, 900), (1000, 5), (1000, 7)}
    assert PAIRS.longest == 1007
    isl, osl = PAIRS.lengths()
    assert (isl.mean, osl.mean) == (670, 304)
    assert (isl.longest, osl.longest) == (1000, 900)
    assert str(isl) == "x.csv (mean 670)"
    assert of_values((1, 1, 4), "").bins == (
        (1.0, pytest.approx(2 / 3)),
        (4.0, pytest.approx(1 / 3)),
    )
    assert PAIRS.scaled(isl=2, osl=0.001) == Pairs(
        isl=(20, 2000, 2000), osl=(1, 1, 1), source="x.csv × 2/0.001"
    )
    assert PAIRS.longer(5).isl == (15, 1005, 1005)
    assert PAIRS.longer(5).osl == PAIRS.osl


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_files_of_lengths(tmp_path: Path) -> None:
    pairs = read_pairs(
        written(tmp_path / "p.csv", "# a comment\n\nISL, osl,extra\n10,20,x\n30,40\n"), "--pairs"
    )
    assert (pairs.isl, pairs.osl) == ((10, 30), (20, 40))
    path = written(tmp_path / "h.csv", "value,weight\n100,1\n300,3\n")
    found = parse_lengths(path, "--isl")
    assert found == histogram([(100, 1), (300, 3)])
    assert str(found) == path


@given(text=st.text(alphabet='islo,0123456789-.\n"# \x00', max_size=60))
def test_any_file_is_pairs_or_input_errors(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(f"isl,osl\n{text}", encoding="utf-8", newline="")
    found = made(read_pairs, str(path), "--pairs")
    if isinstance(found, str):
        assert all(line.startswith(("--pairs: ", "and ")) for line in found.splitlines())
    else:
        assert found.longest >= 2


# Lengths of several kinds, mixed by their shares.


PATTERNS = ("short-in-short-out", "short-in-long-out", "long-in-short-out", "long-in-long-out")


def test_lengths_of_several_kinds_are_mixed_by_their_shares() -> None:
    found = mixture_of(
        ", ".join(
            f"{name} {share}" for name, share in zip(PATTERNS, (0.4, 0.3, 0.2, 0.1), strict=True)
        ),
        "",
    )
    pairs = list(zip(found.isl, found.osl, strict=True))
    for name, share in zip(PATTERNS, (0.4, 0.3, 0.2, 0.1), strict=True):
        preset = PRESETS[name]
        assert pairs.count((int(preset.isl), int(preset.osl))) == round(1000 * share)
    drawn = found.draw(50_000, np.random.default_rng(1))
    assert drawn[0].mean() == pytest.approx(0.7 * 128 + 0.3 * 2048, rel=0.02)
    assert np.corrcoef(*drawn)[0, 1] == pytest.approx(
        np.corrcoef(found.isl, found.osl)[0, 1], abs=0.02
    )
    record = tonnage.simulate(
        model="llama-3.1-8b",
        mixture="short-in-short-out 0.7, 4000/30 0.3",
        request_rate=3,
        requests=100,
    ).requests
    assert set(zip(record.isl.tolist(), record.osl.tolist(), strict=True)) == {
        (128, 128),
        (4000, 30),
    }
    question = api.ask(
        model="llama-3.1-8b",
        mixture="short-in-short-out 0.7, 4000/30 0.3",
        peak_rps=3,
        ttft="p95<=2s",
    ).questions[0]
    assert question.pairs is not None
    assert question.isl.mean == pytest.approx(0.7 * 128 + 0.3 * 4000)
    for text in [
        "short-in-short-out",
        "short 0.5, long 0.5",
        "rag 0.5, chatbot 0.4",
        "0/5 1",
        "100/200 -1",
        "rag 0, chatbot 1",
    ]:
        with pytest.raises(InputError, match="mixture"):
            mixture_of(text, "mixture")
