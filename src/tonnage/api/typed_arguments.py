"""The keyword arguments of ``tonnage.size``: one for each leaf of a scenario, with the same name, kind and words.

Written by ``python -m tools.typed_arguments`` from ``spec/scenario.py``; change the leaf there and run it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from tonnage.spec.scenario import Mode, UseCase

Length = float | str | None
Text = str | None
Number = float | None
Texts = str | Iterable[str] | None
Counts = int | str | Iterable[int] | None


class ScenarioArguments(TypedDict, total=False):
    """The whole question; None leaves a part to its default."""

    title: Text
    """What this is about, in a few words."""
    model: Texts
    """Catalog id (see tonnage catalog) or path of a Hugging Face config.json; several with commas to compare."""
    mode: Mode | None
    """streaming: TTFT decides; sequential: E2E decides; offline: only throughput."""
    use_case: UseCase | None
    """Sets stated defaults: chatbot, summarization, rag, data-generation or offline."""
    where: Texts
    """on-prem, cloud, hybrid or api, with commas between: what to compare the cost of."""
    have: Text
    """Systems that exist, such as 3xdgx-h100: what they carry instead of how many are needed."""
    growth: Length
    """Growth of the load, such as 5%/month or 60%/year."""
    spare: int | None
    """Systems on top of what the load needs; 1 for N+1."""
    prices: str | Path | dict[str, Any] | None
    """Prices in place of the catalog's, or the YAML file that holds them."""
    benchmarks: str | Path | None
    """CSV or JSON of measured points (columns as in docs/size.md, or GenAI-Perf's own)."""
    seed: int | None
    """Of every random draw (default: 0)."""


class LengthsArguments(TypedDict, total=False):
    """How long prompts and outputs are."""

    isl: Length
    """Prompt length in tokens, or words (3500words): 2000, 2000+-500, lognormal:2000,500, uniform:1600-2000, histogram:100:0.2,500:0.8
    or a .csv with value,weight.
    """
    osl: Length
    """Output length, in the same forms."""
    pairs: str | Path | None
    """CSV with the columns isl,osl: lengths drawn together, instead of isl and osl apart."""
    system_prompt: Length
    """Tokens (or words) of the system prompt, added to every prompt."""
    retrieved: Length
    """Retrieved passages added to every prompt, such as 5x400."""
    history: Length
    """Earlier turns of the chat added to every prompt, such as 3x700."""
    words_per_token: Number
    """Words of one token (default: 0.75, English)."""


class DemandArguments(TypedDict, total=False):
    """How many requests there are."""

    peak_rps: Number
    """Requests per second at the peak."""
    mean_rps: Number
    """Mean requests per second of Poisson traffic, instead of a peak; also scales a profile or a trace."""
    peak_percentile: Number
    """With a mean: percentile of the arrivals in one second that the course's way sizes for."""
    peak_factor: Number
    """With a mean: how many times the mean the peak is, instead of a percentile."""
    users: Number
    """People who send requests."""
    requests_per_user_day: Number
    """Requests of each of them a working day."""
    working_hours: Number
    """Hours a day over which they come (default: 8)."""
    working_days: Number
    """Days a week on which they come (default: 5)."""
    calls_per_year: Number
    """Calls, or other business cases, a year."""
    requests_per_call: Number
    """Requests to the model that one of them makes (default: 1)."""
    profile: str | Path | Iterable[float] | None
    """24 or 168 hourly loads (a .csv, or values): requests/s, or shares beside a mean or a peak."""
    trace: str | Path | None
    """File of recorded requests (Azure's or Mooncake's format, or timestamp,isl,osl): replayed, bursts and all."""
    requests: Number
    """Requests of an offline job."""
    within: Text
    """Time for an offline job, such as 8h."""


class LimitsArguments(TypedDict, total=False):
    """What must hold: a statistic (mean, p50, p90, p95, p99) of a latency, one or several each."""

    ttft: Texts
    """Limit on the time to first token, such as "p95<=500ms"; mean, p50, p90, p95 or p99; repeatable."""
    itl: Texts
    """Limit on single gaps between tokens, such as "p99<=100ms"; repeatable."""
    tpot: Texts
    """Limit on the mean time per output token of a request; repeatable."""
    e2e: Texts
    """Limit on the time to the last token; repeatable."""


class SearchArguments(TypedDict, total=False):
    """What may be combined; every combination is tried."""

    gpu: Texts
    """GPUs to try, with commas between (default: h100-sxm-80gb,h200-sxm-141gb,a100-sxm-80gb,l40s)."""
    precision: Texts
    """fp16, bf16, fp8, int8-sq, int8-wo, int4-wo, awq, gptq, w4a8, nvfp4, mxfp4, with commas between, or all; each with +kv-fp16,
    +kv-fp8, +kv-int8 or +2:4 behind it, too (default: fp16,fp8).
    """
    tp: Counts
    """Tensor-parallel degrees, with commas between (default: 1,2,4,8)."""
    pp: Counts
    """Pipeline-parallel degrees, with commas between (default: 1, and more where a model needs it)."""
    dp: Counts
    """Attention ranks of a mixture of experts, with commas between (default: 1, with latent attention also one per GPU)."""
    ep: Counts
    """Groups that experts are spread over, with commas between (default: 1, and one per GPU)."""
    engine: Texts
    """tensorrt-llm, vllm, sglang, nim-2024, with commas between (default: tensorrt-llm,vllm)."""
    max_batch_size: Counts
    """Sequences that run at once, to try (default: the engine's own)."""
    max_num_tokens: Counts
    """Token budgets of one step, to try (default: the engine's own)."""
    chunked_prefill: bool | None
    """Whether a prompt may be split over several steps (default: the engine's own)."""
    stream_interval: int | None
    """Output tokens that a client gets in one message (default: the engine's own, 1)."""
    speculation: Text
    """Speculative decoding to try beside none: draft=MODEL, eagle, mtp, medusa, redrafter or ngram, such as "eagle k=3 acceptance=0.7"."""
    load: Literal["open", "closed"] | None
    """open: requests arrive on a schedule (default); closed: clients keep busy, as in benchmarks."""
    arrivals: Literal["poisson", "constant", "gamma"] | None
    """Process of the open loop (default: poisson)."""
    cv: Number
    """Standard deviation of the gaps over their mean, for gamma arrivals."""
    coefficients: str | Path | None
    """File that tonnage calibrate wrote: predictions use its factors on the shipped terms."""
    step_model: Text
    """Whose step times: fitted (default), aiconfigurator, or a .csv of your own (docs/step-models.md)."""


class SizeArguments(ScenarioArguments, LengthsArguments, DemandArguments, LimitsArguments, SearchArguments, total=False):
    """Everything that ``tonnage.size`` takes by name."""

    price: Iterable[str] | None
    """Single prices in place of the catalog's, such as ``["systems.dgx-h100=250000"]``."""
