"""How sure a number of systems is, in words: the probability, what no number of systems reaches, and the fleet that was simulated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.report.numbers import ABSENT, counted, percent
from tonnage.report.plans.deployments import unlike
from tonnage.report.plans.latencies import breach_text, limit_text
from tonnage.units import format_duration

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate, Confidence
    from tonnage.plan.fleet import FleetCheck
    from tonnage.plan.plan import Plan
    from tonnage.plan.provenance import Unreached

SUREST, LEAST_SURE = 0.99, 0.01
"""Beyond these a chance is not written as a number: held-out errors do not know that much."""


def chance_text(share: float | None) -> str:
    """A probability in whole per cent, never rounded up: "94%", "over 99%"; "–" where it was not looked for."""
    if share is None:
        return ABSENT
    if share > SUREST:
        return "over 99%"
    return f"{math.floor(100 * share + 1e-6)}%" if share >= LEAST_SURE else "under 1%"


def confidence_text(plan: Plan) -> str:
    """The probability that the chosen systems meet the limits, and how many each confidence takes; "" where nothing was predicted."""
    best = plan.choice
    if best is None or best.confidence is None:
        return ""
    sure, tail = best.confidence, plan.tail
    text = f"{chance_text(sure.meets)} probability of meeting the limits ({_share(sure.asked)} asked)"
    if tail is None or not sure.reached:
        return f"{text}; systems for {by_confidence(sure)}"
    return f"{text}; systems for {by_confidence(sure, below=tail.confidence)}; no number of them reaches {_tail_text(best, tail)}"


def by_confidence(confidence: Confidence, below: float = 1.0) -> str:
    """The systems at each confidence under ``below``: "50%: 2, 80%: 2, 95%: 3"."""
    counts = [(name, count) for name, count in confidence.systems.items() if float(name) < 100 * below]
    return ", ".join(f"{name}%: {'none' if count is None else f'{count:,}'}" for name, count in counts)


def counted_text(best: Candidate) -> str:
    """How sure the load that the answer counts on makes it: ", to be 80% sure"; "" where nothing was predicted, or nothing is reached."""
    counted = None if best.confidence is None else best.confidence.counted
    return "" if counted is None else f", to be {_share(counted)} sure"


def not_sure_text(plan: Plan) -> str:
    """That no deployment reaches the asked confidence, and what would; "" where the choice does, or nothing was predicted."""
    best = plan.choice
    if best is None or best.confidence is None or best.confidence.reached:
        return ""
    if plan.tail is None:
        return f"Nothing that was asked for reaches {_share(best.confidence.asked)}"
    who = "Nothing that was asked for" if plan.tail.other is None else "No number of these systems"
    return f"{who} reaches {_tail_text(best, plan.tail)}"


def _tail_text(best: Candidate, tail: Unreached) -> str:
    """The confidence, why it is not reached, and what reaches it: "95%: with steps 38% slower, TPOT p95 61.2 ms > 50 ms at any load; …"."""
    other, relaxed, alone = tail.other, tail.relaxed, tail.alone
    broken = alone is not None and (alone.value_ms is None or alone.value_ms > alone.limit.milliseconds)
    text = f"{_share(tail.confidence)}: with steps {percent(tail.step_factor - 1)} slower"
    if alone is not None:
        text += f", {breach_text(alone)} at any load" if broken else f", a single request comes near {limit_text(alone.limit)}"
    would = []
    if other is not None:
        name = unlike(best, other.deployment)
        would.append(f"{name} reaches it with {counted(other.systems, 'system')} ({counted(other.gpus, 'GPU')})")
    if relaxed is not None:
        to, reaches = format_duration(relaxed.to_ms / 1e3), "" if would else " reaches it"
        would.append(f"a limit of {to}{reaches} with {counted(relaxed.systems, 'system')} ({counted(relaxed.gpus, 'GPU')})")
    if not would and broken and alone is not None and alone.value_ms is not None:
        would.append(f"it takes a limit above {format_duration(alone.value_ms / 1e3)}")
    return text + "".join(f"{joint}{one}" for joint, one in zip(("; ", ", "), would, strict=False))


def _share(share: float) -> str:
    return f"{100 * share:.4g}%"


def fleet_check_text(check: FleetCheck) -> str:
    """The verdict, such as "4 instances on 2 systems, simulated together, meet every limit"."""
    first, systems = check.runs[0], check.systems
    shown = f"{first.simulated_instances:,} of " if first.instances > first.simulated_instances else ""
    alone = first.instances == 1
    fleet = f"{shown}{counted(first.instances, 'instance')} on {counted(first.systems, 'system')}, simulated{'' if alone else ' together'}"
    meets, breaks = ("meets", "breaks") if alone else ("meet", "break")
    if systems > check.by_division:
        broken = "" if first.worst is None else breach_text(first.worst)
        return f"{fleet}, {breaks} a limit ({broken}); {counted(systems, 'system')} meet all of them, and the plan takes these"
    return f"{fleet}, {meets} every limit"
