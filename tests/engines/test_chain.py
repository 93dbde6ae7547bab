"""docs/chain.md as it stands: every command in a process of its own, a server that hides a
slow-down, and a client that measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chain import PAGE, run_chain, table
from tests.test_docs import examples_of
from tests.tolerance import distance, words_and_numbers

pytestmark = pytest.mark.engines

WITHIN = 0.03


def test_the_chain_finds_the_hidden_slow_down_and_prints_what_the_page_shows(
    tmp_path: Path,
) -> None:
    chain = run_chain(tmp_path)
    print("\n".join(table(chain)))
    assert chain.hidden == 1.15
    for metric in ("TPOT", "E2E"):
        assert chain.found(metric) == pytest.approx(chain.hidden, rel=WITHIN)
    for one in chain.unseen:
        assert one.calibrated == pytest.approx(one.measured, rel=WITHIN)
    for example, printed in zip(examples_of(PAGE), chain.printed, strict=True):
        real = [words_and_numbers(line) for line in printed.splitlines()]
        for line in example.shown.values():
            words, numbers = words_and_numbers(line)
            alike = [found for kind, found in real if kind == words]
            assert alike, f"no such line: {line}\n{printed}"
            closest = min(alike, key=lambda found: distance(numbers, found))
            assert any(example.tolerance.holds(numbers, found) for found in alike), (
                f"{line}\nreal: {closest}"
            )
