"""A use case fills in mode, lengths and limits where the asker says only what the traffic is for.

Reading speed is about 250 words a minute, or 200 ms a token; fast readers take 90 ms a token. Lengths and
limits follow NVIDIA's course "Sizing LLM Inference Systems" and its blog posts on benchmarking (2024): whoever
reads along needs 250 ms a token in the 99th percentile, data generation 35 ms. They are starting points,
stated in every plan that uses them.

The four patterns of short and long prompts and outputs set lengths and mode and no limits: 128 and 2,048 tokens, the lengths
at which NVIDIA publishes the throughput of TensorRT-LLM (docs/performance/perf-overview.md of its releases 0.14 and 0.15, 2024).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from tonnage.errors import InputError
from tonnage.spec.deployment import METRICS, Limit, LimitMetric, Slo, parse_limit
from tonnage.spec.lengths import MAX_TOKENS, Pairs
from tonnage.spec.scenario import LimitsAsked, Mode, Scenario, UseCase
from tonnage.spec.written_numbers import number_of

READING_S = 0.200
"""Seconds a token of a usual reader."""

READING_P99_S = 0.250
"""Seconds a token that readers accept in the 99th percentile."""

FAST_READING_S = 0.090
"""Seconds a token of a fast reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Defaults of one use case; what the asker says stands in their place."""

    mode: Mode
    isl: str
    osl: str
    limits: LimitsAsked


READING = "p99<=250ms"
PIECES = 1_000
"""Pairs that a mixture is made of: shares are exact to a thousandth."""
MIXTURE = '"short-in-short-out 0.7, 4000/300 0.3"'
_PART = re.compile(r"^\s*(?:([a-z-]+)|(\d{1,8})\s*/\s*(\d{1,8}))\s+((?:\d+\.?\d*|\.\d+)\s*%?)\s*$")
SHORT, LONG = "128", "2048"

PRESETS: dict[UseCase, Preset] = {
    "chatbot": Preset(mode="streaming", isl="500", osl="200", limits=LimitsAsked(ttft="p95<=1s", itl=READING)),
    "summarization": Preset(mode="streaming", isl="3000", osl="300", limits=LimitsAsked(ttft="p95<=3s", itl=READING)),
    "rag": Preset(mode="streaming", isl="3500", osl="500", limits=LimitsAsked(ttft="p95<=2s", itl=READING)),
    "data-generation": Preset(mode="streaming", isl="300", osl="1500", limits=LimitsAsked(itl="p99<=35ms")),
    "offline": Preset(mode="offline", isl="1000", osl="300", limits=LimitsAsked()),
    "short-in-short-out": Preset(mode="streaming", isl=SHORT, osl=SHORT, limits=LimitsAsked()),
    "short-in-long-out": Preset(mode="streaming", isl=SHORT, osl=LONG, limits=LimitsAsked()),
    "long-in-short-out": Preset(mode="streaming", isl=LONG, osl=SHORT, limits=LimitsAsked()),
    "long-in-long-out": Preset(mode="streaming", isl=LONG, osl=LONG, limits=LimitsAsked()),
}


def mixture_of(text: str, where: str) -> Pairs:
    """Read "short-in-short-out 0.7, 4000/300 30%": use cases or pairs of lengths (ISL/OSL, in tokens), each with its share.

    Raises:
        InputError: another form, or shares that do not sum to 1.
    """
    parts = []
    for part in text.split(","):
        match = _PART.match(part)
        named = None if match is None else next((one for name, one in PRESETS.items() if name == match[1]), None)
        lengths = ("", "") if match is None else (match[2], match[3]) if named is None else (named.isl, named.osl)
        if match is None or not all(each and 1 <= int(each) <= MAX_TOKENS for each in lengths):
            raise InputError(f"{where}: '{part.strip()}' is no kind of length with its share; write such as {MIXTURE}")
        parts.append((int(lengths[0]), int(lengths[1]), number_of(match[4], "share") or 0.0))
    total = sum(share for _, _, share in parts)
    if abs(total - 1) > 1e-6 or min(share for _, _, share in parts) <= 0:
        raise InputError(f"{where}: the shares of '{text}' sum to {total:g}; write shares above 0 that sum to 1, such as {MIXTURE}")
    ends = [round(PIECES * sum(share for _, _, share in parts[: place + 1]) / total) for place in range(len(parts))]
    counts = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    isl = tuple(isl for (isl, _, _), count in zip(parts, counts, strict=True) for _ in range(count))
    osl = tuple(osl for (_, osl, _), count in zip(parts, counts, strict=True) for _ in range(count))
    return Pairs(isl=isl, osl=osl, source="mixture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a use case set because the asker did not; what it left alone is None or empty."""

    use_case: UseCase
    mode: Mode | None
    isl: str
    osl: str
    limits: Slo


def with_defaults(scenario: Scenario) -> tuple[Scenario, Defaults | None]:
    """The scenario with what its use case sets, and what that was; None where it sets nothing.

    Lengths stand where neither lengths, pairs nor a trace are given (the prompt's not where its parts are); a limit
    stands where its metric has none.
    Where another mode was asked for, only limits that count in it stand: the use case's own are left out.
    """
    if scenario.use_case is None:
        return scenario, None
    preset = PRESETS[scenario.use_case]
    mode = preset.mode if scenario.mode is None else scenario.mode
    lengths = scenario.lengths
    lengths_set: dict[str, str] = {}
    parts = any(getattr(lengths, part) is not None for part in ("system_prompt", "retrieved", "history"))
    if (
        lengths.pairs is None
        and lengths.mixture is None
        and (scenario.demand.trace is None or lengths.isl is not None or lengths.osl is not None)
    ):
        for name in ("isl", "osl"):
            if getattr(lengths, name) is None and not (name == "isl" and parts):
                lengths_set[name] = getattr(preset, name)
    limits_set: list[Limit] = []
    limits = scenario.limits
    for part in fields(LimitsAsked) if mode == preset.mode else ():
        default = getattr(preset.limits, part.name)
        if default is not None and getattr(limits, part.name) is None:
            limits = replace(limits, **{part.name: default})
            limits_set.append(parse_limit(_metric(part.name), default))
    found = Defaults(
        use_case=scenario.use_case,
        mode=mode if scenario.mode is None else None,
        isl=lengths_set.get("isl", ""),
        osl=lengths_set.get("osl", ""),
        limits=tuple(limits_set),
    )
    anything = found.mode is not None or lengths_set or limits_set
    lengths = replace(lengths, **lengths_set)  # type: ignore[arg-type]
    return replace(scenario, mode=mode, lengths=lengths, limits=limits), found if anything else None


def _metric(name: str) -> LimitMetric:
    return next(metric for metric in METRICS if metric == name)
