"""The question of a sizing: the scenario, validated, before anything is simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from tonnage.errors import InputError, option
from tonnage.plan.candidate import CONFIDENCE
from tonnage.plan.demand import Demand
from tonnage.plan.notes import Note
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.spec.calibration import Calibration
from tonnage.spec.deployment import (
    LIMITED,
    METRICS,
    Adapters,
    KvRule,
    Limit,
    LimitMetric,
    Slo,
    Speculation,
)
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.images import Images
from tonnage.spec.kv_tiers import OFF, KvTiers
from tonnage.spec.lengths import Lengths, Pairs, check_context
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision
from tonnage.spec.recording import Recording
from tonnage.spec.scenario import Mode, Objective
from tonnage.spec.sessions import Sessions, draw
from tonnage.spec.step_times import StepSource
from tonnage.spec.workload import Process, Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.recorded_sessions import RecordedSessions


# What the prompts of a question have in common, and what closed forms make of it before anything is
# simulated. Prompts share a system prompt, the earlier turns of their conversation, or the blocks
# that a recording names. How much of that an instance finds in its cache is simulated; this is only
# the best that a cache without end could do, which bounds what an instance carries.


SAMPLED = 4_000
"""Sessions that are drawn to know how long their prompts are."""

MOST_BLOCK, LOST = 512, 0.06
"""Largest block of a simulation in tokens, and the share of what a prompt has to compute that
larger blocks may add, which shorter questions make up for. A simulated request takes as long as it
has blocks: with blocks of 64 tokens in place of 16, a fifth of the time."""

RECORDED = 512
"""Tokens of a block of recorded prompts, in the traces that name them (Mooncake)."""

RECORDED_SESSIONS = 64
"""Tokens of a block in simulations of sessions whose file names none."""

GROUPS = 100
"""Lengths of prompts that stand for all of them."""

AFFINE = ("session", "prefix-aware")
"""Routers that send what belongs together to the same instance."""

BLIND = ("random", "round-robin")
"""Routers that look at nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What prompts share.

    Attributes:
        sessions: conversations, or prefixes of single requests; None for a recording.
        new: what each turn of a session adds to the prompt, in tokens; None for a recording.
        recording: traffic whose prompts name their blocks; None for sessions.
        recorded: sessions from a file, which are held at once; None for drawn ones.
        tiers: memory below the KV cache of an instance.
        fleet_rate: requests per second of the whole fleet, where an instance gets a part of each
            conversation of it.
    """

    sessions: Sessions | None = None
    new: Lengths | None = None
    recording: Recording | None = None
    recorded: RecordedSessions | None = None
    tiers: KvTiers = OFF
    fleet_rate: float = 0.0

    @property
    def follows(self) -> bool:
        """Whether requests follow one another, as the turns of a conversation do."""
        return self.recorded is not None or (self.sessions is not None and not self.sessions.single)

    def balanced(self, router: str) -> bool:
        """Whether a router gives requests out by the load of the instances, wherever what they
        share was computed.
        """
        return router not in (*AFFINE, *BLIND)

    def common_tokens(self, trace: Trace) -> NDArray[np.int64]:
        """Tokens of each prompt that every instance holds once it is warm: those of a prefix that
        single requests share.
        """
        import numpy as np

        if self.sessions is None or not self.sessions.single or trace.contents is None:
            return np.zeros(len(trace), np.int64)
        return np.where(np.diff(trace.contents.starts) > 1, self.sessions.prefix_tokens, 0)

    def best(self, osl: Lengths) -> AtBest:
        """How long prompts are, and what of them a cache without end would leave to compute."""
        if self.recorded is not None:
            return _of_recorded(self.recorded)
        if self.recording is not None:
            return _of_recording(self.recording.blocks, self.recording.isl)
        if self.sessions is None or self.new is None:
            raise ValueError("sharing: neither sessions nor a recording")
        return _of_sessions(self.sessions, self.new, osl)

    def scaled(self, factor: float) -> Sharing:
        """With every part of a prompt ``factor`` times as long; answers stay as they are."""
        if self.sessions is None or self.new is None:
            return self
        sessions = self.sessions
        tools = None if sessions.tool_tokens is None else sessions.tool_tokens.scaled(factor)
        longer = replace(
            sessions, prefix_tokens=round(sessions.prefix_tokens * factor), tool_tokens=tools
        )
        return replace(self, new=self.new.scaled(factor), sessions=longer)

    def kept(self, seconds: float) -> float:
        """Share of the pauses within sessions that are no longer than that: what further turns then
        find is still there.
        """
        sessions = self.sessions
        if self.recorded is not None:
            pauses = self.recorded.pause_ns[self.recorded.pause_ns >= 0]
            return float((pauses <= seconds * 1e9).mean()) if len(pauses) else 1.0
        if sessions is None or sessions.single:
            return 1.0
        calls = sessions.tool_calls / (1 + sessions.tool_calls)
        return (1 - calls) * sessions.think.within(seconds) + calls * sessions.tool.within(seconds)

    def block_tokens(self, engine_block: int, computed: float) -> int:
        """Tokens of a KV block in simulations: the engine's own times the largest power of two that
        hardly changes what is found.

        Of a session that goes on, half a block is computed again on average; of a shared prefix or
        a recorded prompt, what fills no block.
        """
        block = engine_block
        if self.recorded is not None:
            longest = self.recorded.block_tokens or RECORDED_SESSIONS
            while 2 * block <= longest:
                block *= 2
            return block
        while (
            2 * block <= MOST_BLOCK
            and self._lost(2 * block) - self._lost(engine_block) <= LOST * computed
        ):
            block *= 2
        return block

    def shorter(self, engine_block: int, block: int) -> Sharing:
        """With questions as much shorter as larger blocks make prompts that have to be computed
        longer.
        """
        lost = self._lost(block) - self._lost(engine_block)
        if self.new is None or lost <= 0 or self.new.mean <= 2 * lost:
            return self
        return replace(self, new=self.new.longer(-lost))

    def _lost(self, block: int) -> float:
        """Tokens of a prompt that could be found and fill no block, on average."""
        if self.recording is not None:
            return 0.0 if RECORDED % block == 0 else float(block)
        if self.sessions is None or self.sessions.single:
            return (
                float(0 if self.sessions is None else self.sessions.prefix_tokens % block)
                * (self.sessions or Sessions()).prefix_share
            )
        return block / 2


class AtBest(NamedTuple):
    """Prompts, and what a cache without end would do for them.

    Attributes:
        isl: lengths of whole prompts, in tokens.
        computed: tokens of a prompt that have to be computed, on average.
        common: tokens of a prompt whose blocks all running requests hold together, on average.
    """

    isl: Lengths
    computed: float
    common: float


@lru_cache(maxsize=64)
def _of_sessions(sessions: Sessions, new: Lengths, osl: Lengths) -> AtBest:
    import numpy as np

    common = sessions.prefix_tokens * sessions.prefix_share
    if sessions.single and sessions.prefix_share == 1:
        longer = replace(new.longer(sessions.prefix_tokens), written="")
        return AtBest(isl=longer, computed=new.mean, common=common)
    streams = [np.random.default_rng(stem) for stem in np.random.SeedSequence(0).spawn(7)]
    drawn = draw(sessions, SAMPLED, new, osl, streams)
    first = drawn.pause_ps < 0
    cached = np.where(
        first,
        np.where(drawn.prefix >= 0, sessions.prefix_tokens, 0),
        np.roll(drawn.isl + drawn.osl, 1),
    )
    groups = [float(group.mean()) for group in np.array_split(np.sort(drawn.isl), GROUPS)]
    longest = float(max(sessions.longest(new, osl) - osl.longest, int(drawn.isl.max())))
    bins = (*((tokens, 1 / GROUPS) for tokens in groups), (longest, 1e-12))
    isl = Lengths(
        kind="histogram", mean=float(drawn.isl.mean()), std=float(drawn.isl.std()), bins=bins
    )
    return AtBest(
        isl=isl,
        computed=float((drawn.isl - cached).mean()),
        common=common if sessions.single else 0.0,
    )


@lru_cache(maxsize=8)
def _of_recorded(recorded: RecordedSessions) -> AtBest:
    isl = recorded.recording.pairs()
    if isl is None:
        raise ValueError("sharing: sessions without lengths")
    return AtBest(
        isl=isl.lengths()[0],
        computed=float((recorded.isl - recorded.found_tokens()).mean()),
        common=0.0,
    )


@lru_cache(maxsize=8)
def _of_recording(blocks: tuple[tuple[int, ...], ...], isl: tuple[int, ...]) -> AtBest:
    """The sharing of a recording, from the blocks that an earlier prompt had at the same place
    behind the same blocks.
    """
    pairs = Recording(due_ns=(0,) * len(isl), isl=isl, osl=(1,) * len(isl), blocks=blocks).pairs()
    if pairs is None:
        raise ValueError("sharing: a recording without lengths")
    return AtBest(
        isl=pairs.lengths()[0],
        computed=sum(isl) / len(isl) - found_tokens(blocks, isl) / len(isl),
        common=0.0,
    )


def found_tokens(blocks: tuple[tuple[int, ...], ...], isl: tuple[int, ...]) -> float:
    """Prompt tokens of a recording that a cache without end would find, in all."""
    tree: dict[tuple[int, int], int] = {}
    total = 0.0
    for ids, tokens in zip(blocks, isl, strict=True):
        prefix, matched = -1, 0
        for identifier in ids:
            matched += (prefix, identifier) in tree  # behind the first that is not, none is
            prefix = tree.setdefault((prefix, identifier), len(tree))
        total += tokens * matched / max(len(ids), 1)
    return total


Load = Literal["open", "closed"]

TP_DEGREES = (1, 2, 4, 8)

PP_DEGREES = (1, 2, 4, 8, 16)

MOVES = ("tokens", "batch", "chunk", "front_ends")
"""The engine's knobs, in the order in which they are searched."""

DECIDING: dict[Mode, tuple[LimitMetric, ...]] = {
    "streaming": (*METRICS, *LIMITED),
    "sequential": ("e2e",),
    "offline": (),
}
"""Metrics whose limits count. Who reads along waits for the first token and the pace; who takes the
whole answer waits for its end; of a job only the throughput counts. Source: NVIDIA course "Sizing
LLM Inference Systems"."""


def decides(limit: Limit, mode: Mode) -> bool:
    """Whether a limit counts in a mode; joint attainment, where all of its limits do."""
    return all(metric in DECIDING[mode] for metric in dict(limit.parts) or (limit.metric,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Systems that exist already."""

    count: int
    system: System


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Prefill and decode in their own pools.

    Attributes:
        link_bytes_s: bytes per second that a GPU sends to one of the other pool; None for NVLink
            where one system holds both pools, else a port of 400 Gb/s for each GPU.
        overlap: whether a layer's KV cache is sent as soon as it is computed.
    """

    link_bytes_s: float | None = None
    overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One sizing question.

    Attributes:
        model: the served model.
        gpus: what it may be served on.
        precisions, tps, engines: what may be combined; every combination is tried.
        isl, osl: lengths in tokens.
        demand: requests per second at the peak, and how that came about.
        slo: latency limits; all must hold.
        load: "open" sends on a schedule and decides by default; "closed" keeps a number of
            clients busy, as benchmarks do.
        process, cv: arrival process of an open loop.
        spare: systems to add on top of what the load needs (1 for N+1).
        confidence: with which the number of systems is to meet the limits, as a share.
        seed: of every random draw.
        pps: pipeline-parallel degrees; empty to try more than 1 only where no tensor-parallel
            degree fits, and then the least that does.
        dps, eps: ranks of attention and groups of experts of a mixture of experts; empty for what
            ``search_space.splits_of`` tries.
        mode: which limits count; see ``DECIDING``.
        pairs: lengths drawn together; ``isl`` and ``osl`` are then their distributions.
        recording: traffic to replay instead of drawn arrivals; a deployment then carries what it
            shows to.
        replays_lengths: whether the recording's own lengths come with it; otherwise they are drawn.
        max_batch_sizes, max_num_tokens, chunked_prefill: knobs that the asker set; empty or None
            leaves them to the engine and to ``tune``.
        stream_interval, front_ends: tokens of a message, and front ends of an instance, likewise;
            the search moves the latter alone.
        shares: of the memory, by the rule of the engines that have each as a setting; empty for the
            engines' own.
        max_model_len: context that engines are started with, which ``model`` has as well; None for
            that of the longest request.
        systems: servers to buy in, at most one of each GPU; those of the catalog where none is
            named.
        have: systems that exist; what they carry is then the question. Empty to ask how many are
            needed.
        addable: GPUs whose systems may be added to what exists, by name.
        growth_per_month: of the load, as a share; None where it is not given.
        remarks: assumptions that the asker did not write, for the plan's notes.
        tune: whether the engine's knobs are searched for the best few deployments.
        deepen: whether the plan also holds the curve, the explanation, the sensitivity and the
            fleet check.
        step_factor: every engine step takes this many times as long as the step model says.
        calibration: factors on the fitted terms from the user's measurements; None for the terms as
            shipped.
        speculation: speculative decoding that is tried as well; None to try none.
        adapters: LoRA adapters that requests use; None without.
        images: of every prompt; None without.
        step_source: whose step times price the candidates; None for the fitted terms.
        router: what gives requests to the instances, a name of ``simulator.router``.
        sharing: what prompts share; ``isl`` is then the length of whole prompts. None where they
            share nothing.
        prefix_caching: whether engines keep the KV blocks of earlier prompts; None leaves it to the
            engine.
        objective: what the choice has least of; the search itself tells the fewest GPUs from the
            shortest answers.
        deploy_on: deployment target that runs the choice; empty for any.
        pools: how two pools are to be, where prefill and decode have one each; None where every
            instance does both.
        regions: names and hourly requests per second of regions whose hours make the demand's
            profile; empty where nothing is known of any.
        session_tiers: whether the plan has a table of recorded sessions at other limits.
    """

    model: Model
    gpus: tuple[Gpu, ...]
    precisions: tuple[Precision, ...]
    tps: tuple[int, ...]
    engines: tuple[str, ...]
    isl: Lengths
    osl: Lengths
    demand: Demand
    slo: Slo
    load: Load = "open"
    process: Process = "poisson"
    cv: float = 1.0
    spare: int = 0
    confidence: float = CONFIDENCE
    seed: int = 0
    pps: tuple[int, ...] = ()
    dps: tuple[int, ...] = ()
    eps: tuple[int, ...] = ()
    mode: Mode = "streaming"
    pairs: Pairs | None = None
    recording: Recording | None = None
    replays_lengths: bool = True
    max_batch_sizes: tuple[int, ...] = ()
    max_num_tokens: tuple[int, ...] = ()
    chunked_prefill: bool | None = None
    stream_interval: int | None = None
    front_ends: int | None = None
    shares: tuple[tuple[KvRule, float], ...] = ()
    max_model_len: int | None = None
    systems: tuple[System, ...] = ()
    have: tuple[Owned, ...] = ()
    addable: tuple[str, ...] = ()
    growth_per_month: float | None = None
    remarks: tuple[Note, ...] = ()
    tune: bool = True
    deepen: bool = True
    step_factor: float = 1.0
    calibration: Calibration | None = None
    speculation: Speculation | None = None
    adapters: Adapters | None = None
    images: Images | None = None
    step_source: StepSource | None = None
    router: str = DEFAULT_ROUTER
    sharing: Sharing | None = None
    prefix_caching: bool | None = None
    objective: Objective = "gpus"
    deploy_on: str = ""
    pools: Pools | None = None
    regions: tuple[tuple[str, tuple[float, ...]], ...] = ()
    session_tiers: bool = False

    @property
    def limits(self) -> Slo:
        """The limits that count in this mode."""
        return tuple(limit for limit in self.slo if decides(limit, self.mode))

    @property
    def free_moves(self) -> tuple[str, ...]:
        """The knobs that the asker did not set; of two pools none is searched."""
        if self.pools is not None:
            return ()
        fixed = {
            "tokens": bool(self.max_num_tokens),
            "batch": bool(self.max_batch_sizes),
            "chunk": self.chunked_prefill is not None,
            "front_ends": self.front_ends is not None,
        }
        return tuple(move for move in MOVES if not fixed[move])

    @property
    def offline(self) -> bool:
        """Whether a number of requests is to be done within a time, all queued from the start."""
        return self.demand.offline_requests is not None

    @property
    def drawn(self) -> bool:
        """Whether requests come as a drawn stream: no job, no closed loop, no replayed trace."""
        return self.load == "open" and not self.offline and self.recording is None

    def sharing_behind(self, router: str) -> Sharing | None:
        """What prompts share, with the load of the whole fleet where a router gives an instance a
        part of each conversation.
        """
        if self.sharing is None or not self.sharing.follows or router in AFFINE:
            return self.sharing
        return replace(self.sharing, fleet_rate=self.demand.sizing_requests_per_second)

    def check(self) -> None:
        """Refuse what no candidate could answer. Raises InputError: the lengths exceed the model's
        context, or a list is empty.
        """
        check_context(self.model, self.isl, self.osl, self.pairs)
        for name, values in (
            (option("gpu"), self.gpus),
            (option("precision"), self.precisions),
            (option("tp"), self.tps),
            (option("engine"), self.engines),
        ):
            if not values:
                raise InputError(f"{name}: nothing given; name at least one")
        if self.spare < 0:
            raise InputError(
                f"{option('spare')}: {self.spare} is negative; write how many systems to add, 0 or"
                " more"
            )
        for tp in self.tps:
            if tp not in TP_DEGREES:
                raise InputError(
                    f"{option('tp')}: {tp} is not a degree that divides an 8-GPU system; choose"
                    f" from {', '.join(map(str, TP_DEGREES))}, or {option('pp')} 2 or more for an"
                    " instance of several systems"
                )
        for pp in self.pps:
            if pp not in PP_DEGREES:
                raise InputError(
                    f"{option('pp')}: {pp} is not a number of pipeline stages; choose from"
                    f" {', '.join(map(str, PP_DEGREES))}"
                )
        if not (math.isfinite(self.step_factor) and self.step_factor > 0):
            raise InputError(
                f"{option('step_factor')}: {self.step_factor:g} is not a factor; write a number"
                " above 0, 1 for the model as it is"
            )
