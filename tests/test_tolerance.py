"""The comparison that golden outputs and pages rest on must itself be able to fail."""

from pathlib import Path

import pytest

from tests.tolerance import FITTED, Tolerance, check_golden, words_and_numbers

KEPT = "Answer  1 × dgx-h100 (0.561 exactly)\n  TTFT p95 697 ms, 119k USD, TP 2\n"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    file = tmp_path / "answer.txt"
    file.write_text(KEPT, encoding="utf-8")
    return file


@pytest.mark.parametrize("found", [KEPT, KEPT.replace("0.561", "0.570").replace("119k", "121k"), KEPT.replace("\n  TTFT", " TTFT")])
def test_small_moves_of_numbers_and_other_folds_are_let_pass(found: str, golden: Path) -> None:
    check_golden(found, golden)


@pytest.mark.parametrize(
    "found",
    [
        KEPT.replace("697", "800"),
        KEPT.replace("119k", "150k"),
        KEPT.replace("TP 2", "TP 4"),
        KEPT.replace("dgx-h100", "dgx-h200"),
        KEPT.replace("119k", "119M"),
        KEPT.replace(" exactly", ""),
        KEPT + "a line more\n",
        "",
    ],
)
def test_other_words_and_far_numbers_are_not(found: str, golden: Path) -> None:
    with pytest.raises(AssertionError, match=r"answer\.txt"):
        check_golden(found, golden)


def test_a_file_is_written_only_where_it_differs(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_GOLDEN", "write")
    check_golden(KEPT.replace("0.561", "0.570"), golden)
    assert golden.read_text(encoding="utf-8") == KEPT
    check_golden("Another answer\n", golden)
    assert golden.read_text(encoding="utf-8") == "Another answer\n"


def test_names_hold_no_numbers_and_numbers_keep_their_units() -> None:
    assert words_and_numbers("llama-3.1-8b at 1,000 req/s: 0.6 ms, 119k, -3 %") == (
        "llama-3.1-8b at # req/s: # ms, #k, # %",
        [1000, 0.6, 119, -3],
    )
    assert not FITTED.holds([1.0], [2.0])
    assert Tolerance(absolute=1.0).holds([1.0], [2.0])
