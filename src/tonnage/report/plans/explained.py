"""Why a plan chose what it did: what its time and memory go to, and what every other kind of GPU
and format would have taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.plan.candidate import Candidate
from tonnage.plan.notes import BurstyTrace
from tonnage.plan.plan import TERMS, Explanation, Plan
from tonnage.plan.reason import NotSure
from tonnage.plan.sensitivity import Changed, Input, Relaxed, Sensitivity, Swing
from tonnage.report.document import Block, Document, Facts, Section, Table, Text, items, section
from tonnage.report.numbers import counted, number, percent, signed, usd
from tonnage.report.plans.answer import answer_text
from tonnage.report.plans.candidates import reason_text, rejected_section, yearly_costs
from tonnage.report.plans.confidence import counted_text, fleet_check_text, not_sure_text
from tonnage.report.plans.deployments import MEMORY, deployments, exact_number
from tonnage.report.plans.horizon import horizon_section
from tonnage.report.plans.notes import warning_text
from tonnage.report.plans.question import bound_text, first_text, question_rows, value_text

FRONT_END_FELT = 0.3  # share of its time from which a busy front end is mentioned
FRONT_END_LIMITS = 0.85  # share of its time from which a busy front end counts as the limit
TITLE = "Where time and memory go"
BESIDE = (
    "deployment",
    "systems",
    "GPUs",
    "requests/s per GPU",
    "USD a year",
    "in place of the choice",
)


def explained_section(plan: Plan) -> Section:
    """The section in numbers; empty where nothing was taken apart."""
    return section(
        "explain",
        TITLE,
        explained_items(plan),
        ttft_table(plan),
        step_table(plan),
        limits_table(plan),
        memory_table(plan),
    )


def explained_items(plan: Plan) -> Block | None:
    """Describe a mean step, what takes most of it, and how busy the front end is."""
    return (
        None
        if plan.explain is None
        else items(_sentences(plan.explain, len(plan.choice.pools) if plan.choice else 1))
    )


def _sentences(explained: Explanation, pools: int) -> tuple[str, ...]:
    where = (
        ""
        if pools == 1
        else (
            f"of a {'decode' if explained.decode_sequences else 'prefill'} instance, whose pool"
            " ends the load, "
        )
    )
    step_term = next((term for term in explained.terms if term.term == explained.binds), None)
    contents = (
        (explained.prefill_tokens, "prompt tokens"),
        (explained.decode_sequences, "requests that decode"),
    )
    lines = [
        f"At the highest load inside the limits, a mean step {where}takes"
        f" {number(explained.step_seconds * 1e3)} ms for "
        f"{' and '.join(f'{number(count)} {name}' for count, name in contents if count or not where)}."  # noqa: E501
    ]
    if step_term is not None:
        lines.append(
            f"Its largest part, {percent(step_term.share)}, is this:"
            f" {TERMS.get(step_term.term, step_term.term)}."
        )
    busy = explained.front_end_busy
    if busy >= FRONT_END_LIMITS:
        lines.append(
            f"The front end is busy {percent(busy)} of the time, which limits: a further API server"
            " or a larger stream interval relieves it."
        )
    elif busy >= FRONT_END_FELT:
        lines.append(f"The front end is busy {percent(busy)} of the time.")
    return tuple(lines)


TTFT_PARTS = {
    "front_end_ms": "front end: the way in, and the token's way back",
    "queue_ms": "queue: until the first step with its prompt",
    "prefill_ms": "steps of its prompt, on an idle instance",
    "shared_ms": "other requests in these steps and between them",
    "handover_ms": "KV transfer, then queue and first step of the decode pool",
}


def ttft_table(plan: Plan) -> Table | None:
    """Milliseconds of a mean and of a p95 TTFT by where they go, and what a prefix cache saves of
    them.
    """
    if plan.explain is None or not plan.explain.ttft:
        return None
    columns = plan.explain.ttft
    rows = [
        (words, *(number(getattr(of, part)) for of in columns))
        for part, words in TTFT_PARTS.items()
    ]
    rows = [
        row
        for row, part in zip(rows, TTFT_PARTS, strict=True)
        if any(getattr(of, part) for of in columns)
    ]
    rows.append(
        ("in all", *(number(sum(getattr(of, part) for part in TTFT_PARTS)) for of in columns))
    )
    if any(of.saved_ms for of in columns):
        rows.append(("saved by the prefix cache", *(number(of.saved_ms) for of in columns)))
    header = ("part", *(f"{of.statistic}, ms" for of in columns))
    return Table(caption="Where a TTFT goes at that load", header=header, rows=tuple(rows))


def step_table(plan: Plan) -> Table | None:
    """Milliseconds of a mean step by what takes them, the largest first."""
    if plan.explain is None or not plan.explain.terms:
        return None
    rows = tuple(
        (TERMS.get(t.term, t.term), number(t.seconds * 1e3), percent(t.share))
        for t in plan.explain.terms
        if t.seconds
    )
    return Table(
        caption="A mean step by what takes its time",
        header=("part", "ms", "share"),
        rows=rows,
        folded=True,
    )


def limits_table(plan: Plan) -> Table | None:
    """How far each limit is used at the highest load inside them."""
    if plan.explain is None or not plan.explain.limits:
        return None
    rows = []
    for use in plan.explain.limits:
        milliseconds = (
            use.value_ms if use.limit.share is None and not use.limit.asked.is_ratio else None
        )
        rows.append((str(use.limit), number(milliseconds), percent(use.used)))
    return Table(
        caption="The limits at that load", header=("limit", "ms", "used"), rows=tuple(rows)
    )


def memory_table(plan: Plan) -> Table | None:
    """Gigabytes of one GPU by use; None where they are not known."""
    if plan.choice is None or len(plan.choice.pools) != 1 or not plan.choice.memory:
        return None
    rows = tuple(
        (MEMORY[part.part], number(part.bytes_per_gpu / 1e9), percent(part.share))
        for part in plan.choice.memory
    )
    return Table(
        caption="Memory of one GPU", header=("part", "GB", "share"), rows=rows, folded=True
    )


def why_text(plans: Sequence[Plan]) -> Document:
    """The reasons of one plan, or of several one after the other."""
    return Document(
        sections=tuple(part for plan in plans for part in _sections(plan) if part.blocks)
    )


def _sections(plan: Plan) -> tuple[Section, ...]:
    return (
        section("question", "", Facts(question_rows(plan))),
        section("answer", "Why this answer", items(tuple(_reasons(plan)))),
        section("beside", "Why not another", _best_elsewhere(plan)),
        explained_section(plan),
        horizon_section(plan),
        sensitivity_section(plan),
        rejected_section(plan),
    )


def _reasons(plan: Plan) -> Iterator[str]:
    best = plan.choice
    if best is None:
        yield f"Nothing was chosen: {answer_text(plan)}; the reasons are below."
        return
    yield f"Chosen for the {first_text(plan)}: {answer_text(plan)}."
    load, rate = plan.demand.sizing_requests_per_second, best.sized_rate
    counted_on = f"{number(rate)}{counted_text(best)}"
    of_system = counted(best.pools[0].fleet.instances_per_system, "instance")
    yield (
        f"The load is {number(load)} requests/s, and one instance is counted with {counted_on}:"
        f" {number(load / rate)} instances, which is {number(best.systems_exact)} systems of"
        f" {of_system} each."
    )
    yield f"One instance carries no more because of {bound_text(best.binds)}."
    check = plan.fleet_check
    if check is not None and check.systems != check.by_division:
        yield (
            f"The division asks for {check.by_division} systems; the whole fleet, simulated, holds"
            f" the limits on {check.systems}."
        )
    risk, unsure = risk_text(plan, best), not_sure_text(plan)
    if unsure:
        yield f"{unsure}."
    if risk:
        yield f"What is most likely to make it wrong: {risk}."


def _best_elsewhere(plan: Plan) -> Table | None:
    """The best candidate of every other GPU, format and engine, with what it would take more."""
    if plan.choice is None:
        return None
    choice_usd, *_ = costs = yearly_costs(plan)
    kinds, rows = {_kind(plan.choice)}, []
    for candidate, usd_per_year in zip(plan.candidates[1:], costs[1:], strict=True):
        if _kind(candidate) in kinds:
            continue
        kinds.add(_kind(candidate))
        more = f"{candidate.gpus - plan.choice.gpus:+,} GPUs".replace("-", "−")
        dearer = (
            ""
            if choice_usd is None or usd_per_year is None
            else f", {usd_per_year - choice_usd:+,.0f} USD a year".replace("-", "−")
        )
        cells = (
            f"{candidate.systems:,}",
            f"{candidate.gpus:,}",
            number(candidate.requests_per_second_per_gpu),
        )
        rows.append((deployments(candidate), *cells, usd(usd_per_year), more + dearer))
    return (
        Table(
            caption="The best of every other kind inside the limits",
            header=BESIDE,
            rows=tuple(rows),
        )
        if rows
        else None
    )


def _kind(candidate: Candidate) -> tuple[str, ...]:
    return tuple(f"{pool.gpu} {pool.precision} {pool.engine}" for pool in candidate.pools)


INPUTS: dict[Input, str] = {
    "isl": "input length",
    "osl": "output length",
    "rate": "requests per second",
    "step_time": "step time (model error)",
}

# A rise of each input, after its size
MORE: dict[Input, str] = {
    "isl": "longer prompts",
    "osl": "longer answers",
    "rate": "more requests",
    "step_time": "slower steps",
}


def sensitivity_section(plan: Plan, drawn: Block | None = None) -> Section:
    """The section; empty where nothing was changed. ``drawn`` is a figure that shows the table
    too.
    """
    sensitivity, table = plan.sensitivity, sensitivity_table(plan)
    if sensitivity is None or table is None:
        return section("sensitivity", "What would change the answer")
    line = (
        None
        if sensitivity.relaxed is None
        else Text(f"The cheapest limit to relax: {relaxed_text(sensitivity.relaxed)}.")
    )
    return section(
        "sensitivity", "What would change the answer", drawn or table, spreads_table(plan), line
    )


def sensitivity_table(plan: Plan) -> Table | None:
    """One row for each input, lower and higher; None where nothing was changed."""
    sensitivity = plan.sensitivity
    if sensitivity is None or not sensitivity.swings:
        return None
    size = 0 if plan.choice is None else gpus_per_system(plan.choice)
    rows = tuple(
        (
            INPUTS[swing.input],
            signed(swing.low.change),
            needed(swing.low, size),
            signed(swing.high.change),
            needed(swing.high, size),
        )
        for swing in sensitivity.swings
    )
    caption = (
        f"Systems when one input changes; now {counted(sensitivity.systems, 'system')},"
        f" {exact_number(sensitivity.systems_exact)} exactly"
    )
    return Table(
        caption=caption, header=("input", "lower", "systems", "higher", "systems"), rows=rows
    )


def spreads_table(plan: Plan) -> Table | None:
    """One row for each other spread of the lengths; None where theirs is no assumption."""
    sensitivity = plan.sensitivity
    if sensitivity is None or not sensitivity.spreads:
        return None
    size = 0 if plan.choice is None else gpus_per_system(plan.choice)
    rows = tuple(
        (spread_name(spread.spread), spread.isl, spread.osl, needed(spread.answer, size))
        for spread in sensitivity.spreads
    )
    return Table(
        caption="Systems with other spreads of the lengths",
        header=("spread", "ISL", "OSL", "systems"),
        rows=rows,
    )


def spread_name(spread: str) -> str:
    """A spread in words, such as "lengths within ±20%"."""
    if spread == "exact":
        return "requests of equal length"
    return (
        f"lengths within ±{spread}" if spread.endswith("%") else f"the spread of recorded {spread}"
    )


def spread_text(plan: Plan) -> str:
    """State what other spreads of the lengths take, where that is another number of systems; ""
    elsewhere.
    """
    sensitivity, best = plan.sensitivity, plan.choice
    if sensitivity is None or best is None:
        return ""
    size = gpus_per_system(best)
    before = sensitivity.systems * size
    parts = []
    for spread in sensitivity.spreads:
        systems, gpus = spread.answer.systems, spread.answer.gpus
        if systems is None:
            parts.append(f"with {spread_name(spread.spread)} nothing meets the limits as surely")
        elif other_size(spread.answer, size):
            where = (
                "" if spread.answer.deployment is None else f" of {spread.answer.deployment.gpu}"
            )
            parts += (
                [
                    f"with {spread_name(spread.spread)} it takes {gpus:,} GPUs{where} in place of"
                    f" {before:,}"
                ]
                if gpus != before
                else []
            )
        elif systems != sensitivity.systems:
            parts.append(
                f"with {spread_name(spread.spread)} it takes {counted(systems, 'system')} in place"
                f" of {sensitivity.systems:,}"
            )
    return "; ".join(parts)


def needed(changed: Changed, gpus_per_system: int = 0) -> str:
    """Such as "6 (5.77 exactly)", with its GPUs where its systems are of another size than
    ``gpus_per_system``; or why there is none.
    """
    if changed.systems is None:
        return "none" if changed.reason is None else f"none: {reason_text(changed.reason)}"
    gpus = f"; {counted(changed.gpus, 'GPU')}" if other_size(changed, gpus_per_system) else ""
    return f"{changed.systems:,} ({exact_number(changed.systems_exact or 0.0)}{gpus})"


def other_size(changed: Changed, gpus_per_system: int) -> bool:
    """Whether its systems hold another number of GPUs than those of the choice."""
    comparable = changed.gpus > 0 and changed.systems is not None and gpus_per_system > 0
    return comparable and changed.gpus != (changed.systems or 0) * gpus_per_system


def risk_text(plan: Plan, best: Candidate) -> str:
    """State what is most likely to make the answer wrong; "" where nothing is known of it."""
    check = plan.fleet_check
    if check is not None and not check.holds:
        return fleet_check_text(check)
    bursts = next((warning for warning in plan.warnings if isinstance(warning, BurstyTrace)), None)
    if bursts is not None:
        return warning_text(bursts)
    if plan.sensitivity is not None and plan.sensitivity.swings:
        return riskiest_text(plan.sensitivity, gpus_per_system(best))
    if plan.warnings:
        return warning_text(plan.warnings[0])
    return f"rests in part on {best.marks[0]}" if best.marks else ""


def gpus_per_system(best: Candidate) -> int:
    """GPUs of one system of the choice; 0 where its pools have systems of several sizes."""
    sizes = {pool.gpus_per_system for pool in best.pools}
    return sizes.pop() if len(sizes) == 1 else 0


def riskiest_text(sensitivity: Sensitivity, per_system: int = 0) -> str:
    """The input whose rise needs the most GPUs, read off the figures: "with 20% longer prompts it
    takes 3 systems in place of 2".

    Args:
        per_system: GPUs in one system of the choice; where the other answer has systems of another
            size, both are given in GPUs.
    """
    rises = [swing for swing in sensitivity.swings if swing.input in MORE]
    none = next((rise for rise in rises if rise.high.systems is None), None)
    if none is not None:
        short = (
            "is as sure as the answer"
            if isinstance(none.high.reason, NotSure)
            else "meets the limits"
        )
        return f"with {_more(none)} nothing {short}"
    worst = max(
        rises,
        key=lambda swing: (
            swing.high.gpus or swing.high.systems or 0,
            swing.high.systems_exact or 0.0,
        ),
    )
    high, systems, exact = worst.high, worst.high.systems or 0, worst.high.systems_exact or 0.0
    if other_size(high, per_system) and high.gpus > sensitivity.systems * per_system:
        where = "" if high.deployment is None else f" of {high.deployment.gpu}"
        return (
            f"with {_more(worst)} it takes {high.gpus:,} GPUs{where} in place of"
            f" {sensitivity.systems * per_system:,}"
        )
    if not other_size(high, per_system) and systems > sensitivity.systems:
        return (
            f"with {_more(worst)} it takes {systems:,} systems in place of {sensitivity.systems:,}"
        )
    return (
        f"no input {100 * high.change:.0f}% higher takes more GPUs; {MORE[worst.input]} come"
        f" nearest ({number(exact)} systems exactly)"
    )


def _more(swing: Swing) -> str:
    return f"{100 * swing.high.change:.0f}% {MORE[swing.input]}"


def relaxed_text(relaxed: Relaxed) -> str:
    """Such as "TTFT p95 500 → 620 ms: one system fewer"."""
    limit = relaxed.limit
    before, after = value_text(limit, limit.milliseconds), value_text(limit, relaxed.to_ms)
    if before.split()[-1] == after.split()[-1]:
        before = before.split()[0]
    count = "one system" if relaxed.saved == 1 else f"{relaxed.saved} systems"
    gpus_words = f", {counted(relaxed.gpus, 'GPU')} in all" if relaxed.gpus else ""
    return f"{limit.name} {before} → {after}: {count} fewer{gpus_words}"
