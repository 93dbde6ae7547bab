"""A model and a GPU without measurements are marked wherever the answer is read: as text, in short, as JSON and in the report."""

from __future__ import annotations

import json
import re

import pytest

from tonnage import api
from tonnage.plan.plan import Plan
from tonnage.report.plans.candidates import MARKED, MARKED_TOO
from tonnage.report.plans.plan_document import full_text, report
from tonnage.report.plans.screen import RESTS, screen
from tonnage.report.writers.html import html
from tonnage.report.writers.markdown import markdown
from tonnage.report.writers.terminal import terminal

MODEL, GPU = "qwen3.5-4b: no measurements of this model", "rtx-5090: no measurements"


@pytest.fixture(scope="module")
def plan() -> Plan:
    asked = {"isl": 500, "osl": 50, "peak_rps": 5, "ttft": "p95<=1s", "tp": "1", "engine": "vllm-0.19"}
    return api.size(model="qwen3.5-4b", gpu="rtx-5090", **asked)


def test_the_choice_and_its_notes_hold_the_marks_in_json(plan: Plan) -> None:
    document = json.loads(json.dumps(plan.to_json()))
    assert plan.choice is not None
    for mark in (MODEL, GPU):
        assert any(mark in one for one in plan.choice.marks)
        assert mark in json.dumps(document["candidates"][0]["marks"])
        assert mark in json.dumps(document["notes"])


@pytest.mark.parametrize("mark", [MODEL, GPU])
def test_text_and_report_say_them(plan: Plan, mark: str) -> None:
    text = " ".join(terminal(full_text((plan,))).split())
    assert mark in text
    assert mark in " ".join(markdown(report(plan)).split())
    assert mark in re.sub("<[^>]*>", "", html(report(plan)))


def test_candidates_have_a_star_and_a_word_of_what_it_means(plan: Plan) -> None:
    text = terminal(full_text((plan,)))
    assert plan.choice is not None
    assert f"{plan.choice.engine}*" in text
    assert MARKED in " ".join(text.split())


def test_the_first_screen_says_that_the_answer_rests_on_what_was_not_measured(plan: Plan) -> None:
    text = " ".join(terminal(screen((plan,))).split())
    assert RESTS in text or MARKED_TOO in text
