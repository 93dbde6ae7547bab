"""Sessions: prompts that contain the history, and a rate that holds from the beginning of a run."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.errors import InputError
from tonnage.spec.sessions import Pause, Sessions, of_blocks, piece_at
from tonnage.spec.workload import ClosedLoop, Lengths, OpenLoop, Workload
from tonnage.units import PS_PER_S

ISL, OSL = Lengths(mean=50.0), Lengths(mean=20.0)


def workload(sessions: Sessions, requests: int = 60, **arrivals) -> Workload:
    load = OpenLoop(**arrivals) if "rate" in arrivals else ClosedLoop(**arrivals)
    return Workload(isl=ISL, osl=OSL, arrivals=load, requests=requests, sessions=sessions)


def test_a_turn_has_the_whole_history_and_a_tool_call_its_result_in_its_prompt() -> None:
    trace = workload(
        Sessions(prefix_tokens=100, turns=Lengths(mean=3.0), think=Pause(mean_s=2.0)), concurrency=5
    ).trace(1)
    assert trace.isl[:6].tolist() == [150, 220, 290, 150, 220, 290]
    assert trace.pause_ps[:4].tolist() == [-1, 2 * PS_PER_S, 2 * PS_PER_S, -1]
    asked = Sessions(
        turns=Lengths(mean=2.0),
        tool_calls=1,
        think=Pause(mean_s=9.0),
        tool=Pause(mean_s=1.0),
        tool_tokens=Lengths(mean=300.0),
    )
    trace = workload(asked, concurrency=5).trace(1)
    assert trace.isl[:4].tolist() == [50, 50 + 20 + 300, 370 + 20 + 50, 440 + 20 + 300]
    assert trace.pause_ps[:4].tolist() == [-1, PS_PER_S, 9 * PS_PER_S, PS_PER_S]


def test_prompts_share_their_prefix_and_nothing_else() -> None:
    trace = workload(
        Sessions(prefix_tokens=30, prefix_share=0.5, prefixes=2), requests=400, rate=5.0
    ).trace(2)
    assert trace.contents is not None
    firsts = [piece_at(*trace.contents.of(row), 0) for row in range(400)]
    lasts = [piece_at(*trace.contents.of(row), 49) for row in range(400)]
    assert len(set(lasts)) == 400
    shared = [piece for piece, last in zip(firsts, lasts, strict=True) if piece != last]
    assert 160 < len(shared) < 240
    assert len(set(shared)) == 2
    assert set(trace.isl.tolist()) == {50, 80}


def test_the_rate_holds_from_the_first_second_on() -> None:
    """Pauses of a minute and a run of 100 s: without sessions that began before it, hardly any
    further turn would be in it."""
    asked = Sessions(turns=Lengths(mean=5.0), think=Pause(mean_s=60.0, exponential=True))
    trace = workload(asked, requests=1_000, rate=10.0).trace(3)
    first = trace.pause_ps < 0
    assert (
        np.diff(trace.due_ps[first]).min(initial=1) > 0 or (np.diff(trace.due_ps[first]) >= 0).all()
    )
    assert trace.due_ps[first].max() < 110 * PS_PER_S
    assert 0.4 < np.mean(trace.isl > 100) < 0.9
    assert len(trace) == 1_000


def test_sessions_too_many_to_draw_are_refused() -> None:
    with pytest.raises(InputError, match="under way at once"):
        workload(Sessions(turns=Lengths(mean=5.0), think=Pause(mean_s=1e6)), rate=1e4).trace(0)


def test_recorded_blocks_are_pieces_and_outputs_nobody_elses() -> None:
    contents = of_blocks([(1, 2, 3), (1, 2, 4), (9, 2, 3)], [1_300, 1_536, 1_100], 512)
    pieces = [
        [piece_at(*contents.of(row), token) for token in (0, 600, 1_050, 5_000)] for row in range(3)
    ]
    assert pieces[0][:2] == pieces[1][:2]
    assert pieces[0][2] != pieces[1][2]
    assert pieces[2][1] != pieces[0][1]
    assert len({row[3] for row in pieces}) == 3
