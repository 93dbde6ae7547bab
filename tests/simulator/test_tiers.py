"""Memory below the KV cache: what comes back is what a plain LRU keeps, every block is in one
place, and moved blocks balance."""

from __future__ import annotations

import gzip
import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deployments import deployment
from tests.simulator.reference.shared_prompts import conserved
from tests.simulator.reference.test_prefix_cache import CACHING, ENGINE, SECOND, STEP, served
from tests.strategies import MS, shared_runs
from tonnage.errors import InputError
from tonnage.formats.sessions import read_sessions
from tonnage.perf.memory import memory_plan
from tonnage.simulator.kernel import run_recorded
from tonnage.simulator.reference import engine as reference_engine
from tonnage.simulator.reference import run_reference
from tonnage.simulator.reference.prefix_cache import PrefixCache
from tonnage.simulator.tiers import Tier, resolved_tiers, tiers_of
from tonnage.spec.kv_tiers import PLAIN, AskedTier, KvTiers, SystemTier
from tonnage.spec.sessions import ENDLESS
from tonnage.spec.workload import Trace

WEKA = (
    Path(__file__).parents[3]
    / "shared"
    / "data"
    / "traces"
    / "agentic"
    / "claude_code_150.jsonl.gz"
)
BLOCK = 1024
"""Tokens of a block here: sixteen of the recorded ones."""


def lru_of_two(prompts: list[tuple[list[object], int]], cache: int, tier: int) -> list[int]:
    """Blocks that each request finds, served one by one with an answer of one token; from the rule
    alone.

    Both memories are dicts whose first entry is the next to go. A request takes the longest
    beginning that is in either of them, drives out as many blocks as it needs places, and leaves
    its own ones behind, the last first; a part of a block is useless to all."""
    near: OrderedDict[object, None] = OrderedDict()
    far: OrderedDict[object, None] = OrderedDict()
    found = []
    for number, (names, tokens) in enumerate(prompts):
        hits = 0
        while hits < min(len(names), (tokens - 1) // BLOCK) and (
            names[hits] in near or names[hits] in far
        ):
            hits += 1
        for name in names[:hits]:
            near.pop(name, None)
            far.pop(name, None)
        while len(near) > cache - -(-tokens // BLOCK):
            name, _ = near.popitem(last=False)
            if not isinstance(name, float):
                far[name] = None
                if len(far) > tier:
                    far.popitem(last=False)
        # a block that is computed again takes the name of the one that nobody reached
        for place, name in enumerate(names[hits:]):
            far.pop(name, None)
            if name in near:
                near = OrderedDict(
                    (number + place / 1e6 if old == name else old, None) for old in near
                )
        near.update(dict.fromkeys(reversed(names)))
        found.append(hits)
    return found


@pytest.mark.accuracy
@pytest.mark.skipif(not WEKA.exists(), reason="the sessions are not part of the project")
@pytest.mark.parametrize("tier", [300, 1_500, 6_000])
def test_on_recorded_sessions_a_tier_finds_what_a_plain_lru_finds(tier):
    """All sessions at once, each request in its turn: a cache of 600 blocks, less than the sessions
    have, and a tier of three sizes."""
    sessions = read_sessions(str(WEKA), "trace").within(200_000)
    order = np.argsort(sessions.at_ns, kind="stable")
    rows = len(order)
    trace = Trace(
        due_ps=np.arange(rows) * 100 * SECOND,
        isl=sessions.isl[order],
        osl=np.ones(rows, np.int64),
        concurrency=0,
        turnaround_ps=0,
        contents=sessions.contents.part(order),
    )
    knobs = replace(ENGINE, tokens_per_block=BLOCK, max_num_tokens=1 << 20)
    got, _ = run_recorded(
        trace, STEP, knobs, 600, most_steps=0, tiers=(Tier(blocks=tier, block_ps=MS),)
    )
    prompts = [prompt for prompt in plain_prompts() if prompt[1] + prompt[2] <= 200_000]
    assert [prompts[row][1] for row in order.tolist()] == trace.isl.tolist()
    expected = lru_of_two([prompts[row][:2] for row in order.tolist()], 600, tier)
    assert (got.cached_tokens // BLOCK).tolist() == expected
    assert (got.cached_tokens % BLOCK == 0).all()
    print(
        f"600 blocks and {tier} below: {sum(expected) * BLOCK / trace.isl.sum():.2%} of the prompt"
        " tokens found, exactly"
    )


def plain_prompts() -> list[tuple[list[object], int, int]]:
    """Names of the whole blocks of each recorded prompt, its tokens and those of its answer, as the
    file has them."""
    found = []
    with gzip.open(WEKA, "rt") as lines:
        for session, line in enumerate(lines):
            for one in [
                one
                for _, one in sorted(
                    sent(json.loads(line)["requests"], 0.0), key=lambda each: each[0]
                )
            ]:
                ids, names, before = one["hash_ids"], [], 0
                for end in range(BLOCK // 64, len(ids) + 1, BLOCK // 64):
                    before = hash((before, tuple(ids[end - BLOCK // 64 : end])))
                    names.append((session, end, before))
                found.append((names[: one["in"] // BLOCK], one["in"], max(one["out"], 1)))
    return found


def sent(requests: list[dict], begins: float) -> list[tuple[float, dict]]:
    """The requests of a session and its sub-agents, with the seconds at which they were sent."""
    found = []
    for one in requests:
        found += (
            sent(one["requests"], begins + one["t"])
            if one["type"] == "subagent"
            else [(begins + one["t"], one)]
        )
    return found


class Ledger(PrefixCache):
    """A cache that counts what goes down, comes up, is displaced by a block computed again, and is
    forgotten."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.down = self.up = self.displaced = 0

    def _descend(self, key):
        self.down += 1
        super()._descend(key)

    def hold(self, job, found):
        self.up += sum(not isinstance(block, int) for block in found.blocks)
        super().hold(job, found)

    def _name(self, block, key):
        self.displaced += sum(key in names for names in self.below)
        super()._name(block, key)


@pytest.mark.parametrize("scheduler", CACHING)
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_block_is_in_one_place_and_what_goes_down_comes_up_stays_or_is_forgotten(
    scheduler, data, monkeypatch
):
    monkeypatch.setattr(reference_engine, "PrefixCache", Ledger)
    r = data.draw(shared_runs((scheduler,)))
    knobs = replace(r.knobs, prefix_caching=True)
    endless = (Tier(blocks=10**6, block_ps=1),)
    limits = {"windows": r.windows, "max_context": r.max_context}
    ran = run_reference(r.trace, r.step, knobs, r.kv_blocks, tiers=endless, **limits)
    if ran.cache is not None:
        conserved(ran.cache, ran.free_blocks, r.kv_blocks)
        assert ran.cache.down == ran.cache.up + ran.cache.displaced + len(ran.cache.below[0]), (
            "an endless tier forgets nothing"
        )
    nothing = run_reference(r.trace, r.step, knobs, r.kv_blocks, **limits).requests
    empty = run_reference(
        r.trace,
        r.step,
        knobs,
        r.kv_blocks,
        tiers=(Tier(blocks=0, block_ps=MS), Tier(blocks=0, block_ps=1)),
        **limits,
    )
    for name in ("cached_tokens", "first_token_ns", "last_token_ns", "preemptions", "status"):
        np.testing.assert_array_equal(getattr(nothing, name), getattr(empty.requests, name))


PROMPTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(1, 15)), min_size=2, max_size=40
)
"""Requests one by one: which of six texts, how many of its blocks, and how many tokens of their
own."""


def one_by_one(prompts, **more):
    contents = [
        [(text, 16 * whole), (10 + number, ENDLESS)]
        for number, (text, whole, _) in enumerate(prompts)
    ]
    isl = [16 * whole + own for _, whole, own in prompts]
    return served(
        contents, isl, [1] * len(isl), due=[number * SECOND for number in range(len(isl))], **more
    )


@settings(max_examples=40, deadline=None)
@given(prompts=PROMPTS, cache=st.integers(12, 30), tier=st.integers(1, 40))
def test_a_tier_without_latency_and_of_endless_bandwidth_is_a_larger_cache(prompts, cache, tier):
    tiered = one_by_one(prompts, blocks=cache, tiers=(Tier(blocks=tier, block_ps=0),)).requests
    larger = one_by_one(prompts, blocks=cache + tier).requests
    for name in ("cached_tokens", "first_token_ns", "last_token_ns"):
        np.testing.assert_array_equal(getattr(tiered, name), getattr(larger, name))


@settings(max_examples=40, deadline=None)
@given(prompts=PROMPTS, cache=st.integers(12, 30), tier=st.integers(1, 40))
def test_a_tier_of_copies_is_one_of_as_many_blocks_less_as_the_cache_has(prompts, cache, tier):
    """Written through, the larger memory has all that the cache has: found is what an LRU of its
    blocks alone has kept.

    The cache has one part of a block at a time, which no tier keeps.
    """
    tiered = one_by_one(prompts, blocks=cache, tiers=(Tier(blocks=tier + 1, block_ps=0),)).requests
    kept: OrderedDict[tuple[int, int], None] = OrderedDict()
    found = []
    for text, whole, _ in prompts:
        hits = 0
        while hits < whole and (text, hits) in kept:
            hits += 1
        for place in reversed(range(whole)):
            kept.pop((text, place), None)
            kept[text, place] = None
        while len(kept) > cache + tier:
            kept.popitem(last=False)
        found.append(16 * hits)
    assert tiered.cached_tokens.tolist() == found


def test_a_tier_adds_its_latency_once_and_overlapped_transfers_hide_behind_the_step():
    contents = [[(number, ENDLESS)] for number in (0, 1)] + [[(0, 96), (2, ENDLESS)]]
    lengths = {"isl": [96, 112, 96], "osl": [1, 1, 1], "due": [0, SECOND, 2 * SECOND], "blocks": 8}

    def last_step(**more):
        return served(contents, **lengths, tiers=(Tier(blocks=50, **more),)).steps[2][1]

    computed = last_step(block_ps=0)
    assert last_step(block_ps=7 * MS, latency_ps=3 * MS) - computed == (4 * 7 + 3) * MS
    assert last_step(block_ps=7 * MS, latency_ps=3 * MS, overlaps=True) == (4 * 7 + 3) * MS
    assert last_step(block_ps=1, overlaps=True) == computed


def memory_of(kind, gb: float | None, gb_s: float, latency_us: float) -> SystemTier:
    return SystemTier(
        kind=kind, gb=gb, gb_s=gb_s, latency_us=latency_us, source="by hand", date="2026-11-29"
    )


MEMORIES = (
    memory_of("host", 1000.0, 100.0, 20.0),
    memory_of("disk", 2000.0, 10.0, 100.0),
    memory_of("store", None, 80.0, 1000.0),
)
"""Of eight GPUs; an instance of two has a quarter of each."""

HOST = AskedTier(name="host", size=200 * 10**9, speed=25 * 10**9, latency_s=20e-6)
DISK = AskedTier(name="disk", size=450 * 10**9, speed=25 * 10**8, latency_s=1e-4)


def of_two(model: str = "llama-3.1-8b", engine: str = "vllm-0.32", tp: int = 2):
    return deployment(model, precision="fp8", engine=engine, tp=tp)


def asked_tier(name: str, **what) -> AskedTier:
    return AskedTier(name=name, **what)


@pytest.mark.parametrize(
    ("asked", "offloader", "tiers"),
    [
        (KvTiers(off=True), "", ()),
        (KvTiers(offloader="lmcache"), "lmcache", (HOST, DISK)),
        (KvTiers(offloader="kvbm", tiers=(asked_tier("disk"),)), "kvbm", (DISK,)),
        (KvTiers(), "vllm", (HOST,)),
        (KvTiers(usual=True), "vllm", (HOST,)),
        # all is given: the system and its engine have no say
        (
            KvTiers(tiers=(asked_tier("tape", size=5, speed=7),)),
            "",
            (asked_tier("tape", size=5, speed=7, latency_s=0.0),),
        ),
        (
            KvTiers(tiers=(asked_tier("host", size=5, speed=7, latency_s=0.5),)),
            "",
            (asked_tier("host", size=5, speed=7, latency_s=0.5),),
        ),
        # one of two is left to the system
        (
            KvTiers(tiers=(asked_tier("tape", size=5, speed=7), asked_tier("host"))),
            "vllm",
            (asked_tier("tape", size=5, speed=7, latency_s=0.0), HOST),
        ),
        (KvTiers(tiers=(asked_tier("host", size=5),)), "vllm", (replace(HOST, size=5),)),
        (KvTiers(tiers=(asked_tier("host", speed=7),)), "vllm", (replace(HOST, speed=7),)),
        (
            KvTiers(tiers=(asked_tier("host", latency_s=0.5),)),
            "vllm",
            (replace(HOST, latency_s=0.5),),
        ),
        (
            KvTiers(tiers=(asked_tier("store", size=9),)),
            "vllm",
            (asked_tier("store", size=9, speed=20 * 10**9, latency_s=1e-3),),
        ),
        # what the system does not have is left out where it is left to it
        (KvTiers(tiers=(asked_tier("store"), asked_tier("host")), usual=True), "vllm", (HOST,)),
    ],
)
def test_what_a_question_leaves_open_the_system_says(asked, offloader, tiers) -> None:
    rules, resolved = resolved_tiers(asked, of_two(), MEMORIES, 8)
    assert rules.name == offloader
    assert (rules == PLAIN) is (offloader == "")
    assert [(tier.name, tier.size, tier.speed) for tier in resolved] == [
        (tier.name, tier.size, tier.speed) for tier in tiers
    ]
    assert [tier.latency_s for tier in resolved] == pytest.approx(
        [tier.latency_s for tier in tiers]
    )


def test_memories_of_which_nothing_is_known_are_refused_where_they_are_asked_for() -> None:
    for name, lacking in (("store", "no size of the store"), ("tape", "nothing of the tape")):
        with pytest.raises(InputError, match=rf"kv_tiers: the catalog says {lacking} of h100-sxm"):
            resolved_tiers(KvTiers(tiers=(asked_tier(name),)), of_two(), MEMORIES, 8)
    old = of_two(engine="vllm-0.10")
    assert resolved_tiers(KvTiers(usual=True), old, MEMORIES, 8) == (PLAIN, ())
    assert resolved_tiers(KvTiers(), old, MEMORIES, 8)[1] != ()


def test_the_blocks_of_tiers_by_hand() -> None:
    """A block of 16 tokens takes 1 MiB of two GPUs, whose cache has so many of them: a copy of all
    of it is in host memory, and of all that is there on the disk. A block comes up in 1 MiB over
    25 GB/s or 2.5 GB/s."""
    one = of_two()
    memory = memory_plan(one)
    assert memory.kv_bytes_per_token * 16 * 2 == 2**20
    cache, mib = memory.tokens // 16, 2**20

    def tiers(asked: KvTiers, blocks: int = 16) -> list[tuple[int, int, int, bool]]:
        options = {"memories": MEMORIES, "gpus_per_system": 8, "block_tokens": blocks}
        return [
            (tier.blocks, tier.block_ps, tier.latency_ps, tier.overlaps)
            for tier in tiers_of(asked, one, memory, **options)
        ]

    host, disk = 200 * 10**9 // mib, 450 * 10**9 // mib
    up = -(-mib * 1000 // 25)
    assert tiers(KvTiers(offloader="lmcache")) == [
        (host - cache, up, 20_000_000, False),
        (disk - host, 10 * up, 100_000_000, False),
    ]
    # smaller than the cache, it adds nothing; what is on the disk adds to the cache then
    small = KvTiers(offloader="kvbm", tiers=(asked_tier("host", size=mib), asked_tier("disk")))
    assert tiers(small) == [
        (0, up, 20_000_000, True),
        (disk - cache, 10 * up, 100_000_000, True),
    ]
    # what had to be forgotten above goes down: all of it counts
    assert tiers(KvTiers(offloader="tensorrt-llm")) == [(host, up, 20_000_000, False)]
    assert tiers(KvTiers(tiers=(asked_tier("tape", size=3 * mib - 1, speed=mib),))) == [
        (2, 10**12, 0, False)
    ]
    assert tiers(KvTiers(offloader="tensorrt-llm"), 64)[0][:2] == (host // 4, -(-mib * 4000 // 25))
    assert tiers(KvTiers(off=True)) == []


def test_a_latent_cache_that_every_gpu_has_is_kept_once_or_by_each() -> None:
    """Each of eight GPUs has all of it: LMCache writes it once, KVBM eight times; both read it to
    all eight."""
    one = deployment("kimi-k2.5", "b200", "fp8", engine="vllm-0.32", tp=8)
    memory = memory_plan(one)
    moved = memory.kv_bytes_per_token * 16 * 8
    size = 10**13
    for offloader, block_bytes in (("lmcache", moved // 8), ("kvbm", moved)):
        asked = KvTiers(offloader=offloader, tiers=(asked_tier("host", size=size),))
        [tier] = tiers_of(asked, one, memory, memories=MEMORIES, gpus_per_system=8, block_tokens=16)
        assert tier.blocks == size // block_bytes - memory.tokens // 16, offloader
        assert tier.block_ps == -(-moved * 10**12 // (100 * 10**9))
