"""Users at each tier of speed and TTFT, as AA-AgentPerf states its results: most agents at once
that the service serves so fast.

A tier has a floor for the output speed that each user sees and a ceiling for TTFT
(artificialanalysis.ai/methodology/agentperf, read 2026-11-28). The speed is that of a request after
its first token. A load is in a tier where three of four requests are as fast as the floor (p25) and
TTFT is below the ceiling in 19 of 20 (p95); these two percentiles are recalled, not looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.bench.intervals import completed_rows, latencies_ms
from tonnage.errors import InputError, option
from tonnage.results.requests import Requests
from tonnage.units import format_duration, parse_duration

if TYPE_CHECKING:
    from tonnage.bench.validity import Validity


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A level of service: the speed that each user must get."""

    tokens_per_second: float  # output speed after the first token, at least
    ttft_s: float  # at most

    def __str__(self) -> str:
        return f"{self.tokens_per_second:g} tokens/s, TTFT {format_duration(self.ttft_s)}"


# Those of AA-AgentPerf for DeepSeek V3.2 with reasoning, as github.com/ai-dynamo/aiperf/issues/987
# lists them (2026-05-22)
TIERS = tuple(Tier(tokens_per_second=speed, ttft_s=15.0) for speed in (30.0, 100.0, 300.0))
_WRITTEN = re.compile(
    r"\s*([0-9.]+)\s*(?:tokens/s|tok/s|t/s)?\s*[,@ ]\s*(?:ttft)?\s*(.+)", re.IGNORECASE
)


def parse_tier(text: str) -> Tier:
    """A tier such as "30 tokens/s, 15s". Raises InputError: it is none."""
    parts = _WRITTEN.fullmatch(text)
    try:
        tier = (
            Tier(
                tokens_per_second=float(parts[1]),
                ttft_s=parse_duration(parts[2].strip(), option("tier")),
            )
            if parts
            else None
        )
    except ValueError:
        tier = None
    if tier is None or not (0 < tier.tokens_per_second < math.inf and tier.ttft_s > 0):
        raise InputError(
            f"{option('tier')}: '{text}' is no tier; write a speed and a TTFT, such as \"30"
            ' tokens/s, 15s"'
        )
    return tier


def tiers_of_run(
    requests: Requests, validity: Validity, users: int, tiers: Sequence[Tier]
) -> dict[str, Any]:
    """The output speed and the TTFT of a load of so many users (None where no request has them),
    and in which tiers it is.

    A load of which too many requests failed, or whose client was too slow, is in none.
    """
    latencies = latencies_ms(requests, completed_rows(requests))
    tpot, ttft = latencies["tpot_ms"], latencies["ttft_ms"]
    speed = float(np.percentile(1e3 / tpot[tpot > 0], 25)) if (tpot > 0).any() else math.nan
    slowest = float(np.percentile(ttft, 95)) if ttft.size else math.nan
    failed = any(check.name == "error_percent" and not check.passed for check in validity.checks)
    fit = not failed and not validity.client_limited
    met = [
        fit and speed >= tier.tokens_per_second and slowest <= 1e3 * tier.ttft_s for tier in tiers
    ]
    return {
        "users": users,
        "output_tokens_per_second_p25": None if math.isnan(speed) else speed,
        "ttft_ms_p95": None if math.isnan(slowest) else slowest,
        "tiers": [
            {
                "output_tokens_per_second": tier.tokens_per_second,
                "ttft_s": tier.ttft_s,
                "met": inside,
            }
            for tier, inside in zip(tiers, met, strict=True)
        ],
    }


def most_users(loads: Sequence[dict[str, Any]], place: int) -> str:
    """The most users of these loads (of ``tiers_of_run``) in one tier, in words: no load below them
    may miss it.
    """
    by_users = sorted(loads, key=lambda load: load["users"])
    inside = 0
    while inside < len(by_users) and by_users[inside]["tiers"][place]["met"]:
        inside += 1
    if inside == len(by_users):
        return f"at least {by_users[-1]['users']}"
    first_outside = by_users[inside]["users"]
    return (
        f"{by_users[inside - 1]['users']} ({first_outside} are too many)"
        if inside
        else f"fewer than {first_outside}"
    )
