"""The keyword arguments of ``tonnage.size`` and ``tonnage.simulate``; ``spec/scenario.py`` says
what each of them means.

Written by ``python -m tools.typed_arguments`` from the leaves there; change a leaf and run it
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from tonnage.spec.scenario import Mode, Objective, UseCase

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | Iterable[str] | None
Counts = int | str | Iterable[int] | None
One = int | str | None


class SharedArguments(TypedDict, total=False):
    """What both take."""

    isl: Length
    osl: Length
    pairs: str | Path | None
    mixture: Text
    system_prompt: Length
    retrieved: Length
    history: Length
    images: Text
    words_per_token: Number
    spread: Text
    shared_prefix: Length
    shared_prefix_share: Number
    shared_prefixes: int | None
    turns: Length
    think_time: Text
    tool_calls: int | None
    tool_delay: Text
    tool_tokens: Length
    longest_pause: Text
    profile: str | Path | Iterable[float] | None
    trace: str | Path | None
    ttft: Texts
    tpot: Texts
    e2e: Texts
    use_case: UseCase | None
    max_model_len: int | None
    gpu_memory_utilization: Number
    mem_fraction_static: Number
    free_gpu_memory_fraction: Number
    chunked_prefill: bool | None
    prefix_caching: bool | None
    kv_tiers: Text
    long_prefill_token_threshold: int | None
    queue_order: Literal["fcfs", "shortest-first", "priority", "deadline"] | None
    shed: bool | None
    disaggregated: bool | str | None
    kv_link: Text
    kv_overlap: bool | None
    stream_interval: int | None
    front_ends: int | None
    speculation: Text
    lora: Text
    arrivals: Literal["poisson", "constant", "gamma", "mmpp", "trace", "profile"] | None
    mmpp: Text
    cv: Number
    router: Text
    power_cap: Text
    gpu_clock: Number
    link: Text
    host_speed: float | str | None
    coefficients: str | Path | None
    step_model: Text
    seed: int | None


class SizeArguments(SharedArguments, total=False):
    """Everything that ``tonnage.size`` takes by name."""

    title: Text
    model: Texts
    layout: Text
    session_tiers: bool | None
    peak_rps: Number
    mean_rps: Number
    peak_percentile: Number
    peak_factor: Number
    users: Number
    requests_per_user_day: Number
    working_hours: Number
    working_days: Number
    calls_per_year: Number
    requests_per_call: Number
    trace_unit: Literal["s", "ms", "us", "ns"] | None
    sessions: Number
    sessions_per_hour: Number
    engineers: Number
    share_active: Number
    concurrency: Number
    requests: Number
    within: Text
    itl: Texts
    first_ttft: Texts
    further_ttft: Texts
    slowdown: Texts
    attain: Texts
    mode: Mode | None
    where: Texts
    have: Text
    mix: bool | None
    growth: Length
    priority: int | None
    spare: int | None
    objective: Objective | None
    budget: Text
    max_kw: Number
    max_racks: int | None
    rack_kw: Number
    availability: Length
    mtbf: Text
    repair_time: Text
    repairers: int | None
    failing: Literal["system", "instance"] | None
    spare_instances: int | None
    autoscale: bool | None
    broken_hours: Length
    start_time: Text
    horizon: Text
    price_decay: Length
    lead_time: Text
    confidence: Length
    prices: str | Path | dict[str, Any] | None
    benchmarks: str | Path | None
    include_invalid: bool | None
    allow_errors: bool | None
    gpu: Texts
    system: Texts
    precision: Texts
    tp: Counts
    pp: Counts
    dp: Counts
    ep: Counts
    engine: Texts
    max_batch_size: Counts
    max_num_tokens: Counts
    classes: Texts
    load: Literal["open", "closed"] | None
    deploy_on: Text
    price: Iterable[str] | None


class SimulateArguments(SharedArguments, total=False):
    """Everything that ``tonnage.simulate`` takes by name."""

    model: Text
    attain: Text
    gpu: Text
    precision: Text
    tp: One
    pp: One
    dp: One
    ep: One
    engine: Text
    max_batch_size: One
    max_num_tokens: One
    classes: Text
    concurrency: Counts
    request_rate: str | float | Iterable[float] | None
    requests: int | None
    window: Text
    batcher: Literal["static", "in-flight", "one-prefill", "max-utilization"] | None
    receive_interval: int | None
    batch_wait_steps: int | None
    batch_wait_ratio: Number
    overlap_schedule: bool | None
    graph_tokens: int | None
    instances: int | str | None
    fail: Text
    autoscale: Text
    seasons: Text
