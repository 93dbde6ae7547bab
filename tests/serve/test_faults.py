"""Faults are read, meet the requests they are meant for, and slow what they are to slow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.serve.faults import KINDS, Fault, Faults, clock_changes, parse_fault


def test_faults_are_read() -> None:
    assert parse_fault("slow factor=5 instance=1 from=10s to=30s") == Fault(kind="slow", factor=5, instance=1, start_s=10, end_s=30)
    assert parse_fault("stall for=2s from=1s") == Fault(kind="stall", start_s=1, end_s=3)
    assert parse_fault("crash from=10s instance=0") == Fault(kind="crash", start_s=10, instance=0)
    assert parse_fault("429 share=0.1") == Fault(kind="429", share=0.1)
    assert parse_fault("cut share=1 after=7 to=500ms") == Fault(kind="cut", share=1, after=7, end_s=0.5)


@pytest.mark.parametrize(
    "text",
    [
        "slow factor=5 from=10s to=30s",
        "slow factor=1.15",
        "stall for=2s from=1.5s",
        "crash from=10s",
        "500 share=0.25 from=1s",
        "cut share=0.1 after=3",
    ],
)
def test_a_fault_written_again_is_the_same(text: str) -> None:
    assert parse_fault(parse_fault(text).words()) == parse_fault(text)


@pytest.mark.parametrize(
    "text",
    ["", "slow", "slow factor=0", "slow factor=x", "slow factor=nan", "slow factor=2 share=1", "stall", "crash", "429 share=2",
     "cut share=0.1 after=1.5",
     "slow factor=2 from=3s to=2s", "slow factor=2 factor=3", "slow factor=2 instance=-1", "503 share=1", "slow factor=2 from=3"],
)  # fmt: skip
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_fault(text)
    assert "\n" not in str(error.value)


@given(st.text(max_size=30) | st.tuples(st.sampled_from(KINDS), st.text(max_size=20)).map(" ".join))
def test_any_text_is_a_fault_or_refused(text: str) -> None:
    try:
        fault = parse_fault(text)
    except InputError:
        return
    assert fault.kind in KINDS


def test_the_pace_of_an_instance() -> None:
    faults = [
        parse_fault(text)
        for text in ("slow factor=2 from=1s to=4s", "slow factor=3 instance=1 from=2s", "stall for=1s from=3s", "429 share=1")
    ]
    assert clock_changes(faults, 0) == ((0, 1), (1, 2), (3, math.inf), (4, 1))
    assert clock_changes(faults, 1) == ((0, 1), (1, 2), (2, 6), (3, math.inf), (4, 3))
    assert clock_changes([], 0) == ((0, 1),)


def test_the_share_of_the_requests_that_a_fault_meets() -> None:
    faults = [parse_fault("429 share=0.1 from=10s"), parse_fault("cut share=0.3")]
    begun: list[str] = []
    now = [100.0]

    def drawn(after_s: float, requests: int) -> list[Fault | None]:
        made = Faults(faults, lambda timed: begun.append("begun"), seed=3, now_s=lambda: now[0])
        now[0] = 100.0
        first = made.next()
        now[0] += after_s
        return [first, *(made.next() for _ in range(requests - 1))]

    found = drawn(20.0, 20_000)
    refused, cut = (sum(one is not None and one.kind == kind for one in found) / len(found) for kind in ("429", "cut"))
    assert abs(refused - 0.1) < 4 * math.sqrt(0.1 * 0.9 / len(found))
    assert abs(cut - 0.9 * 0.3) < 4 * math.sqrt(0.27 * 0.73 / len(found))
    assert drawn(20.0, 200) == found[:200]
    assert "429" not in {one.kind for one in drawn(9.9, 1000) if one is not None}
    assert begun == ["begun"] * 3
