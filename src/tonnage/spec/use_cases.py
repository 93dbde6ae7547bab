"""A use case fills in mode, lengths and limits where the asker says only what the traffic is for.

Reading speed is about 250 words a minute, or 200 ms a token; fast readers take 90 ms a token.
Lengths and limits follow NVIDIA's course "Sizing LLM Inference Systems" and its blog posts on
benchmarking (2024): a person who reads along needs 250 ms a token in the 99th percentile, data
generation 35 ms. They are starting points, stated in every plan that uses them.

The four patterns of short and long prompts and outputs set lengths and mode and no limits: 128 and
2,048 tokens, the lengths at which NVIDIA publishes the throughput of TensorRT-LLM
(docs/performance/perf-overview.md of its releases 0.14 and 0.15, 2024).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from tonnage.errors import InputError
from tonnage.spec.deployment import METRICS, Limit, Slo, parse_limit
from tonnage.spec.lengths import MAX_TOKENS, Pairs
from tonnage.spec.scenario import LengthsAsked, LimitsAsked, Mode, Scenario, UseCase
from tonnage.spec.written_numbers import number_of

READING_S = 0.200  # Seconds a token of a usual reader

READING_P99_S = 0.250  # Seconds a token that readers accept in the 99th percentile

FAST_READING_S = 0.090  # Seconds a token of a fast reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Defaults of one use case; what the asker says is in their place."""

    # mode, isl, osl, limits: of a whole request
    mode: Mode
    isl: str
    osl: str
    limits: LimitsAsked
    # what ``isl`` is the sum of; None where it is one piece, to which parts that the asker names
    # are added
    parts: LengthsAsked | None = None


READING = "p99<=250ms"
PIECES = 1_000  # Pairs that a mixture is made of: shares are exact to a thousandth
MIXTURE = '"short-in-short-out 0.7, 4000/300 0.3"'
_PART = re.compile(r"^\s*(?:([a-z-]+)|(\d{1,8})\s*/\s*(\d{1,8}))\s+((?:\d+\.?\d*|\.\d+)\s*%?)\s*$")
SHORT, LONG = "128", "2048"

DefaultPart = Literal["system_prompt", "retrieved", "history", "shared_prefix"]
PARTS: tuple[DefaultPart, ...] = ("system_prompt", "retrieved", "history")
RAG = LengthsAsked(isl="100", system_prompt="500", retrieved="5x400", history="3x300")
"""A prompt of RAG by its parts. NVIDIA's course counts passages and history into its 3,500 tokens
and does not split them: this is ours."""

PRESETS: dict[UseCase, Preset] = {
    "chatbot": Preset(
        mode="streaming", isl="500", osl="200", limits=LimitsAsked(ttft="p95<=1s", itl=READING)
    ),
    "summarization": Preset(
        mode="streaming", isl="3000", osl="300", limits=LimitsAsked(ttft="p95<=3s", itl=READING)
    ),
    "rag": Preset(
        mode="streaming",
        isl="3500",
        osl="500",
        limits=LimitsAsked(ttft="p95<=2s", itl=READING),
        parts=RAG,
    ),
    "data-generation": Preset(
        mode="streaming", isl="300", osl="1500", limits=LimitsAsked(itl="p99<=35ms")
    ),
    "offline": Preset(mode="offline", isl="1000", osl="300", limits=LimitsAsked()),
    "short-in-short-out": Preset(mode="streaming", isl=SHORT, osl=SHORT, limits=LimitsAsked()),
    "short-in-long-out": Preset(mode="streaming", isl=SHORT, osl=LONG, limits=LimitsAsked()),
    "long-in-short-out": Preset(mode="streaming", isl=LONG, osl=SHORT, limits=LimitsAsked()),
    "long-in-long-out": Preset(mode="streaming", isl=LONG, osl=LONG, limits=LimitsAsked()),
}


def mixture_of(text: str, where: str) -> Pairs:
    """Read "short-in-short-out 0.7, 4000/300 30%": use cases or pairs of lengths (ISL/OSL, in
    tokens), each with its share.

    Raises InputError: another form, or shares that do not sum to 1.
    """
    parts = []
    for part in text.split(","):
        match = _PART.match(part)
        named = (
            None
            if match is None
            else next((preset for name, preset in PRESETS.items() if name == match[1]), None)
        )
        lengths = (
            ("", "")
            if match is None
            else (match[2], match[3])
            if named is None
            else (named.isl, named.osl)
        )
        if match is None or not all(
            length and 1 <= int(length) <= MAX_TOKENS for length in lengths
        ):
            raise InputError(
                f"{where}: '{part.strip()}' is no kind of length with its share; write such as"
                f" {MIXTURE}"
            )
        parts.append((int(lengths[0]), int(lengths[1]), number_of(match[4], "share") or 0.0))
    total = sum(share for _, _, share in parts)
    if abs(total - 1) > 1e-6 or min(share for _, _, share in parts) <= 0:
        raise InputError(
            f"{where}: the shares of '{text}' sum to {total:g}; write shares above 0 that sum to 1,"
            f" such as {MIXTURE}"
        )
    ends = [
        round(PIECES * sum(share for _, _, share in parts[: place + 1]) / total)
        for place in range(len(parts))
    ]
    counts = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    isl = tuple(isl for (isl, _, _), count in zip(parts, counts, strict=True) for _ in range(count))
    osl = tuple(osl for (_, osl, _), count in zip(parts, counts, strict=True) for _ in range(count))
    return Pairs(isl=isl, osl=osl, source="mixture")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults that a use case filled in; None or empty where it filled in nothing."""

    use_case: UseCase
    mode: Mode | None
    isl: str
    osl: str
    limits: Slo
    # of the prompt, by the names of their leaves, where the asker named others of them
    parts: Mapping[DefaultPart, str] = field(default_factory=dict)


def with_defaults(scenario: Scenario) -> tuple[Scenario, Defaults | None]:
    """The scenario with what its use case sets, and what that was; None where it sets nothing.

    Lengths apply where neither lengths, pairs nor a trace are given; a limit applies where its
    metric has none. Parts of the prompt that are given take the place of the use case's own part,
    and are added to a prompt that it does not split. Where another mode was requested, only limits
    that count in it apply: the use case's own are left out.
    """
    if scenario.use_case is None:
        return scenario, None
    preset = PRESETS[scenario.use_case]
    mode = preset.mode if scenario.mode is None else scenario.mode
    lengths, parts = _lengths_set(scenario, preset)
    limits_set: list[Limit] = []
    limits = scenario.limits
    for part in fields(LimitsAsked) if mode == preset.mode else ():
        default = getattr(preset.limits, part.name)
        if default is not None and getattr(limits, part.name) is None:
            limits = replace(limits, **{part.name: default})
            limits_set.append(
                parse_limit(next(metric for metric in METRICS if metric == part.name), default)
            )
    defaults = Defaults(
        use_case=scenario.use_case,
        mode=mode if scenario.mode is None else None,
        isl=lengths.get("isl", ""),
        osl=lengths.get("osl", ""),
        limits=tuple(limits_set),
        parts=parts,
    )
    anything = defaults.mode is not None or lengths or limits_set
    of_prompt = lengths | {name: text for name, text in parts.items() if name != "shared_prefix"}
    shared = parts.get("shared_prefix", scenario.sessions.shared_prefix)
    filled = replace(
        scenario,
        mode=mode,
        lengths=replace(scenario.lengths, **of_prompt),  # type: ignore[arg-type]
        sessions=replace(scenario.sessions, shared_prefix=shared),
        limits=limits,
    )
    return filled, defaults if anything else None


def _lengths_set(
    scenario: Scenario, preset: Preset
) -> tuple[dict[str, str], dict[DefaultPart, str]]:
    """ISL, OSL and the prompt's parts that the asker leaves to the use case: turns make its
    history, shared text its system prompt.
    """
    lengths_asked, sessions = scenario.lengths, scenario.sessions
    drawn = (
        scenario.demand.trace is not None
        and lengths_asked.isl is None
        and lengths_asked.osl is None
    )
    if lengths_asked.pairs is not None or lengths_asked.mixture is not None or drawn:
        return {}, {}
    lengths = {} if lengths_asked.osl is not None else {"osl": preset.osl}
    part_names = [name for name in PARTS if getattr(lengths_asked, name) is not None]
    follows, shares = sessions.turns is not None, sessions.shared_prefix is not None
    if lengths_asked.isl is not None:
        return lengths, {}
    if preset.parts is None or not (part_names or follows or shares):
        return {"isl": preset.isl, **lengths}, {}
    part_texts = {
        name: str(getattr(preset.parts, name)) for name in PARTS if name not in part_names
    }
    if follows and not shares and "system_prompt" in part_texts:
        part_texts["shared_prefix"] = part_texts["system_prompt"]
    made_by_turns = (
        ("history", "system_prompt") if follows else ("system_prompt",) if shares else ()
    )
    return {"isl": str(preset.parts.isl), **lengths}, {
        name: text for name, text in part_texts.items() if name not in made_by_turns
    }
