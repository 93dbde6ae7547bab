"""The first screen of an answer: the question, the lines that answer it, the best other
deployments, and at most three warnings.

The lines are named here once, in their order; the page, the ten lines of --brief and the full text
take them from here. A line more is one more function and one more pair in ``answer_rows``.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tonnage.errors import option
from tonnage.plan.candidate import ROWS
from tonnage.plan.launch import foreign_word
from tonnage.plan.plan import Plan
from tonnage.report.document import (
    Document,
    Facts,
    Lines,
    Section,
    Table,
    Text,
    document,
    items,
    section,
)
from tonnage.report.numbers import sentence_of
from tonnage.report.plans import figures
from tonnage.report.plans.answer import (
    answer_text,
    capacity_text,
    checkpoint_text,
    finish_text,
    serving,
    smaller_text,
    standby_text,
)
from tonnage.report.plans.candidates import (
    MARKED_TOO,
    larger_text,
    nearest_table,
    others_block,
    reachable_text,
    runner_up_text,
)
from tonnage.report.plans.comparison import compared_table, measured_text
from tonnage.report.plans.confidence import (
    beyond_text,
    chance_text,
    confidence_text,
    measurement_text,
    not_sure_text,
)
from tonnage.report.plans.cost import cost_text, power_text
from tonnage.report.plans.deployments import narrow_cache_text, other_way_text
from tonnage.report.plans.explained import explained_section, risk_text, spread_text
from tonnage.report.plans.fleet import (
    admission_text,
    autoscaling_text,
    day_text,
    existing_text,
    growth_text,
    kept_text,
    prefix_cache_text,
    regions_text,
    router_text,
    sessions_text,
)
from tonnage.report.plans.horizon import horizon_text
from tonnage.report.plans.mixed import mixed_rows
from tonnage.report.plans.notes import data_texts, warning_text
from tonnage.report.plans.question import at_peak_text, latency, lengths_text, question_rows
from tonnage.report.writers.terminal import plot_text, terminal, width

MOST = 40  # lines of a first screen at most
BRIEF = 10  # lines of --brief at most
WARNED = 3  # warnings that a first screen and a first page show
# Lines that go where there are too many, the first to go first
SPARED = (
    *(
        "Smaller",
        "Capacity",
        "Measured",
        "Measuring",
        "Router",
        "Power",
        "KV in FP8",
        "Prefix hits",
        "Runner-up",
        "Start",
    ),
    *("A day", "Autoscaling", "Standby", "Growth", "Spread", "Risk"),
)
RESTS = "The answer rests in part on values that were not measured on this GPU and engine."
LABEL = 13  # letters of the column of names in --brief
Rows = tuple[tuple[str, str], ...]


def answer_rows(plan: Plan) -> Rows:
    """Name and text of each line of the answer; lines that do not apply are left out."""
    exists = (
        ("Have", "" if plan.existing is None else existing_text(plan.existing)),
        *mixed_rows(plan),
    )
    best = plan.choice
    if best is None:
        reached = ("Reachable", "" if plan.reachable is None else reachable_text(plan.reachable))
        return _filled(
            (*exists, ("Answer", answer_text(plan)), reached, ("Measured", measured_text(plan)))
        )
    day, peak = None if plan.existing is None else plan.existing.a_day, best.at_peak
    return _filled(
        (
            *exists,
            ("Answer", answer_text(plan)),
            ("Other way", other_way_text(plan)),
            ("Confidence", confidence_text(plan)),
            ("Caution", beyond_text(plan.beyond)),
            ("Checkpoint", checkpoint_text(plan, best)),
            ("Finish", "" if plan.job is None else finish_text(plan.job)),
            (
                "At the peak",
                "" if peak is None else at_peak_text(peak, plan.scenario.limits_that_count),
            ),
            (
                "Latency",
                (
                    ""
                    if peak is not None or plan.demand.offline
                    else "; ".join(latency(best, ("ttft", "tpot", "e2e")))
                ),
            ),
            ("Cost", cost_text(plan)),
            ("Horizon", "" if plan.horizon is None else horizon_text(plan.horizon)),
            ("Power", power_text(plan)),
            ("Runner-up", runner_up_text(plan)),
            ("Risk", risk_text(plan, best)),
            ("KV in FP8", narrow_cache_text(plan)),
            ("Measuring", measurement_text(plan.measurement)),
            (
                "Router",
                router_text(plan.routers, plan.scenario.limits_that_count, serving(plan, best)),
            ),
            ("Growth", "" if plan.growth is None else growth_text(plan.growth, best.systems)),
            ("Regions", "" if plan.regions is None else regions_text(plan.regions)),
            ("Standby", "" if best.standby is None else standby_text(best.standby)),
            ("Autoscaling", "" if plan.autoscaling is None else autoscaling_text(plan.autoscaling)),
            ("Sessions", sessions_text(plan)),
            ("Waiting", kept_text(plan)),
            (
                "Admission",
                "" if plan.session_tiers is None else admission_text(plan.session_tiers),
            ),
            ("Prefix hits", prefix_cache_text(plan.prefix_cache, best.systems)),
            ("A day", "" if day is None else day_text(day)),
            ("Spread", spread_text(plan)),
            ("Measured", measured_text(plan)),
            ("Capacity", capacity_text(plan, best)),
            ("Smaller", smaller_text(plan, best)),
        )
    )


def _filled(rows: Rows) -> Rows:
    return tuple(row for row in rows if row[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much of a first screen is shown: rows of its table, warnings, and how many of ``SPARED``
    are left out.

    Where ``clipped``, every line is cut after two.
    """

    rows: int = ROWS
    warnings: int = WARNED
    spared: int = 0
    clipped: bool = False


def _rooms() -> Iterator[Room]:
    yield from (Room(rows=rows) for rows in range(ROWS, 3, -1))
    yield from (Room(rows=4, warnings=warnings) for warnings in range(WARNED, 0, -1))
    yield from (Room(rows=4, warnings=1, spared=spared) for spared in range(1, len(SPARED) + 1))
    yield from (
        Room(rows=rows, warnings=1, spared=len(SPARED), clipped=True) for rows in range(4, -1, -1)
    )


def fitted(build: Callable[[Room], Sequence[Section]]) -> tuple[Section, ...]:
    """The sections with as much in them as fits into the lines of a first screen at the width of
    this terminal.
    """
    sections: tuple[Section, ...] = ()
    for room in _rooms():
        sections = tuple(section for section in build(room) if section.blocks)
        if len(terminal(Document(sections=sections)).splitlines()) <= MOST:
            break
    return sections


def screen(
    plans: Sequence[Plan], *, page: str = "report", explain: bool = False, plot: int | None = None
) -> Document:
    """The first screen of one plan, or of several models side by side; ``plot`` adds a plot of
    characters in so many columns.

    ``page`` is the option that writes the page; ``explain`` adds what takes time and memory.
    """
    more = section("more", "", Text(more_text(page)))
    build = _of_one if len(plans) == 1 else _of_several
    *sections, last = fitted(lambda room: (*build(plans, room), more))
    beyond = [
        part
        for plan in plans
        for part in (plotted(plan, plot), explained_section(plan) if explain else None)
        if part is not None
    ]
    return document(*sections, *(section for section in beyond if section.blocks), last)


def more_text(page: str) -> str:
    """Say how to see the rest."""
    return (
        f"{option('full')} prints every deployment, why the others are rejected, the sensitivity,"
        f" costs in parts and prices; {option(page)} FILE.html writes them as a page."
    )


def _of_one(plans: Sequence[Plan], room: Room) -> tuple[Section, ...]:
    (plan,) = plans
    alternatives = (
        nearest_table(plan, room.rows) if plan.choice is None else others_block(plan, room.rows)
    )
    says_marked = isinstance(alternatives, Table) and MARKED_TOO in alternatives.note
    rests = (
        Text(RESTS) if plan.choice is not None and plan.choice.marks and not says_marked else None
    )
    return (
        *head(plan, room),
        section("others", "", alternatives if room.rows else None, rests),
        _warned(warnings_of(plan), room),
    )


def warnings_of(plan: Plan) -> tuple[str, ...]:
    """The remarks on measured points, then the warnings as sentences, without the one that the line
    of the risk says.
    """
    risk = "" if plan.choice is None else sentence_of(risk_text(plan, plan.choice))
    return (
        *data_texts(plan),
        *(
            text
            for text in map(
                sentence_of,
                (warning_text(warning) + larger_text(plan, warning) for warning in plan.warnings),
            )
            if text != risk
        ),
    )


def head(plan: Plan, room: Room) -> tuple[Section, ...]:
    """Write the question, a warning where the answer is not sure, and the answer."""
    rows = tuple(row for row in answer_rows(plan) if row[0] not in SPARED[: room.spared])
    return (
        section("question", "", Facts(clipped(question_rows(plan), room))),
        section("not-sure", "", items((sentence_of(not_sure_text(plan)),), "warning")),
        section("answer", "", Facts(clipped(rows, room))),
    )


def _of_several(plans: Sequence[Plan], room: Room) -> tuple[Section, ...]:
    first, shown = plans[0], plans[: max(room.rows, 1)]
    models = " and ".join(
        filter(
            None, (", ".join(plan.scenario.model for plan in plans[:-1]), plans[-1].scenario.model)
        )
    )
    question = (("Question", f"{models}, {lengths_text(first)}"), *question_rows(first)[1:])
    unsure = tuple(
        f"{plan.scenario.model}: {sentence_of(text)}"
        for plan in plans
        if (text := not_sure_text(plan))
    )
    rest = (
        ((f"… and {len(plans) - len(shown)} more", "in the full text"),)
        if len(shown) < len(plans)
        else ()
    )
    answers = (*((plan.scenario.model, in_one(plan)) for plan in shown), *rest)
    warnings = tuple(
        f"{plan.scenario.model}: {text}" for plan in plans for text in warnings_of(plan)
    )
    return (
        section("question", "", Facts(clipped(question, room))),
        section("not-sure", "", items(unsure[: room.warnings], "warning")),
        section("answer", "", Facts(clipped(answers, room))),
        section("models", "", None if room.clipped else compared_table(shown, short=True)),
        _warned(warnings, room),
    )


def _warned(texts: Sequence[str], room: Room) -> Section:
    return section("warnings", "", items(tuple(texts[: room.warnings]), "warning"))


def clipped(rows: Rows, room: Room) -> Rows:
    """The lines; where there is no room for more, each cut after two."""
    if not room.clipped:
        return rows
    return tuple(
        (name, textwrap.shorten(text, 2 * (width() - 2 * LABEL), placeholder=" …"))
        for name, text in rows
    )


def plotted(plan: Plan, columns: int | None) -> Section:
    """Latency against load as a plot of characters; empty where it was not requested, or nothing is
    known of it.
    """
    figure = None if columns is None else figures.curve(plan)
    text = "" if figure is None or columns is None else plot_text(figure, columns)
    return section("plot", "Latency against load", Lines(text) if text else None)


def brief_lines(plans: Sequence[Plan], page: str = "report") -> tuple[str, ...]:
    """The answer in ten lines at most, none of them folded; of several models one line each."""
    rows = (
        _brief_rows(plans[0])
        if len(plans) == 1
        else tuple((plan.scenario.model, in_one(plan)) for plan in plans)
    )
    for name in SPARED if len(plans) == 1 else ():
        if len(rows) > BRIEF - 1:
            rows = tuple(row for row in rows if row[0] != name)
    if len(rows) > BRIEF - 1:
        rows = (*rows[: BRIEF - 2], ("…", f"and {len(rows) - BRIEF + 2} more models"))
    column = max(LABEL, *(len(name) + 2 for name, _ in rows))
    more = f"without {option('brief')} the best other deployments; {more_text(page)}"
    return tuple(f"{name:<{column}}{text}" for name, text in (*rows, ("More", more)))


def _brief_rows(plan: Plan) -> Rows:
    """The lines of the first screen, the question in one of them, and the command that starts an
    instance.
    """
    (_, question), (_, demand), (_, limits), *aim = question_rows(plan)
    question_row = (
        "Question",
        f"{question}; {demand}; limits: {limits}" + "".join(f"; aim: {text}" for _, text in aim),
    )
    best = plan.choice
    start = (
        ""
        if best is None or len(best.pools) != 1 or foreign_word(best.pool)
        else shlex.join(best.pool.launch)
    )
    if (
        best is not None
        and start
        and best.pool.model in best.pool.launch
        and (best.pool.model.endswith(".json") or "/" not in best.pool.model)
    ):
        start += f" ({best.pool.model} is Tonnage's name: put the checkpoint's in its place)"
    return _filled(
        (question_row, ("Not sure", not_sure_text(plan)), *answer_rows(plan), ("Start", start))
    )


def in_one(plan: Plan) -> str:
    """The answer in one line: what to buy or what runs, how sure that is, what it costs."""
    best = plan.choice
    if best is None:
        return answer_text(plan)
    sure = (
        ""
        if best.confidence is None
        else f"{chance_text(best.confidence.meets)} probability of meeting the limits"
    )
    return "; ".join(filter(None, (answer_text(plan), sure, cost_text(plan))))


def quiet_lines(plans: Sequence[Plan]) -> tuple[str, ...]:
    """The answer alone, one line for each plan; where it is not sure, that first."""
    lines = []
    for plan in plans:
        unsure = not_sure_text(plan)
        name = f"{plan.scenario.model}: " if len(plans) > 1 else ""
        lines.append(f"{name}{f'{unsure}; ' if unsure else ''}{answer_text(plan)}")
    return tuple(lines)
