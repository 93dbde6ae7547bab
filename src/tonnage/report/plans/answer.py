"""The answer of a plan: systems to buy or in use, standby systems, when a job is done; and the
chosen deployment in all its figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tonnage.errors import InputError, option
from tonnage.plan.candidate import Candidate
from tonnage.plan.demand import JobDone
from tonnage.plan.fleet import Standby
from tonnage.plan.plan import Plan
from tonnage.plan.reason import TooMuch
from tonnage.report.document import Section, Table, facts_known, section
from tonnage.report.numbers import ABSENT, counted, dollars, number, plain, span
from tonnage.report.plans.candidates import most_text, reason_text, taken, taken_text
from tonnage.report.plans.confidence import (
    by_confidence,
    chance_text,
    counted_text,
    fleet_check_text,
)
from tonnage.report.plans.cost import power_text, priced, yearly
from tonnage.report.plans.deployments import (
    bought,
    deployment,
    deployment_text,
    deployments,
    instances,
    knobs,
    load_text,
    memory_text,
    of_pools,
    other_way_text,
    systems,
)
from tonnage.report.plans.fleet import existing_title, routers_text, running
from tonnage.report.plans.question import bound_text, latency, pace_text, used_share, used_text
from tonnage.spec.catalog import find_engine, find_gpu
from tonnage.spec.catalog.checkpoints import find_checkpoints, find_maker, loadable
from tonnage.spec.precision import find_precision

NO_ANSWER = "no deployment meets the limits"
FASTEST = "lowest latency on ≤ 2 × the GPUs"
SERVERS = (1, 2, 4)  # GPUs of the servers that are sold next to those of eight
# share of one system that the peak takes, below which the first screen prices rented GPUs and APIs
HARDLY_USED = 0.2
SAME = 0.005  # loads that are nearer than this share are printed alike


def title(plan: Plan) -> str:
    """Such as "5 × dgx-h100 for llama-3-8b"."""
    if plan.existing is not None:
        return existing_title(plan)
    if plan.choice is None:
        over = any(isinstance(rejected.reason, TooMuch) for rejected in plan.rejected)
        return (
            f"No deployment of {plan.scenario.model}"
            f" {'stays within what is allowed' if over else 'meets the limits'}"
        )
    return f"{systems(plan.choice)} for {plan.scenario.model}"


def answer_text(plan: Plan) -> str:
    """Such as "2 × dgx-h200 (16 GPUs; 1.75 systems exactly): 16 instances of FP8, TP 1, vllm-0.32
    on h200-sxm-141gb".
    """
    best = plan.choice
    if best is None:
        return _no_answer(plan)
    if plan.existing is not None and plan.demand.of_existing:
        return running(plan.existing)
    systems = bought(best, plan.scenario.spare_systems + _standing_by(best))
    grown = plan.existing is not None and plan.mixed is not None and plan.mixed.groups
    begins = "without what exists, " if grown else ""
    return f"{begins}{systems}: {deployments(best)}"


def _runs_nothing(plan: Plan) -> str:
    """Why no deployment runs a question without limits."""
    reasons = dict.fromkeys(reason_text(rejected.reason) for rejected in plan.rejected)
    return f"no deployment runs it{': ' if reasons else ''}{'; '.join([*reasons][:2])}"


def _no_answer(plan: Plan) -> str:
    """That nothing is chosen, and by what: the limits; or what was given as the most, with the part
    of the load that this carries.
    """
    over = [
        (rejected, rejected.reason)
        for rejected in plan.rejected
        if isinstance(rejected.reason, TooMuch)
    ]
    if not over:
        return NO_ANSWER if plan.scenario.limits_that_count else _runs_nothing(plan)
    demanded_rate = plan.demand.sizing_requests_per_second
    best, reason = max(
        over,
        key=lambda pair: (pair[1].most_requests_per_second or 0.0, -(taken(pair[1]) or math.inf)),
    )
    rate = reason.most_requests_per_second
    cheapest, least = min(
        (pair for pair in over if type(pair[1]) is type(reason)),
        key=lambda pair: taken(pair[1]) or math.inf,
    )
    by = "" if cheapest is best else f" ({deployment_text(cheapest)})"
    whole = f"; all of it takes {taken_text(least)}{by}" if taken(least) else ""
    if not rate:
        return f"nothing within what is allowed: {most_text(reason)}{whole}"
    share = f"{math.floor(100 * rate / demanded_rate)}% of the {plain(demanded_rate)} asked for"
    return (
        f"not the whole load: {most_text(reason)} inside the limits, {share}"
        f" ({deployment_text(best)}){whole}"
    )


def _standing_by(best: Candidate) -> int:
    return 0 if best.standby is None else best.standby.extra_systems


def serving(plan: Plan, best: Candidate) -> int:
    """Systems that carry load: without standby ones."""
    return best.systems - plan.scenario.spare_systems - _standing_by(best)


def capacity_text(plan: Plan, best: Candidate) -> str:
    """What one instance carries and what ends that, what the answer counts on, and what the fleet
    completes when always busy.
    """
    rate, sized = best.requests_per_second_per_instance, best.sized_rate
    counts = (
        ""
        if best.confidence is None or abs(sized / rate - 1) < SAME
        else f"; the answer counts on {number(sized)}{counted_text(best)}"
    )
    if plan.demand.offline:
        used = f"; {used_share(best.utilisation)} of what the fleet can complete in that time"
        return f"one instance completes {number(rate)} requests/s{counts}{used}"
    saturation = number(best.saturation_requests_per_second_per_instance * best.instances)
    used = "" if best.at_peak is not None else f"; {used_text(best.utilisation)} at the peak"
    carries = f"one instance carries {number(rate)} requests/s, limited by {bound_text(best.binds)}"
    # the closed form of a busy fleet does not count the cache that sessions fill
    if plan.sessions is not None:
        return f"{carries}{counts}"
    return f"{carries}{counts}; the fleet saturates at {saturation} requests/s{used}"


def checkpoint_text(plan: Plan, best: Candidate) -> str:
    """That the chosen engine has no checkpoint of the chosen format to load, and which engine has
    one; "" where it has, or can make it.
    """
    model, pool = plan.scenario.model, best.pools[0]
    if not pool.engine_preset or not find_checkpoints(model):
        return ""
    try:
        precision, engine, vendor = (
            find_precision(pool.precision),
            find_engine(pool.engine_preset),
            find_gpu(pool.gpu).vendor,
        )
    except InputError:  # hardware of a file
        return ""
    brings_checkpoints = engine.family == "nim"  # its containers bring checkpoints of their own
    if (
        brings_checkpoints
        or loadable(model, precision, engine, vendor)
        or find_maker(precision.weights, engine) is not None
    ):
        return ""
    engines = dict.fromkeys(
        candidate_pool.engine_preset
        for candidate in plan.candidates
        for candidate_pool in candidate.pools
        if candidate_pool.precision == pool.precision
    )
    alternative = next(
        (name for name in engines if loadable(model, precision, find_engine(name), vendor)), ""
    )
    instead = f"; {option('engine')} {alternative} has one to load" if alternative else ""
    return (
        f"no {pool.precision} checkpoint of {model} is known that {engine.name} reads, nor a tool"
        f" that makes one{instead}"
    )


def smaller_text(plan: Plan, best: Candidate) -> str:
    """The smallest server that carries the peak, where one system is far more, and the cost of
    sharing; "" elsewhere.
    """
    if (
        len(best.pools) != 1
        or plan.demand.offline
        or plan.existing is not None
        or best.load.kind != "open"
        or best.confidence is None
    ):
        return ""
    pool = best.pool
    gpus = (
        math.ceil(round(plan.demand.sizing_requests_per_second / best.sized_rate, 9))
        * pool.parallelism.gpus
    )
    size = next((count for count in SERVERS if count >= gpus), None)
    if best.systems_exact > 1 or size is None or size >= pool.gpus_per_system:
        return ""
    carry = "one GPU carries" if gpus == 1 else f"{gpus} GPUs carry"
    counts = (
        f"{carry} the peak; {option('system')} {size}x{pool.gpu} counts in servers of"
        f" {counted(size, 'GPU')}"
    )
    if best.systems_exact >= HARDLY_USED:
        return counts
    shared = {"cloud": "rented GPUs", "api": "an API"}
    prices = [
        f"{shared[way.where]} {dollars(way.total_usd_per_year)}"
        for way in priced(yearly(plan))
        if way.where in shared
    ]
    return counts + (f"; USD a year: {', '.join(prices)}" if prices else "")


def format_text(best: Candidate) -> str:
    """State what the number format costs in accuracy; "" where nothing is published of it."""
    if not best.accuracy_impact:
        return ""
    formats = " + ".join(dict.fromkeys(pool.precision for pool in best.pools))
    if best.accuracy_impact == "none":
        return (
            f"{formats}: the format that the model is published in, so no accuracy is lost and"
            " nothing is calibrated"
        )
    # published minutes are those of no named model
    longer = ", longer for larger models" if "minutes" in best.calibration else ""
    return (
        f"{formats}: accuracy impact {best.accuracy_impact}, calibration {best.calibration}{longer}"
    )


def finish_text(job: JobDone) -> str:
    """Such as "after 5.81 h of the 8 h allowed, with 125,000 requests for each instance"."""
    share = counted(job.requests_per_instance, "request")
    return (
        f"after {span(job.finish_seconds)} of the {span(job.allowed_seconds)} allowed, with {share}"
        " for each instance"
    )


def standby_text(standby: Standby) -> str:
    """How many units there are beyond the need of the peak, and how often enough of them work, in
    one line.
    """
    spare = standby.standing - standby.needed
    units = (
        f"{counted(standby.standing, standby.unit)}, {standby.needed:,} needed at the peak, so that"
        f" {spare:,} may fail"
    )
    if standby.availability is None or standby.mtbf_hours is None or standby.repair_hours is None:
        return units
    target = "" if standby.asked is None else f" ({100 * standby.asked:.9g}% asked)"
    repairs = (
        "" if standby.repairers is None else f", {counted(standby.repairers, 'repair')} at once"
    )
    times = (
        f"{plain(standby.mtbf_hours)} h between failures of each, {plain(standby.repair_hours)} h"
        f" to repair{repairs}"
    )
    hours = standby.short_hours_per_year or 0.0
    short = f"{number(hours)} h" if hours >= 1 else f"{number(60 * hours)} min"
    return (
        f"{units}: enough of them work {_nines(standby.availability)} of the time{target}, all but"
        f" {short} a year; {times}"
    )


def _nines(share: float) -> str:
    """A probability with as many nines as it has, never rounded up: "99.97%"."""
    digits = 1 if share <= 0 or share >= 1 else max(1, math.ceil(-math.log10(1 - share)))
    return f"{math.floor(10**digits * 100 * share + 1e-6) / 10**digits:.{digits}f}%"


def others(plan: Plan) -> tuple[tuple[str, Candidate], ...]:
    """The chosen deployment, and the best by latency and by throughput where they are not the
    same.
    """
    if plan.choice is None:
        return ()
    named_candidates = [("chosen", plan.choice)]
    for name, alternative in (
        (FASTEST, plan.latency_optimal),
        ("most requests per GPU", plan.throughput_optimal),
    ):
        if alternative is not None and all(
            alternative.pools != candidate.pools for _, candidate in named_candidates
        ):
            named_candidates.append((name, alternative))
    return tuple(named_candidates)


SATURATES = "fleet saturates at"
READINGS: tuple[tuple[str, Callable[[Candidate], str]], ...] = (
    ("deployment", deployment),
    ("systems", lambda c: f"{systems(c)} (exactly {number(c.systems_exact)})"),
    ("GPUs", lambda c: f"{c.gpus:,}"),
    ("instances", instances),
    ("requests/s per instance", lambda c: number(c.requests_per_second_per_instance)),
    ("requests/s per 8 GPUs", lambda c: number(c.requests_per_second_per_8_gpus)),
    ("output tokens/s per 8 GPUs", lambda c: number(c.output_tokens_per_second_per_8_gpus)),
    ("in flight per instance", lambda c: number(c.concurrency_per_instance)),
    ("latency at the peak", lambda c: "" if c.at_peak is None else "; ".join(latency(c.at_peak))),
    ("latency at the limit", lambda c: "; ".join(latency(c))),
    ("what ends the load", lambda c: bound_text(c.binds)),
    ("used at the peak", lambda c: used_text(c.utilisation)),
    (
        SATURATES,
        lambda c: (
            f"{number(c.saturation_requests_per_second_per_instance * c.instances)} requests/s,"
            " when every instance is always busy"
        ),
    ),
    (
        "chance that it meets the limits",
        lambda c: ABSENT if c.confidence is None else chance_text(c.confidence.meets),
    ),
    (
        "systems at each confidence",
        lambda c: ABSENT if c.confidence is None else by_confidence(c.confidence),
    ),
    ("engine knobs", knobs),
    ("memory", lambda c: of_pools(c, lambda pool: memory_text(pool.memory, pool.kv_tokens))),
    ("number format", format_text),
)


def deployment_section(plan: Plan) -> Section:
    """One column for each deployment, and what was simulated of the choice; empty where nothing was
    chosen.
    """
    best, columns = plan.choice, others(plan)
    if best is None:
        return section("deployment", "Deployment")
    # see ``capacity_text``
    readings = [
        (name, read) for name, read in READINGS if plan.sessions is None or name != SATURATES
    ]
    rows = (
        (name, *(read(candidate) or ABSENT for _, candidate in columns)) for name, read in readings
    )
    caption = (
        "The chosen deployment, and what else could be wanted"
        if len(columns) > 1
        else "The chosen deployment"
    )
    filled_rows = tuple(row for row in rows if set(row[1:]) != {ABSENT})
    table = Table(caption=caption, header=("", *(name for name, _ in columns)), rows=filled_rows)
    facts = (
        ("Fleet check", "" if plan.fleet_check is None else fleet_check_text(plan.fleet_check)),
        (
            "Routers",
            routers_text(plan.routers, plan.scenario.limits_that_count, serving(plan, best)),
        ),
        ("Other way", other_way_text(plan)),
        ("Load", load_text(best.load)),
        ("Power", power_text(plan)),
        ("Pace", _pace(plan, best)),
    )
    return section("deployment", "Deployment", table, facts_known(facts))


def _pace(plan: Plan, best: Candidate) -> str:
    """The gaps between tokens compared with the speed of reading, where a person reads along."""
    itl = best.itl_ms if best.at_peak is None else best.at_peak.itl_ms
    if plan.scenario.mode != "streaming" or itl.mean is None or itl.p99 is None:
        return ""
    at = "" if best.at_peak is None else "at the peak "
    return (
        f"{at}ITL mean {number(itl.mean)}, p99 {number(itl.p99)} ms:"
        f" {pace_text(itl.mean / 1e3, itl.p99 / 1e3)}"
    )
