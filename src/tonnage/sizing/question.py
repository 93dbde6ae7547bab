"""What a sizing is asked: the scenario, validated, before anything is simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tonnage.errors import InputError, option
from tonnage.plan.candidate import CONFIDENCE
from tonnage.plan.demand import Demand
from tonnage.plan.note import Note
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.sizing.sharing import Sharing
from tonnage.spec.calibration import Calibration
from tonnage.spec.deployment import LimitMetric, Slo, Speculation
from tonnage.spec.hardware import Gpu, System
from tonnage.spec.lengths import Lengths, Pairs
from tonnage.spec.model import Model
from tonnage.spec.precision import Precision
from tonnage.spec.recording import Recording
from tonnage.spec.scenario import Mode, Objective
from tonnage.spec.step_times import StepSource
from tonnage.spec.workload import Process

Load = Literal["open", "closed"]

TP_DEGREES = (1, 2, 4, 8)

PP_DEGREES = (1, 2, 4, 8, 16)

MOVES = ("tokens", "batch", "chunk")
"""The engine's knobs, in the order in which they are searched."""

DECIDING: dict[Mode, tuple[LimitMetric, ...]] = {"streaming": ("ttft", "itl", "tpot", "e2e"), "sequential": ("e2e",), "offline": ()}
"""Metrics whose limits count. Who reads along waits for the first token and the pace; who takes the whole answer waits for its
end; of a job only the throughput counts. Source: NVIDIA course "Sizing LLM Inference Systems"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Systems that exist already."""

    count: int
    system: System


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Prefill and decode in pools of their own.

    Attributes:
        link_bytes_s: bytes per second that a GPU sends to one of the other pool; None for NVLink where one system holds both pools, else a
            port of 400 Gb/s for each GPU.
        overlap: whether a layer's KV cache is sent as soon as it is computed.
    """

    link_bytes_s: float | None = None
    overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One sizing question.

    Attributes:
        model: what is served.
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
        pps: pipeline-parallel degrees; empty to try more than 1 only where no tensor-parallel degree fits, and
            then the least that does.
        dps, eps: ranks of attention and groups of experts of a mixture of experts; empty for what ``trials.splits_of`` tries.
        mode: which limits count; see ``DECIDING``.
        pairs: lengths drawn together; ``isl`` and ``osl`` are then their distributions.
        recording: traffic to replay instead of drawn arrivals; a deployment then carries what it shows to.
        replays_lengths: whether the recording's own lengths come with it; otherwise they are drawn.
        max_batch_sizes, max_num_tokens, chunked_prefill: knobs that the asker set; empty or None leaves them to the
            engine and to ``tune``.
        stream_interval, front_ends: tokens of a message, and front ends of an instance, likewise; no search moves them.
        systems: servers to buy in, at most one of each GPU; those of the catalog where none is named.
        have: systems that exist; what they carry is then the question. Empty to ask how many are needed.
        growth_per_month: of the load, as a share; None where it is not said.
        remarks: what was understood that the asker did not write, for the plan's notes.
        tune: whether the engine's knobs are searched for the best few deployments.
        deepen: whether the plan also holds the curve, the explanation, the sensitivity and the fleet check.
        step_factor: every engine step takes this many times as long as the step model says.
        calibration: factors on the fitted terms from measurements of one's own; None for the terms as shipped.
        speculation: speculative decoding that is tried beside none; None to try none.
        step_source: whose step times price the candidates; None for the fitted terms.
        router: what gives requests to the instances, a name of ``simulator.router``.
        sharing: what prompts share; ``isl`` is then the length of whole prompts. None where they share nothing.
        prefix_caching: whether engines keep the KV blocks of earlier prompts; None leaves it to the engine.
        objective: what the choice has least of; the search itself tells the fewest GPUs from the shortest answers.
        pools: how two pools are to be, where prefill and decode have one each; None where every instance does both.
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
    systems: tuple[System, ...] = ()
    have: tuple[Owned, ...] = ()
    growth_per_month: float | None = None
    remarks: tuple[Note, ...] = ()
    tune: bool = True
    deepen: bool = True
    step_factor: float = 1.0
    calibration: Calibration | None = None
    speculation: Speculation | None = None
    step_source: StepSource | None = None
    router: str = DEFAULT_ROUTER
    sharing: Sharing | None = None
    prefix_caching: bool | None = None
    objective: Objective = "gpus"
    pools: Pools | None = None

    @property
    def limits(self) -> Slo:
        """The limits that count in this mode."""
        return tuple(limit for limit in self.slo if limit.metric in DECIDING[self.mode])

    @property
    def free_moves(self) -> tuple[str, ...]:
        """The knobs that the asker did not set; of two pools none is searched."""
        if self.pools is not None:
            return ()
        given = {"tokens": bool(self.max_num_tokens), "batch": bool(self.max_batch_sizes), "chunk": self.chunked_prefill is not None}
        return tuple(move for move in MOVES if not given[move])

    @property
    def offline(self) -> bool:
        """Whether a number of requests is to be done within a time, all queued from the start."""
        return self.demand.offline_requests is not None

    def check(self) -> None:
        """Refuse what no candidate could answer.

        Raises:
            InputError: the lengths exceed the model's context, or a list is empty.
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
            raise InputError(f"{option('spare')}: {self.spare} is negative; write how many systems to add, 0 or more")
        for tp in self.tps:
            if tp not in TP_DEGREES:
                raise InputError(
                    f"{option('tp')}: {tp} is not a degree that divides an 8-GPU system; choose from {', '.join(map(str, TP_DEGREES))}, "
                    f"or {option('pp')} 2 or more for an instance of several systems"
                )
        for pp in self.pps:
            if pp not in PP_DEGREES:
                raise InputError(f"{option('pp')}: {pp} is not a number of pipeline stages; choose from {', '.join(map(str, PP_DEGREES))}")
        if not (math.isfinite(self.step_factor) and self.step_factor > 0):
            raise InputError(
                f"{option('step_factor')}: {self.step_factor:g} is not a factor; write a number above 0, 1 for the model as it is"
            )


def check_context(model: Model, isl: Lengths, osl: Lengths, pairs: Pairs | None = None) -> None:
    """Refuse lengths whose longest request exceeds the model's context.

    Raises:
        InputError: with the longest request, and what share of a file's requests is too long.
    """
    most = model.max_context
    if pairs is not None:
        if pairs.longest > most:
            over = sum(i + o > most for i, o in zip(pairs.isl, pairs.osl, strict=True))
            raise InputError(
                f"{pairs.source}: {over:,} of {len(pairs.isl):,} requests exceed the context of {model.name}, {most:,} tokens, the "
                f"longest with {pairs.longest:,}; take them out or choose a model with a longer context"
            )
        return
    longest = isl.longest + osl.longest
    if longest <= most:
        return
    mean = isl.mean + osl.mean
    at_most = "" if round(mean) == longest else f"{mean:,.0f} tokens on average and up to "
    raise InputError(
        f"{option('isl')} {isl} + {option('osl')} {osl} = {at_most}{longest:,} tokens exceed the context of {model.name}, {most:,} tokens; "
        "shorten them or choose a model with a longer context"
    )
