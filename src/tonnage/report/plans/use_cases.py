"""Several use cases on one fleet: what is chosen, what each use case sees there, and what the other arrangement would take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.document import Document, Facts, Section, Table, Text
from tonnage.report.numbers import ABSENT, number, percent
from tonnage.report.plans.plan_document import made_by, named_sections
from tonnage.report.plans.summary import question_lines
from tonnage.report.wording.limits import limit_text
from tonnage.report.wording.use_cases import answer_text, arrangement_text, not_shared_text

if TYPE_CHECKING:
    from tonnage.plan.use_cases import Arrangement, UseCases

SEEN = ("use case", "requests/s", "limit", "value ms", "used", "TTFT p95 ms", "TPOT mean ms", "E2E p95 ms")
BOUND = "Values of limits are those at the asked confidence; the latencies beside them are predicted. An ITL percentile is an upper bound."


def use_cases_text(found: UseCases) -> Document:
    """The answer as a terminal shows it: the choice, and each use case by itself in short."""
    return Document(title="", subtitle="", sections=(*_sections(found), _alone(found)))


def use_cases_report(found: UseCases) -> Document:
    """The answer as a page: the choice, then the whole report of each use case by itself."""
    named = zip(found.names, found.plans, strict=True)
    alone = [one for place, (name, plan) in enumerate(named, 1) for one in named_sections(plan, f"{name}, by itself", place)]
    title = f"{len(found.names)} use cases on one fleet"
    return Document(title=title, subtitle=made_by(found.plans[0]), sections=(*_sections(found), _alone(found), *alone))


def brief_lines(found: UseCases) -> tuple[str, ...]:
    """The answer in a few lines, none of them folded."""
    rows = [*_answer(found)]
    if found.choice is not None:
        rows += [(name, "; ".join(_limits(found.choice, name)) or "no limits") for name in found.names]
    column = max(13, *(len(name) + 2 for name, _ in rows))
    return tuple(f"{name:<{column}}{text}" for name, text in rows)


def _answer(found: UseCases) -> tuple[tuple[str, str], ...]:
    """Name and text of each line."""
    rows = [("Answer", answer_text(found))]
    if found.choice is not None:
        other, name = (found.separate, "Separate") if found.chosen == "shared" else (found.shared, "Shared")
        rows.append((name, "" if other is None else arrangement_text(other)))
        rows.append(("Not shared", "" if found.not_shared is None else not_shared_text(found.not_shared)))
    return tuple(row for row in rows if row[1])


def _sections(found: UseCases) -> tuple[Section, ...]:
    parts = [section("use-cases", "Use cases on one fleet", Facts(rows=_answer(found)))]
    if found.choice is not None:
        parts.append(section("seen", "What each use case sees at the peak of all", _seen(found.choice), Text(text=BOUND, tone="note")))
    return tuple(parts)


def _limits(choice: Arrangement, name: str) -> list[str]:
    """Each limit of a use case with its value."""
    from tonnage.report.wording.use_cases import use_text

    return [use_text(use) for pool in choice.pools for case in pool.cases if case.name == name for use in case.limits]


def _seen(choice: Arrangement) -> Table | None:
    """A row for each limit of each use case."""
    rows = []
    for pool in choice.pools:
        for case in pool.cases:
            latencies = tuple(map(number, (case.ttft_ms.p95, case.tpot_ms.mean, case.e2e_ms.p95)))
            head = (case.name, number(case.requests_per_second))
            for use in case.limits:
                rows.append((*head, limit_text(use.limit), number(use.value_ms), percent(use.used), *latencies))
            if not case.limits:
                rows.append((*head, "none", ABSENT, ABSENT, *latencies))
    return Table(caption="Limits, and latencies beside them", header=SEEN, rows=tuple(rows), spare=SEEN[-1:]) if rows else None


def _alone(found: UseCases) -> Section:
    """What each use case would take by itself on systems of its own."""
    rows = []
    for name, plan in zip(found.names, found.plans, strict=True):
        best, asked = plan.choice, dict(question_lines(plan).rows)
        if best is None:
            rows.append((name, asked["Question"], asked["Demand"], asked["Limits"], ABSENT, ABSENT))
        else:
            rows.append((name, asked["Question"], asked["Demand"], asked["Limits"], f"{best.systems:,}", number(best.systems_exact)))
    header = ("use case", "question", "demand", "limits", "systems", "systems exactly")
    note = items(("Each by itself on systems of its own; tonnage size with that scenario alone says more.",), "note")
    return section(
        "alone", "Each by itself", Table(caption="What each would take", header=header, rows=tuple(rows), spare=("demand",)), note
    )
