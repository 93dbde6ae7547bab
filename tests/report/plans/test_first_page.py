"""The first page stands alone: the answer, its numbers, the lines of the first screen, and one figure."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example_plan import bare, full, without_answer
from tonnage.plan.candidate import Confidence
from tonnage.report.document import Drawing, Facts, Items, Text
from tonnage.report.plans.plan_document import FOLDED, figure_of, first_glance, first_page, report
from tonnage.report.plans.question import question_rows
from tonnage.report.plans.screen import WARNED, answer_rows, warnings_of


def test_it_holds_answer_cards_lines_warnings_and_one_figure() -> None:
    kinds = [type(block) for block in first_page(full()).blocks]
    assert kinds == [Text, Facts, Facts, Items, Drawing]


def test_its_lines_are_those_of_the_first_screen_and_nothing_is_said_twice() -> None:
    plan = full()
    said = [row for block in first_page(plan).blocks if isinstance(block, Facts) and not block.big for row in block.rows]
    (_, answer), *rows = answer_rows(plan)
    assert said == [*question_rows(plan), *rows]
    assert first_page(plan).blocks[0] == Text(text=f"{answer}.", tone="answer")


def test_an_answer_that_is_not_sure_begins_with_that() -> None:
    plan = full()
    assert plan.choice is not None
    sure = Confidence(meets=0.6, systems={"50": 5, "80": None, "95": None}, step_factors={}, metric="ttft_ms")
    unsure = replace(plan, candidates=(replace(plan.choice, confidence=sure),))
    first = first_page(unsure).blocks[0]
    assert isinstance(first, Items)
    assert (first.tone, first.items) == ("warning", ("Nothing that was asked for reaches 80%.",))


def test_the_cards_are_the_plan_s_own_numbers() -> None:
    plan, cards = full(), dict(first_glance(full()))
    assert plan.choice is not None
    assert cards["systems to buy"] == str(plan.choice.systems)
    assert cards["GPUs"] == str(plan.choice.gpus)
    assert cards["of capacity, used at the peak"] == f"{plan.choice.utilisation:.0%}"
    sure = Confidence(meets=0.83, systems={"50": 4, "80": 5, "95": 6}, step_factors={}, metric="ttft_ms")
    surer = replace(plan, candidates=(replace(plan.choice, confidence=sure), *plan.candidates[1:]))
    assert dict(first_glance(surer))["probability that every limit holds"] == "83%"


def test_warnings_beyond_the_first_few_stand_with_the_assumptions() -> None:
    crowded = replace(full(), warnings=full().warnings * (WARNED + 1))
    assumptions = next(section for section in report(crowded).sections if section.key == "assumptions")
    said = [item for block in assumptions.blocks if isinstance(block, Items) for item in block.items]
    shown = [item for block in first_page(crowded).blocks if isinstance(block, Items) and block.tone == "warning" for item in block.items]
    warned = warnings_of(crowded)
    assert shown == list(warned[:WARNED])
    assert len(warned) > WARNED
    assert said[: len(warned) - WARNED] == list(warned[WARNED:])


def test_the_figure_of_the_first_page_is_not_drawn_again() -> None:
    for plan in (full(), replace(full(), curve=()), replace(full(), curve=(), cost=None)):
        keys = [block.figure.key for section in report(plan).sections for block in section.blocks if isinstance(block, Drawing)]
        assert len(keys) == len(set(keys))
        found = figure_of(plan)
        assert found is not None
        assert found[0] in {section.key for section in report(plan).sections}, "its numbers have a section"


def test_a_plan_without_an_answer_or_a_figure_has_a_first_page() -> None:
    assert isinstance(first_page(without_answer()).blocks[0], Text)
    assert figure_of(bare()) is None


def test_long_sections_are_folded_and_the_answer_never_is() -> None:
    folded = {section.key for section in report(full()).sections if section.folded}
    assert folded == set(FOLDED)


def test_where_nothing_meets_the_limits_the_reasons_are_open() -> None:
    assert "rejected" not in {section.key for section in report(without_answer()).sections if section.folded}
