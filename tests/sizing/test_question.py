"""What no candidate could answer is refused, and which knobs are free."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.questions import SMALL, question
from tonnage.errors import InputError
from tonnage.plan.candidate import CONFIDENCE
from tonnage.sizing.question import (
    PP_DEGREES,
    SAMPLED,
    TP_DEGREES,
    AtBest,
    Question,
    Sharing,
    decides,
    found_tokens,
)
from tonnage.spec.deployment import Limit, parse_limit
from tonnage.spec.kv_tiers import OFF
from tonnage.spec.lengths import Lengths
from tonnage.spec.recording import Recording
from tonnage.spec.sessions import Pause, Sessions, draw


@pytest.fixture(scope="module")
def small() -> Question:
    return question(**SMALL)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"gpus": ()}, "gpu: nothing given; name at least one"),
        ({"precisions": ()}, "precision: nothing given; name at least one"),
        ({"tps": ()}, "tp: nothing given; name at least one"),
        ({"engines": ()}, "engine: nothing given; name at least one"),
        ({"spare": -1}, "spare: -1 is negative"),
        ({"tps": (1, 3)}, "tp: 3 is not a degree that divides an 8-GPU system"),
        ({"pps": (1, 5)}, "pp: 5 is not a number of pipeline stages"),
        ({"step_factor": 0.0}, "step_factor: 0 is not a factor"),
        ({"step_factor": -1.5}, "step_factor: -1.5 is not a factor"),
        ({"step_factor": math.inf}, "step_factor: inf is not a factor"),
        ({"step_factor": math.nan}, "step_factor: nan is not a factor"),
    ],
)
def test_a_question_without_an_answer_is_refused(
    small: Question, changed: dict[str, Any], words: str
) -> None:
    small.check()
    replace(small, spare=0, step_factor=1e-9).check()
    with pytest.raises(InputError) as refused:
        replace(small, **changed).check()
    assert (
        str(refused.value)
        .replace("--", "")
        .replace("-", "_")
        .startswith(words.replace("--", "").replace("-", "_"))
    )


@pytest.mark.parametrize(
    ("changed", "fixed"),
    [
        ({}, set()),
        ({"max_num_tokens": 512}, {"tokens"}),
        ({"max_batch_sizes": (8,)}, {"batch"}),
        ({"chunked_prefill": False}, {"chunk"}),
        ({"front_ends": 1}, {"front_ends"}),
        ({"max_num_tokens": 512, "chunked_prefill": True}, {"tokens", "chunk"}),
    ],
)
def test_the_knobs_that_were_not_set_are_free(
    small: Question, changed: dict[str, Any], fixed: set[str]
) -> None:
    free = replace(small, **changed).free_moves
    assert {"tokens", "batch", "chunk", "front_ends"} - set(free) == fixed
    assert list(free) == [move for move in small.free_moves if move not in fixed]


def test_a_drawn_stream_is_open_and_no_job(small: Question) -> None:
    assert small.drawn
    assert not small.offline
    assert not replace(small, load="closed").drawn
    job = replace(small, demand=replace(small.demand, offline_requests=1))
    assert job.offline
    assert not job.drawn
    assert small.sharing_behind("least-outstanding") is None


@pytest.mark.parametrize("number", range(18))
def test_the_degrees_of_an_instance(small: Question, number: int) -> None:
    for changed, allowed in (
        ({"tps": (number,)}, number in (1, 2, 4, 8)),
        ({"pps": (number,)}, number in (1, 2, 4, 8, 16)),
    ):
        if allowed:
            replace(small, **changed).check()
        else:
            with pytest.raises(InputError, match=f" {number} is not a "):
                replace(small, **changed).check()


def test_what_is_not_asked_is_this(small: Question) -> None:
    written = {
        part.name: getattr(small, part.name) for part in fields(Question) if part.default is MISSING
    }
    assert sorted(written) == sorted(
        ["model", "gpus", "precisions", "tps", "engines", "isl", "osl", "demand", "slo"]
    )
    bare = Question(**written)
    values = {part.name: getattr(bare, part.name) for part in fields(Question)}
    without = {name for name, value in values.items() if value is None}
    assert without == {
        "pairs",
        "recording",
        "chunked_prefill",
        "stream_interval",
        "front_ends",
        "max_model_len",
        "growth_per_month",
        "calibration",
        "speculation",
        "adapters",
        "images",
        "step_source",
        "sharing",
        "prefix_caching",
        "pools",
    }
    assert {name: values[name] for name in set(values) - set(written) - without} == {
        "load": "open",
        "process": "poisson",
        "cv": 1.0,
        "spare": 0,
        "confidence": CONFIDENCE,
        "seed": 0,
        "mode": "streaming",
        "replays_lengths": True,
        "tune": True,
        "deepen": True,
        "step_factor": 1.0,
        "router": "least-outstanding",
        "objective": "gpus",
        "deploy_on": "",
        "session_tiers": False,
        **dict.fromkeys(("pps", "dps", "eps", "max_batch_sizes", "max_num_tokens", "shares"), ()),
        **dict.fromkeys(("systems", "have", "addable", "remarks", "regions"), ()),
    }
    assert (TP_DEGREES, PP_DEGREES) == ((1, 2, 4, 8), (1, 2, 4, 8, 16))


def test_limits_count_by_how_an_answer_is_read(small: Question) -> None:
    metrics: Any = ("ttft", "itl", "tpot", "e2e", "first_ttft", "further_ttft", "slowdown")
    single = [Limit(metric=metric, statistic="p95", seconds=1.0) for metric in metrics]
    counted = {
        mode: [limit.metric for limit in single if decides(limit, mode)]
        for mode in ("streaming", "sequential", "offline")
    }
    assert counted == {"streaming": list(metrics), "sequential": ["e2e"], "offline": []}
    for parts, whole in (((("e2e", 1.0),), True), ((("e2e", 1.0), ("ttft", 1.0)), False)):
        joint = Limit(metric="attain", statistic="share", seconds=1.0, share=0.9, parts=parts)
        assert decides(joint, "streaming")
        assert decides(joint, "sequential") is whole
        assert not decides(joint, "offline")
    both = (parse_limit("ttft", "1s"), parse_limit("e2e", "3s"))
    assert replace(small, slo=both, mode="sequential").limits == both[1:]
    assert replace(small, slo=both).limits == both


# What prompts share, by hand.

FIVE = Lengths(mean=5.0)
TURNS = Sessions(turns=Lengths(mean=3.0), think=Pause(mean_s=10.0))
PREFIX = Sessions(prefix_tokens=1000, prefix_share=0.5)
RECORDING = Recording(
    due_ns=(0, 1, 2, 3, 4),
    isl=(1500, 1500, 500, 1536, 30),
    osl=(1, 1, 1, 1, 1),
    blocks=((1, 2, 3), (1, 2, 4), (5,), (1, 9, 3), ()),
)
"""The second prompt finds two of its three blocks, the fourth the first of its three, whose third
is behind others."""


def recorded(*pauses_ns: int, block: int = 64) -> Any:
    return SimpleNamespace(pause_ns=np.array(pauses_ns), block_tokens=block)


@pytest.mark.parametrize(
    ("sharing", "follows"),
    [
        (Sharing(sessions=TURNS, new=FIVE), True),
        (Sharing(sessions=Sessions(tool_calls=1), new=FIVE), True),
        (Sharing(sessions=PREFIX, new=FIVE), False),
        (Sharing(recording=RECORDING), False),
        (Sharing(recorded=recorded(-1)), True),
    ],
)
def test_requests_follow_one_another_in_conversations(
    small: Question, sharing: Sharing, follows: bool
) -> None:
    assert sharing.follows is follows
    assert (sharing.tiers, sharing.fleet_rate) == (OFF, 0.0)
    demand = replace(small.demand, sizing_requests_per_second=7.0)
    asked = replace(small, sharing=sharing, demand=demand)
    whole = replace(sharing, fleet_rate=7.0)
    for router in ("random", "round-robin", "least-outstanding"):
        assert asked.sharing_behind(router) == (whole if follows else sharing)
        assert sharing.balanced(router) is (router == "least-outstanding")
    for router in ("session", "prefix-aware"):
        assert asked.sharing_behind(router) == sharing
        assert not sharing.balanced(router)


@pytest.mark.parametrize(
    ("sharing", "seconds", "share"),
    [
        (Sharing(sessions=PREFIX, new=FIVE), 0.0, 1.0),
        (Sharing(recording=RECORDING), 0.0, 1.0),
        (Sharing(sessions=TURNS, new=FIVE), 9.9, 0.0),
        (Sharing(sessions=TURNS, new=FIVE), 10.0, 1.0),
        # three calls of 2 s and one person of 10 s in each turn
        *(
            (
                Sharing(sessions=replace(TURNS, tool_calls=3, tool=Pause(mean_s=2.0)), new=FIVE),
                seconds,
                share,
            )
            for seconds, share in ((1.0, 0.0), (5.0, 0.75), (10.0, 1.0))
        ),
        (
            Sharing(
                sessions=replace(TURNS, tool_calls=3, think=Pause(mean_s=10.0, exponential=True)),
                new=FIVE,
            ),
            10.0 * math.log(4.0),
            0.25 * 0.75 + 0.75,
        ),
        (Sharing(recorded=recorded(-1, 10**9, 3 * 10**9, -1, 5 * 10**9, 0)), 3.0, 3 / 4),
        (Sharing(recorded=recorded(-1, 10**9, 3 * 10**9, -1, 5 * 10**9, 0)), 2.9, 2 / 4),
        (Sharing(recorded=recorded(-1, -1)), 0.0, 1.0),
    ],
)
def test_what_is_kept_so_long_is_found_after_shorter_pauses(
    sharing: Sharing, seconds: float, share: float
) -> None:
    assert sharing.kept(seconds) == pytest.approx(share)


@pytest.mark.parametrize(
    ("sharing", "engine", "computed", "block"),
    [
        # half a block of a conversation: 32 for 8 tokens, a limit of 24 more
        (Sharing(sessions=TURNS, new=FIVE), 16, 400.0, 64),
        (Sharing(sessions=TURNS, new=FIVE), 16, 399.0, 32),
        (Sharing(sessions=TURNS, new=FIVE), 16, 1_000.0, 128),
        (Sharing(sessions=TURNS, new=FIVE), 16, 1e6, 512),
        (Sharing(sessions=TURNS, new=FIVE), 48, 1e6, 384),
        (Sharing(sessions=TURNS, new=FIVE), 16, 0.0, 16),
        # of a prefix of 1,000 tokens 8, 8, 40 and 104 fill no block, in half of the prompts
        (Sharing(sessions=PREFIX, new=FIVE), 16, 200.0, 32),
        (Sharing(sessions=PREFIX, new=FIVE), 16, 300.0, 64),
        (Sharing(sessions=PREFIX, new=FIVE), 16, 799.0, 64),
        (Sharing(sessions=PREFIX, new=FIVE), 16, 801.0, 128),
        # blocks of 512 tokens are those of 256, but not of 48
        (Sharing(recording=RECORDING), 16, 0.0, 512),
        (Sharing(recording=RECORDING), 48, 800.0, 96),
        (Sharing(recording=RECORDING), 48, 799.0, 48),
        (Sharing(), 16, 0.0, 512),
        (Sharing(recorded=recorded(block=64)), 16, 0.0, 64),
        (Sharing(recorded=recorded(block=100)), 16, 0.0, 64),
        (Sharing(recorded=recorded(block=32)), 16, 0.0, 32),
        (Sharing(recorded=recorded(block=0)), 16, 0.0, 64),
        (Sharing(recorded=recorded(block=64)), 128, 0.0, 128),
    ],
)
def test_blocks_are_larger_where_that_hardly_changes_what_is_found(
    sharing: Sharing, engine: int, computed: float, block: int
) -> None:
    assert sharing.block_tokens(engine, computed) == block


@pytest.mark.parametrize(
    ("sharing", "block", "tokens"),
    [
        (Sharing(sessions=TURNS, new=Lengths(mean=100.0)), 64, 76.0),  # half of 64 less half of 16
        (Sharing(sessions=TURNS, new=Lengths(mean=49.0)), 64, 25.0),
        (Sharing(sessions=TURNS, new=Lengths(mean=48.0)), 64, 48.0),
        (Sharing(sessions=TURNS, new=Lengths(mean=100.0)), 16, 100.0),
        (Sharing(sessions=PREFIX, new=Lengths(mean=100.0)), 64, 84.0),
        (Sharing(sessions=PREFIX, new=Lengths(mean=100.0)), 32, 100.0),
        (Sharing(sessions=replace(PREFIX, prefix_tokens=24), new=FIVE), 8, 5.0),  # less than before
        (Sharing(recording=RECORDING), 48, None),
        # blocks of 16 are those of the recording, of 48 lose one
        (Sharing(recording=RECORDING, new=Lengths(mean=100.0)), 48, 52.0),
    ],
)
def test_questions_are_as_much_shorter(sharing: Sharing, block: int, tokens: float | None) -> None:
    shorter = sharing.shorter(16, block)
    assert shorter == (sharing if tokens is None else replace(sharing, new=shorter.new))
    assert (None if shorter.new is None else shorter.new.mean) == tokens


def test_prompts_of_a_factor_are_so_in_every_part() -> None:
    agents = replace(TURNS, prefix_tokens=101, tool_calls=1, tool_tokens=Lengths(mean=40.0))
    scaled = Sharing(sessions=agents, new=FIVE).scaled(1.5)
    longer = replace(agents, prefix_tokens=152, tool_tokens=Lengths(mean=60.0))
    assert scaled == Sharing(sessions=longer, new=Lengths(mean=7.5))
    assert Sharing(sessions=TURNS, new=FIVE).scaled(2.0).sessions == TURNS
    for other in (Sharing(recording=RECORDING), Sharing(sessions=TURNS), Sharing(new=FIVE)):
        assert other.scaled(2.0) is other


def test_every_instance_holds_the_prefix_of_single_requests() -> None:
    class Three(SimpleNamespace):
        def __len__(self) -> int:
            return 3

    # two pieces of the first and the last, a prefix and their own
    trace: Any = Three(contents=SimpleNamespace(starts=np.array([0, 2, 3, 5])))
    nothing: Any = Three(contents=None)
    single = Sharing(sessions=PREFIX, new=FIVE)
    assert single.common_tokens(trace).tolist() == [1000, 0, 1000]
    for sharing, of in (
        (single, nothing),
        (Sharing(sessions=TURNS, new=FIVE), trace),
        (Sharing(recording=RECORDING), trace),
    ):
        assert sharing.common_tokens(of).tolist() == [0, 0, 0]


def test_a_cache_without_end_leaves_what_is_new() -> None:
    answers = Lengths(mean=10.0)
    whole = Sharing(sessions=replace(PREFIX, prefix_share=1.0), new=FIVE).best(answers)
    assert whole == AtBest(isl=Lengths(mean=1005.0), computed=5.0, common=1000.0)
    # prompts of 100, 210 and 320 tokens, of which 100 each are new
    spoken = Sharing(sessions=TURNS, new=Lengths(mean=100.0)).best(answers)
    assert (spoken.computed, spoken.common) == (100.0, 0.0)
    assert (spoken.isl.kind, spoken.isl.mean) == ("histogram", 210.0)
    assert spoken.isl.std == pytest.approx(110 * math.sqrt(2 / 3))
    assert len(spoken.isl.bins) == 101
    assert {weight for _, weight in spoken.isl.bins[:-1]} == {0.01}
    assert spoken.isl.bins[0][0] == 100.0
    assert spoken.isl.bins[-2:] == ((320.0, 0.01), (320.0, 1e-12))
    # half of 4,000 prompts begin with the prefix
    half = Sharing(sessions=PREFIX, new=FIVE).best(answers)
    assert (half.computed, half.common, half.isl.longest) == (5.0, 500.0, 1005)
    streams = [np.random.default_rng(stem) for stem in np.random.SeedSequence(0).spawn(6)]
    drawn = draw(PREFIX, SAMPLED, FIVE, answers, streams)
    assert half.isl.mean == drawn.isl.mean()
    assert half.isl.mean == pytest.approx(505.0, rel=0.05)
    # a longest prompt that is hardly ever drawn counts
    rare = Lengths(kind="histogram", mean=100.0, bins=((100.0, 1 - 1e-9), (4_000.0, 1e-9)))
    assert Sharing(sessions=TURNS, new=rare).best(answers).isl.longest == 3 * 4_000 + 2 * 10
    with pytest.raises(ValueError, match="neither sessions nor a recording"):
        Sharing(sessions=TURNS).best(answers)
    with pytest.raises(ValueError, match="neither sessions nor a recording"):
        Sharing(new=FIVE).best(answers)


def test_blocks_of_recorded_prompts_are_found_behind_the_same_ones() -> None:
    assert found_tokens(RECORDING.blocks, RECORDING.isl) == 1000 + 512
    best = Sharing(recording=RECORDING).best(FIVE)
    lengths = sum(RECORDING.isl)
    assert best.computed == pytest.approx((lengths - 1512) / 5)
    assert (best.isl.mean, best.common) == (pytest.approx(lengths / 5), 0.0)

    class Recorded(SimpleNamespace):
        def __hash__(self) -> int:
            return 1

    grown: Any = Recorded(
        recording=RECORDING,
        isl=np.array([100, 210]),
        found_tokens=lambda: np.array([0, 96]),
    )
    assert Sharing(recorded=grown).best(FIVE) == AtBest(
        isl=best.isl, computed=(100 + 114) / 2, common=0.0
    )
