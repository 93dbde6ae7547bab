"""The demonstration as a whole: real processes, a real failure, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tonnage.api import demo
from tonnage.errors import InputError
from tonnage.simulator.kernel import warm_up


def children() -> set[int]:
    """Processes below this one, at any depth, that are not zombies."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if words[0] != "Z":
            parents[int(status.parent.name)] = int(words[1])
    found, before = {os.getpid()}, 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


@pytest.mark.engines
def test_a_fleet_is_measured_loses_an_instance_and_ends_with_all_its_processes() -> None:
    warm_up()
    told: list[str] = []
    before = children()
    found = demo(seconds=6.0, announce=told.append)
    assert children() <= before
    document, failure = found.to_json(), found.failure
    assert (
        set(document["predicted"])
        == set(document["measured"])
        == {"ttft_ms", "tpot_ms", "requests_per_second"}
    )
    assert found.requests > 10
    # A busy machine delivers single tokens late, but it makes none before its time; and every
    # request ended once.
    assert document["measured"]["tpot_ms"] > 0.8 * document["predicted"]["tpot_ms"]
    assert failure.sent == failure.completed + failure.failed
    assert failure.after_s == 0.75
    assert "4 of 4 instances serve." in told
    assert any("instance-0 ended with exit code 137" in line for line in told)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 5.9, 1e9, float("nan")])
def test_seconds_out_of_range_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="seconds"):
        demo(seconds=seconds)
