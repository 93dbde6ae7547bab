"""The first page stands alone: answer, risk, cost and one figure, and nothing said twice."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example_plan import bare, full, without_answer
from tonnage.plan.confidence import Confidence
from tonnage.plan.sensitivity import Changed
from tonnage.report.document import Drawing, Facts, Items, Panels, Text
from tonnage.report.plans.first_page import WARNED, figure_of, first_glance, first_page, warned
from tonnage.report.plans.plan_document import FOLDED, report
from tonnage.report.plans.sensitivity import widest_text


def panels() -> dict[str, tuple[Text | Items | Facts, ...]]:
    blocks = first_page(full()).blocks
    return {panel.title: panel.blocks for block in blocks if isinstance(block, Panels) for panel in block.panels}


def test_it_holds_answer_cards_risk_cost_and_one_figure() -> None:
    kinds = [type(block) for block in first_page(full()).blocks]
    assert kinds == [Text, Facts, Panels, Drawing]
    assert set(panels()) == {"Risk", "Cost a year"}


def test_the_cards_are_the_plan_s_own_numbers() -> None:
    plan, cards = full(), dict(first_glance(full()))
    assert plan.choice is not None
    assert cards["systems to buy"] == str(plan.choice.systems)
    assert cards["GPUs"] == str(plan.choice.gpus)
    assert cards["of capacity, used at the peak"] == f"{plan.choice.utilisation:.0%}"
    sure = Confidence(meets=0.83, systems={"50": 4, "80": 5, "95": 6}, step_factors={}, metric="ttft_ms")
    surer = replace(plan, candidates=(replace(plan.choice, confidence=sure), *plan.candidates[1:]))
    assert dict(first_glance(surer))["probability that every limit holds"] == "83%"


def test_risk_says_what_moves_the_answer_most() -> None:
    found = full().sensitivity
    assert found is not None
    text = widest_text(found)
    assert text in [item for block in panels()["Risk"] if isinstance(block, Items) for item in block.items]
    far = replace(found.swings[0], high=Changed(change=0.2, systems=99, systems_exact=98.6, deployment=None, reason=None))
    assert "99 at +20 %" in widest_text(replace(found, swings=(far, *found.swings[1:])))
    assert widest_text(None) == ""


def test_warnings_beyond_the_first_few_stand_with_the_assumptions() -> None:
    crowded = replace(full(), warnings=full().warnings * (WARNED + 1))
    assumptions = next(section for section in report(crowded).sections if section.key == "assumptions")
    said = [item for block in assumptions.blocks if isinstance(block, Items) for item in block.items]
    risk = next(panel for block in first_page(crowded).blocks if isinstance(block, Panels) for panel in block.panels)
    shown = [item for block in risk.blocks if isinstance(block, Items) and block.tone == "warning" for item in block.items]
    assert shown == list(warned(crowded)[:WARNED])
    assert len(warned(crowded)) > WARNED
    assert said[: len(warned(crowded)) - WARNED] == list(warned(crowded)[WARNED:])


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
