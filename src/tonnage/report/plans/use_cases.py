"""Several use cases on one fleet: the choice, what each use case sees there, and what the other
arrangement would take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tonnage.errors import option
from tonnage.plan.limit import LimitUse
from tonnage.plan.use_cases import (
    Arrangement,
    Background,
    NotShared,
    Placed,
    UseCasePool,
    UseCases,
)
from tonnage.report.document import Document, Facts, Section, Table, Text, document, items, section
from tonnage.report.numbers import ABSENT, counted, dollars, number, percent, sentence_of, span
from tonnage.report.plans.answer import SERVERS, standby_text
from tonnage.report.plans.candidates import left_out_texts
from tonnage.report.plans.confidence import not_sure_text
from tonnage.report.plans.cost import cost_text
from tonnage.report.plans.deployments import bought, deployment_text
from tonnage.report.plans.explained import risk_text, why_text
from tonnage.report.plans.plan_document import full_sections, made_by, named_sections
from tonnage.report.plans.question import breach_text, question_rows, value_text
from tonnage.report.plans.screen import BRIEF, Room, Rows, clipped, fitted
from tonnage.spec.catalog import gpu_spelled
from tonnage.spec.hardware import small_slices

SEEN = (
    "use case",
    "requests/s",
    "limit",
    "value ms",
    "used",
    "TTFT p95 ms",
    "TPOT mean ms",
    "E2E p95 ms",
)
BOUND = (
    "An ITL percentile of a shared pool is an upper bound: the gaps of its use cases are counted"
    " together."
)
# lines that go where there are too many, the first to go first
SPARED = ("Risk alone", "Alone", "Cost alone", "Slices", "Smaller")
NOBODY = "no arrangement is possible"
MOST_NEAREST = 3  # GPUs whose nearest deployment the answer names where there is none


def use_cases_screen(use_cases: UseCases, page: str = "report") -> Document:
    """The first screen: each question, the choice and the other arrangement, and what each use case
    sees.
    """
    more = Text(
        f"{option('full')} prints each use case by itself; {option(page)} FILE.html writes the"
        " whole report of each."
    )
    return Document(
        sections=fitted(lambda room: (*_head(use_cases, room), section("more", "", more)))
    )


def _head(use_cases: UseCases, room: Room) -> tuple[Section, ...]:
    """The question of each use case, the unsure ones, the answer, and what each use case sees."""
    pairs = list(zip(use_cases.names, use_cases.plans, strict=True))
    shown = pairs[: max(room.rows, 1)] if room.clipped else pairs
    questions = tuple(
        (name, "; ".join(_with_limits(row) for row in question_rows(plan))) for name, plan in shown
    )
    rest = (
        ((f"… and {len(pairs) - len(shown)} more", "in the full text"),)
        if len(shown) < len(pairs)
        else ()
    )
    unsure = tuple(
        sentence_of(f"{name}, by itself: {text}")
        for name, plan in pairs
        if (text := not_sure_text(plan))
    )
    rows = tuple(
        row
        for row in (*_answer(use_cases), *_each_alone(use_cases))
        if row[0] not in SPARED[: room.spared]
    )
    return (
        section("question", "", Facts((*clipped(questions, room), *rest))),
        section("not-sure", "", items(unsure[: room.warnings], "warning")),
        section("use-cases", "", Facts(clipped(rows, room))),
        section(
            "seen",
            "",
            None
            if use_cases.choice is None or not room.rows
            else _limits_table(use_cases.choice, room.rows),
        ),
    )


def _with_limits(row: tuple[str, str]) -> str:
    """The text of a line of the question, which says of limits that there are none."""
    return "no limits" if row == ("Limits", "none") else row[1]


def use_cases_text(use_cases: UseCases) -> Document:
    """Write the whole answer for a terminal: the choice, each use case in short, then in full."""
    whole = list[Section]()
    for name, plan in zip(use_cases.names, use_cases.plans, strict=True):
        first, *rest = full_sections(plan)
        whole += [replace(first, title=f"{name}, by itself"), *rest]
    return document(*use_cases_sections(use_cases), _alone(use_cases), *whole)


def use_cases_report(use_cases: UseCases) -> Document:
    """The answer as a page: the choice, then the whole report of each use case by itself."""
    named = zip(use_cases.names, use_cases.plans, strict=True)
    alone = [
        part
        for place, (name, plan) in enumerate(named, 1)
        for part in named_sections(plan, f"{name}, by itself", place)
    ]
    title = f"{len(use_cases.names)} use cases on one fleet"
    return document(
        *use_cases_sections(use_cases),
        _alone(use_cases),
        *alone,
        title=title,
        subtitle=made_by(use_cases.plans[0]),
    )


def use_cases_why(use_cases: UseCases) -> Document:
    """Why the fleet is what it is: the two arrangements, and then the reasons of each use case by
    itself.
    """
    sections = [section("use-cases", "Use cases on one fleet", Facts(_answer(use_cases)))]
    sections += filter(None, [placement_section(use_cases)])
    for name, plan in zip(use_cases.names, use_cases.plans, strict=True):
        first, *rest = why_text((plan,)).sections
        sections += [replace(first, title=f"{name}, by itself"), *rest]
    return document(*sections)


def brief_lines(use_cases: UseCases) -> tuple[str, ...]:
    """The answer in ten lines at most, none of them folded."""
    rows = [row for row in _answer(use_cases) if row[0] not in ("Smaller", "Slices", "Hours")]
    if use_cases.choice is not None:
        cases = [case for pool in use_cases.choice.pools for case in pool.cases]
        uses = {
            name: [use_text(use) for case in cases if case.name == name for use in case.limits]
            for name in use_cases.names
        }
        rows += [(name, "; ".join(texts) or "no limits") for name, texts in uses.items()]
    if len(rows) > BRIEF:
        rows = [*rows[: BRIEF - 1], ("…", f"and {len(rows) - BRIEF + 1} more lines")]
    column = max(13, *(len(name) + 2 for name, _ in rows))
    return tuple(f"{name:<{column}}{text}" for name, text in rows)


def _answer(use_cases: UseCases) -> Rows:
    rows = [("Answer", answer_text(use_cases)), ("Confidence", _confidence(use_cases))]
    if use_cases.choice is not None:
        rows.append(("Placement", placement_text(use_cases, use_cases.choice)))
        rows.append(("Lost system", lost_text(use_cases, use_cases.choice)))
        rows.append(("Standby", standbys_text(use_cases.choice)))
        rows.append(("Cost", cost_together_text(use_cases.choice)))
        rows.append(("Shares", shares_text(use_cases.choice)))
        titles = {"shared": "Shared", "separate": "Separate", "first-come": "First come"}
        kinds = {"shared": use_cases.shared, "separate": use_cases.separate}
        if use_cases.priorities is not None:
            titles["shared"], kinds["first-come"] = "By priority", use_cases.first_come
        whys = {"shared": use_cases.not_shared, "first-come": use_cases.not_first_come}
        rows.append(("Saved", saved_text(use_cases)))
        rows.append(("Hours", hours_text(use_cases)))
        rows.append(("Smaller", smaller_systems_text(use_cases.choice)))
        rows.append(("Slices", slices_text(use_cases, use_cases.choice)))
        for kind in (kind for kind in kinds if kind != use_cases.chosen):
            why = whys.get(kind) if use_cases.priorities is not None else None
            rows.append((titles[kind], _other_text(kinds[kind], why)))
        if use_cases.priorities is None:
            why = use_cases.not_shared
            models = {plan.scenario.model for plan in use_cases.plans}
            if why is not None and (why.code != "models" or len(models) < len(use_cases.plans)):
                rows.append(("Not shared", not_shared_text(why)))
    if use_cases.background is not None:
        rows.append(("Background", background_text(use_cases.background)))
    return tuple(row for row in rows if row[1])


def _confidence(use_cases: UseCases) -> str:
    """The confidence at which every limit of the choice holds; "" where one does not, or none was
    requested.
    """
    confidences = {plan.scenario.confidence for plan in use_cases.plans}
    uses = (
        [use for pool in use_cases.choice.pools for case in pool.cases for use in case.limits]
        if use_cases.choice is not None
        else []
    )
    shares = ", ".join(
        percent(share) for share in sorted(level for level in confidences if level is not None)
    )
    if (
        not shares
        or None in confidences
        or not all(use.value_ms is None or use.value_ms <= use.limit.milliseconds for use in uses)
        or not uses
    ):
        return ""
    return f"every limit of each use case holds at the {shares} asked"


def _each_alone(use_cases: UseCases) -> Rows:
    """What each use case would take on its own systems, what that costs, and what it depends on
    most.
    """
    chosen = [
        (name, plan, plan.choice)
        for name, plan in zip(use_cases.names, use_cases.plans, strict=True)
        if plan.choice is not None
    ]
    rows = (
        ("Alone", "; ".join(f"{name} {bought(best)}" for name, _, best in chosen)),
        ("Cost alone", _of_each((name, cost_text(plan)) for name, plan, _ in chosen)),
        ("Risk alone", _of_each((name, risk_text(plan, best)) for name, plan, best in chosen)),
    )
    return tuple(row for row in rows if row[1])


def _of_each(texts: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in texts if text)


def use_cases_sections(use_cases: UseCases) -> tuple[Section, ...]:
    """The choice next to the other arrangements, and the limits of each use case."""
    parts = [section("use-cases", "Use cases on one fleet", Facts(_answer(use_cases)))]
    parts += filter(None, [placement_section(use_cases)])
    if use_cases.choice is not None:
        parts.append(
            section(
                "seen",
                "Limits and latencies",
                _limits_table(use_cases.choice),
                Text(BOUND, tone="note"),
            )
        )
    return tuple(parts)


def _limits_table(choice: Arrangement, most_rows: int | None = None) -> Table | None:
    """A row for each limit of each use case; of more than ``most_rows`` the most used ones."""
    rows: list[tuple[float, tuple[str, ...]]] = []
    for pool in choice.pools:
        for case in pool.cases:
            latencies = tuple(map(number, (case.ttft_ms.p95, case.tpot_ms.mean, case.e2e_ms.p95)))
            head = (case.name, number(case.requests_per_second))
            for use in case.limits:
                rows.append(
                    (
                        use.used or 0.0,
                        (
                            *head,
                            str(use.limit),
                            number(use.value_ms),
                            percent(use.used),
                            *latencies,
                        ),
                    )
                )
            if not case.limits:
                rows.append((0.0, (*head, "none", ABSENT, ABSENT, *latencies)))
    most_used = (
        rows
        if most_rows is None
        else [row for row in rows if row in sorted(rows, reverse=True)[:most_rows]]
    )
    rest_note = (
        f"… and {counted(len(rows) - len(most_used), 'more limit')}, less used"
        if len(most_used) < len(rows)
        else ""
    )
    shown = tuple(cells for _, cells in most_used)
    caption = (
        "What each use case sees at the peak of all: limits at the asked confidence, latencies as"
        " predicted"
    )
    return (
        Table(
            caption=caption,
            header=SEEN,
            rows=shown,
            spare=tuple(reversed(SEEN[5:])),
            note=rest_note,
        )
        if shown
        else None
    )


def _alone(use_cases: UseCases) -> Section:
    """State what each use case would take by itself on its own systems."""
    rows = []
    for name, plan in zip(use_cases.names, use_cases.plans, strict=True):
        best, question = plan.choice, dict(question_rows(plan))
        counts = (
            (ABSENT,) * 3
            if best is None
            else (f"{best.systems:,}", f"{best.gpus:,}", number(best.systems_exact))
        )
        rows.append((name, question["Question"], question["Demand"], question["Limits"], *counts))
    header = ("use case", "question", "demand", "limits", "systems", "GPUs", "systems exactly")
    table = Table(
        caption="What each would take alone", header=header, rows=tuple(rows), spare=("demand",)
    )
    return section("alone", "Each by itself", table)


def systems_text(arrangement: Arrangement) -> str:
    """Such as "2 × dgx-h100"."""
    return " + ".join(f"{system.systems:,} × {system.system}" for system in arrangement.systems)


def pool_text(pool: UseCasePool) -> str:
    """Such as "3 instances of FP8, TP 1, vllm-0.32 on h100-sxm-80gb for chat and rag"."""
    served = " and ".join(case.name for case in pool.cases)
    of = deployment_text(pool)
    return (
        f"{counted(pool.instances, 'instance')} ({number(pool.instances_exact)} exactly) of {of}"
        + (f" for {served}" if served else "")
    )


def arrangement_text(arrangement: Arrangement) -> str:
    """The systems, and what runs on them, in one line."""
    return (
        f"{systems_text(arrangement)} ({counted(arrangement.gpus_in_use, 'GPU')} of"
        f" {arrangement.gpus:,} in use): {'; '.join(map(pool_text, arrangement.pools))}"
    )


def cost_together_text(arrangement: Arrangement) -> str:
    """What all its systems cost a year, owned or rented, the cheaper first; "" where no price is
    known.
    """
    ways = (
        (arrangement.owned_usd_per_year, "on-prem"),
        (arrangement.rented_usd_per_year, "cloud GPUs"),
    )
    priced = sorted((usd, name) for usd, name in ways if usd is not None)
    return "; ".join(
        f"{name} {dollars(usd)} USD{'' if place else ' a year'}"
        for place, (usd, name) in enumerate(priced)
    )


def shares_text(arrangement: Arrangement) -> str:
    """State what each use case uses at the peak and in a year, and pays of the owned systems."""
    return "; ".join(
        f"{share.name} {percent(share.at_peak)} of the peak, {percent(share.over_year)} of the year"
        + ("" if share.usd_per_year is None else f", {dollars(share.usd_per_year)} USD a year")
        for share in (arrangement.shares if len(arrangement.shares) > 1 else ())
    )


def standbys_text(arrangement: Arrangement) -> str:
    """Standby systems for failures; where there are several kinds of systems or pools, of each by
    its name.
    """
    if len(arrangement.standby) < 2:
        return "".join(map(standby_text, arrangement.standby))
    names = [system.system for system in arrangement.systems]
    if arrangement.standby[0].unit == "instance":
        names = [
            pool_text(pool)
            for group in arrangement.systems
            for pool in arrangement.pools
            if pool.system == group.system
        ]
    return "; ".join(
        f"{name}: {standby_text(standby)}"
        for name, standby in zip(names, arrangement.standby, strict=True)
    )


def use_text(use: LimitUse) -> str:
    """A limit with its value, such as "TTFT p95 ≤ 500 ms: 329 ms"."""
    if use.value_ms is None:
        return f"{use.limit}: nothing to measure"
    return (
        f"{use.limit}:"
        f" {f'{number(use.value_ms)} ms' if use.limit.share is None else value_text(use.limit, use.value_ms)}"  # noqa: E501
    )


def _other_text(other_arrangement: Arrangement | None, why: NotShared | None) -> str:
    """Describe an arrangement that is not chosen, with its cost, or why there is none."""
    if other_arrangement is None:
        return "" if why is None else f"not possible: {not_shared_text(why)}"
    return "; ".join(
        filter(None, (arrangement_text(other_arrangement), cost_together_text(other_arrangement)))
    )


def background_text(job: Background) -> str:
    """State how much of a job in the background is free, and what the rest of it takes."""
    within = span(job.within_seconds)
    further_instances = f"{counted(job.more_instances, 'more instance')} for the rest"
    return (
        f"{job.name}: {number(job.requests)} requests within {within};"
        f" {percent(job.free_share)} of them are done in the hours and instances that the others"
        f" leave free ({number(job.free_requests)} would be)"
        + (f", {further_instances}" if job.more_instances else "")
    )


def saved_text(use_cases: UseCases) -> str:
    """What the choice saves against a fleet for each use case; of priorities, what one pool by
    priority saves against a pool for each and against first come, first served.
    """
    if use_cases.priorities is None:
        return _saved_together(use_cases)
    if use_cases.shared is None:
        return ""
    alternatives = {
        "a pool for each": use_cases.separate,
        "first come, first served": use_cases.first_come,
    }
    texts = [
        f"{_saved(use_cases.shared, arrangement)} against {name}"
        for name, arrangement in alternatives.items()
        if arrangement
    ]
    if use_cases.first_come is None and use_cases.background is None:
        texts.append("first come, first served breaks a limit on as many GPUs")
    return "; ".join(texts)


def _saved_together(use_cases: UseCases) -> str:
    """Systems and money that the choice saves against a fleet for each use case; "" of an old
    file.
    """
    apart, together = use_cases.alone, use_cases.choice
    if apart is None or together is None:
        return ""
    systems = [sum(kind.systems for kind in fleet.systems) for fleet in (apart, together)]
    gpus = apart.gpus - together.gpus
    parts = [counted(gpus, "GPU")] if gpus > 0 else []
    if systems[0] > systems[1]:
        in_gpus = f" ({parts[0]})" if parts else ""
        parts = [f"{counted(systems[0] - systems[1], 'system')}{in_gpus}"]
    usd = [fleet.owned_usd_per_year for fleet in (apart, together)]
    fleets = f"a fleet for each use case ({systems_text(apart)})"
    if not parts:
        return f"nothing against {fleets}"
    if usd[0] is not None and usd[1] is not None and usd[0] > usd[1]:
        parts.append(f"{dollars(usd[0] - usd[1])} USD a year on-prem")
    return f"{', '.join(parts)} against {fleets}"


def pool_name(use_cases: UseCases, arrangement: Arrangement, place: int) -> str:
    """The use cases of a pool."""
    return " and ".join(use_cases.served(arrangement, place))


def contents_text(use_cases: UseCases, arrangement: Arrangement, part: Placed) -> str:
    """The instances of a system, such as "2 × big (TP 4) + 3 × small (TP 1)"."""
    texts = [
        f"{count} × {pool_name(use_cases, arrangement, place)}"
        f" ({arrangement.pools[place].parallelism})"
        for place, count in enumerate(part.instances)
        if count
    ]
    return " + ".join(texts) or "nothing, on standby"


def placed_systems(part: Placed) -> str:
    """The systems by their numbers, such as "dgx-h100 1" or "dgx-h100 2 to 5"."""
    last = part.first + part.systems - 1
    return f"{part.system} {part.first:,}" + (f" to {last:,}" if part.systems > 1 else "")


def _contents(use_cases: UseCases, arrangement: Arrangement, part: Placed) -> str:
    """The instances of each system, and where one instance spans several, of how many."""
    per = "" if part.systems == 1 else " each"
    if part.spans > 1:
        per = f", an instance on {part.spans} systems"
    return f"{contents_text(use_cases, arrangement, part)}{per}"


MOST_PLACED = 6  # Groups of equal systems that the line names


def placement_text(use_cases: UseCases, arrangement: Arrangement) -> str:
    """Which system holds which instances, in one line; "" where one pool fills all of them."""
    if len(arrangement.pools) < 2:
        return ""
    texts = [
        f"{placed_systems(part)}: {_contents(use_cases, arrangement, part)}"
        + (
            f", {counted(part.free_gpus, 'GPU')} free"
            if part.free_gpus and any(part.instances)
            else ""
        )
        for part in arrangement.placement[:MOST_PLACED]
    ]
    more = len(arrangement.placement) - MOST_PLACED
    return "; ".join([*texts, *([f"… and {more} more kinds of contents"] if more > 0 else [])])


def lost_text(use_cases: UseCases, arrangement: Arrangement) -> str:
    """What the loss of one system takes at worst, and whether that finds free GPUs elsewhere; ""
    where one pool fills all systems.
    """
    lost = arrangement.lost
    if lost is None or len(arrangement.pools) < 2:
        return ""
    taken = [
        f"{count} of {pool.instances} {pool_name(use_cases, arrangement, place)}"
        for place, (count, pool) in enumerate(zip(lost.instances, arrangement.pools, strict=True))
        if count
    ]
    if not any(lost.without_gpus):
        return f"takes {_listed(taken)} at worst; all of them find free GPUs on the other systems"
    adds = f"{option('spare')} 1 adds a system for them"
    if lost.without_gpus == lost.instances:
        return f"takes {_listed(taken)} at worst, without free GPUs for them elsewhere; {adds}"
    without = [
        f"{count} {pool_name(use_cases, arrangement, place)}"
        for place, count in enumerate(lost.without_gpus)
        if count
    ]
    return f"takes {_listed(taken)} at worst; no free GPUs remain for {_listed(without)}; {adds}"


def _listed(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def placement_section(use_cases: UseCases) -> Section | None:
    """Which system holds which instances, as a table."""
    arrangement = use_cases.choice
    if arrangement is None or not arrangement.placement:
        return None
    rows = tuple(
        (
            placed_systems(part),
            f"{part.systems:,}",
            _contents(use_cases, arrangement, part),
            f"{part.free_gpus:,}" if part.systems == 1 else f"{part.free_gpus:,} each",
        )
        for part in arrangement.placement
    )
    table = Table(
        caption="Which system holds which instances, each pool on as many systems as possible",
        header=("systems", "number", "instances", "free GPUs"),
        rows=rows,
    )
    return section("placement", "Placement", table)


def smaller_systems_text(arrangement: Arrangement) -> str:
    """The smallest server that holds all instances, where half a system or more is free; ""
    elsewhere.
    """
    first = arrangement.pools[0]
    in_use = arrangement.gpus_in_use
    size = next((count for count in SERVERS if count >= in_use), first.gpus_per_system)
    others = {pool.system for pool in arrangement.pools[1:]}
    shared = "-mig-" in first.gpu or others - {first.system}
    if shared or 2 * size > first.gpus_per_system:
        return ""
    return (
        f"{counted(in_use, 'GPU')} would do; {option('system')} {size}x{first.gpu} counts in"
        f" servers of {counted(size, 'GPU')}"
    )


SLIGHT = 0.3
"""Share of one instance below which a use case may do with a slice of its GPU."""


def slices_text(use_cases: UseCases, arrangement: Arrangement) -> str:
    """Use cases that hardly use their GPUs, each of which MIG could divide; "" where fewer than two
    do.
    """
    slight = [
        (pool, place)
        for place, pool in enumerate(arrangement.pools)
        if pool.gpus == 1 and pool.instances_exact < SLIGHT
    ]
    gpu = gpu_spelled(slight[0][0].gpu) if len({pool.gpu for pool, _ in slight}) == 1 else None
    slices = None if gpu is None else small_slices(gpu)
    if slices is None or len(slight) < 2:
        return ""
    count, profile = slices
    used = [
        f"{pool_name(use_cases, arrangement, place)} {percent(pool.instances_exact)}"
        for pool, place in slight
    ]
    return (
        f"of a GPU for each, {_listed(used)} is used; {option('system')} {count}x{profile} for"
        " these files alone asks whether slices of one GPU (MIG) carry them"
    )


def hours_text(use_cases: UseCases) -> str:
    """By how much the hourly loads of the use cases together stay below the sum of their peaks; ""
    where not all have such a profile, or their peaks come together.
    """
    profiles = [plan.demand.profile or () for plan in use_cases.plans]
    if (
        use_cases.priorities is not None
        or len({len(profile) for profile in profiles}) > 1
        or not profiles[0]
    ):
        return ""
    shares = [[rate / max(profile) for rate in profile] for profile in profiles]
    gpus = [
        share.at_peak for share in (use_cases.choice.shares if use_cases.choice is not None else ())
    ] or [1 / len(shares)] * len(shares)
    hours = [
        math.fsum(part * share[hour] for part, share in zip(gpus, shares, strict=True))
        for hour in range(len(shares[0]))
    ]
    together = max(hours) / math.fsum(gpus)
    if together > SAME_HOURS:
        return ""
    peaks = [
        f"{name} in hour {share.index(1.0)}"
        for name, share in zip(use_cases.names, shares, strict=True)
    ]
    return (
        f"the peaks are at different hours ({_listed(peaks)}), and in the busiest hour"
        f" {percent(together)} of the GPUs have work; not counted, as instances keep their model"
    )


SAME_HOURS = 0.95
"""Share of the GPUs at work in the busiest hour above which the peaks count as at the same time."""


def _saved(shared: Arrangement, other_arrangement: Arrangement) -> str:
    """Systems and GPUs in use that an arrangement saves against another one."""
    systems = sum(kind.systems for kind in other_arrangement.systems) - sum(
        kind.systems for kind in shared.systems
    )
    gpus = other_arrangement.gpus_in_use - shared.gpus_in_use
    parts = [f"{counted(systems, 'system')}"] if systems > 0 else []
    parts += [f"{counted(gpus, 'GPU')} in use"] if gpus > 0 else []
    return " and ".join(parts) or "nothing"


def not_shared_text(why: NotShared) -> str:
    """Why one pool for all is not chosen, in one clause."""
    if why.code == "models":
        return f"{why.case} asks for another model, and an instance serves one"
    if why.code == "demand":
        return (
            f"{why.case} is a job, a closed loop or a replayed trace, which is not simulated with"
            " drawn arrivals"
        )
    if why.code == "more-gpus":
        return f"one pool for all would take {why.gpus:,} GPUs in place of {why.separate_gpus:,}"
    if why.code == "no-priority":
        return "no deployment inside the limits of each has an engine that serves by priority"
    if why.code == "no-deployment":
        who = f" of {why.case}" if why.case else " of all"
        return f"no deployment that was tried for all of them meets the limits{who}"
    broken = (
        "the load is too high"
        if why.breach is None
        else f"{why.case} has {breach_text(why.breach)}"
    )
    return f"in one pool on the {why.gpus:,} GPUs of the separate ones, {broken}"


def answer_text(use_cases: UseCases) -> str:
    """Name the choice in one line; else the use case without an answer, and what comes nearest."""
    if use_cases.choice is None:
        alone = dict(zip(use_cases.names, use_cases.plans, strict=True))
        case = "" if use_cases.not_shared is None else use_cases.not_shared.case
        if case not in alone:
            return NOBODY
        nearest = "; ".join(left_out_texts(alone[case])[:MOST_NEAREST])
        inside = f"{NOBODY}: {case} has no deployment inside its limits by itself"
        return f"{inside}; nearest: {nearest}" if nearest else inside
    how = "one pool for all" if len(use_cases.choice.pools) == 1 else "one pool for each model"
    if use_cases.chosen == "separate":
        how = "a pool for each"
    if use_cases.chosen == "first-come":
        how = f"{how}, first come, first served"
    elif use_cases.priorities is not None and use_cases.chosen == "shared":
        order = sorted(
            zip(use_cases.priorities, use_cases.names, strict=True), key=lambda pair: pair[0]
        )
        how = f"{how}, by priority: {', '.join(name for _, name in order)}"
    return f"{arrangement_text(use_cases.choice)}; {how}"
