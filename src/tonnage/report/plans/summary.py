"""The question and the answer of a plan as a few named lines: what a terminal shows first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tonnage.errors import option
from tonnage.report.document import Facts
from tonnage.report.numbers import number, percent, plain
from tonnage.report.plans.deployments import latency, of_pools
from tonnage.report.plans.headline import headline_rows
from tonnage.report.plans.left_out import left_out_texts
from tonnage.report.wording.aim import aim_text
from tonnage.report.wording.at_peak import used_share, used_text
from tonnage.report.wording.demand import demand_text
from tonnage.report.wording.deployments import calibration_text, deployment_text, load_text, memory_text
from tonnage.report.wording.existing import day_text, existing_text
from tonnage.report.wording.fleet_check import fleet_check_text
from tonnage.report.wording.lengths import in_tokens
from tonnage.report.wording.limits import bound_text, limit_text
from tonnage.report.wording.pace import pace_text
from tonnage.report.wording.reachable import reachable_text
from tonnage.report.wording.reasons import TooMuch, most_text, taken_text

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan

NO_ANSWER = "no deployment meets the limits"


def question_lines(plan: Plan) -> Facts:
    """The question as it was understood."""
    asked = plan.scenario
    lengths = f"{in_tokens(asked.isl, asked.mean_isl)} tokens in, {in_tokens(asked.osl, asked.mean_osl)} out"
    return Facts(
        rows=(
            ("Question", f"{asked.model}, {lengths}{f'; with {asked.shares}' if asked.shares else ''}"),
            ("Demand", demand_text(plan.demand)),
            ("Limits", ", ".join(map(limit_text, asked.limits)) or "none"),
            *((("Aim", aim_text(plan.aim)),) if plan.aim is not None else ()),
        )
    )


def day_line(plan: Plan) -> tuple[str, str]:
    """A working day of what systems that exist carry; "" where none do."""
    day = None if plan.existing is None else plan.existing.a_day
    return "A day", "" if day is None else day_text(day)


def no_answer(plan: Plan) -> str:
    """That nothing is chosen, and by what: the limits; or what was given as the most, with the part of the load that this carries."""
    over = [(one, one.reason) for one in plan.rejected if isinstance(one.reason, TooMuch)]
    if not over:
        return NO_ANSWER
    asked = plan.demand.sizing_requests_per_second
    best, reason = max(over, key=lambda each: (each[1].most_requests_per_second or 0.0, -(each[1].taken or math.inf)))
    rate, taken = reason.most_requests_per_second, taken_text(reason)
    whole = f"; all of it takes {taken}" if taken else ""
    if not rate:
        return f"nothing within what is allowed: {most_text(reason)}{whole}"
    share = f"{percent(rate / asked)} of the {plain(asked)} asked for"
    return f"not the whole load: {most_text(reason)} inside the limits, {share} ({deployment_text(best)}){whole}"


def answer_lines(plan: Plan) -> Facts:
    """The answer, and what it rests on, one fact a line."""
    exists = () if plan.existing is None else (("Have", existing_text(plan.existing)),)
    left_out = ("Left out", "; ".join(left_out_texts(plan)))
    best = plan.choice
    if best is None:
        reached = "" if plan.reachable is None else reachable_text(plan.reachable)
        rows = (*exists, ("Answer", f"{no_answer(plan)}; the reasons are below."), ("Reachable", reached), left_out)
        return Facts(rows=tuple(row for row in rows if row[1]))
    rows = (
        *exists,
        *headline_rows(plan, best),
        day_line(plan),
        ("Capacity", _capacity(plan, best)),
        ("Latency" if best.at_peak is None else "At limit", "; ".join(latency(best, ("ttft", "tpot", "e2e")))),
        ("Pace", _pace(plan, best)),
        ("Load", _load(plan, best)),
        ("Smaller", _smaller(plan, best)),
        ("Memory", of_pools(best, lambda pool: memory_text(pool.memory, pool.kv_tokens))),
        ("Format", _format(best)),
        ("Fleet check", "" if plan.fleet_check is None else fleet_check_text(plan.fleet_check)),
        left_out,
    )
    return Facts(rows=tuple(row for row in rows if row[1]))


SERVERS = (1, 2, 4)
"""GPUs of the servers that are sold beside those of eight."""

SAME = 0.005
"""Loads that are nearer than this share are printed alike."""


def _capacity(plan: Plan, best: Candidate) -> str:
    rate, per_8 = number(best.requests_per_second_per_instance), number(best.requests_per_second_per_8_gpus)
    verb, inside = ("completes", "") if plan.demand.offline else ("carries", " inside the limits")
    sized, asked = best.sized_rate / best.requests_per_second_per_instance, plan.scenario.confidence
    counts = (
        "" if asked is None or abs(sized - 1) < SAME else f"; the answer counts on {number(best.sized_rate)}, to be {percent(asked)} sure"
    )
    return f"one instance {verb} {rate} requests/s{inside} ({load_text(best.load)}), 8 GPUs {per_8}{counts}"


def _smaller(plan: Plan, best: Candidate) -> str:
    """The smallest server that carries the peak, where one system is far more than that; "" elsewhere."""
    if len(best.pools) != 1 or plan.demand.offline or plan.existing is not None or best.load.kind != "open" or best.confidence is None:
        return ""
    pool = best.pool
    gpus = math.ceil(round(plan.demand.sizing_requests_per_second / best.sized_rate, 9)) * pool.parallelism.gpus
    size = next((count for count in SERVERS if count >= gpus), None)
    if best.systems_exact > 1 or size is None or size >= pool.gpus_per_system:
        return ""
    carry = "one GPU carries" if gpus == 1 else f"{gpus} GPUs carry"
    return f"{carry} the peak; {option('system')} {size}x{pool.gpu} sizes in servers of {size}"


def _pace(plan: Plan, best: Candidate) -> str:
    """The gaps between tokens beside the speed of reading, where somebody reads along."""
    itl = best.itl_ms if best.at_peak is None else best.at_peak.itl_ms
    mean, p99 = itl.mean, itl.p99
    if plan.scenario.mode != "streaming" or mean is None or p99 is None:
        return ""
    at = "" if best.at_peak is None else "at the peak "
    return f"{at}ITL mean {number(mean)}, p99 {number(p99)} ms: {pace_text(mean / 1e3, p99 / 1e3)}"


def _load(plan: Plan, best: Candidate) -> str:
    """What ends the load; how full the fleet is where the line of the peak does not say it."""
    if plan.demand.offline:
        return f"{used_share(best.utilisation)} of what the fleet can complete in that time"
    used = "" if best.at_peak is not None else f"{used_text(best.utilisation)} at the peak; "
    saturation = number(best.saturation_requests_per_second_per_instance * best.instances)
    return f"{used}limited by {bound_text(best.binds)}; the fleet saturates at {saturation} requests/s"


def _format(best: Candidate) -> str:
    if not best.accuracy_impact:
        return ""
    formats = " + ".join(dict.fromkeys(pool.precision for pool in best.pools))
    if best.accuracy_impact == "none":
        return f"{formats}: the format that the model is published in, so no accuracy is lost and nothing is calibrated"
    return f"{formats}: accuracy impact {best.accuracy_impact}, calibration {calibration_text(best.calibration)}"
