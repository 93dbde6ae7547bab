"""A link is a plan: forms, links and commands say the same question, and none of them leads out of
the run folder."""

from __future__ import annotations

from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.page.fields import LONGEST_QUERY, command_of, form, query_of, question_of


def test_a_form_and_its_link_are_the_same_question() -> None:
    asked = question_of(
        "model=llama-3.1-8b&isl=2000&osl=200&demand=peak&peak_rps=300&users=&ttft.at=p95&ttft.ms=500&tpot.at=&tpot.ms=50"
    )
    assert asked == {
        "model": "llama-3.1-8b",
        "isl": "2000",
        "osl": "200",
        "peak_rps": "300",
        "ttft": ["p95<=500ms"],
    }
    assert question_of(query_of(asked)) == asked


def test_the_form_of_the_demand_that_is_chosen_counts_alone() -> None:
    asked = question_of(
        "demand=users&users=5000&requests_per_user_day=30&peak_rps=300&peak_factor=3&trace=a.csv"
    )
    assert asked == {"users": "5000", "requests_per_user_day": "30", "peak_factor": "3"}


def test_boxes_of_one_name_are_joined_and_switches_are_switches() -> None:
    asked = question_of(
        "gpu=l40s&gpu=h100-sxm-80gb&autoscale=true&chunked_prefill=false&disaggregated=true"
    )
    assert asked == {
        "autoscale": True,
        "gpu": "l40s,h100-sxm-80gb",
        "chunked_prefill": False,
        "disaggregated": True,
    }
    assert (
        command_of(asked)
        == "./tonnage size --autoscale --gpu l40s,h100-sxm-80gb --no-chunked-prefill"
        " --disaggregated"
    )


def test_classes_of_traffic_are_lines_of_one_field_and_repeated_in_a_link() -> None:
    chat, batch = "chat:peak_rps=20,isl=1000,ttft=p95<=500ms", "batch:peak_rps=5,osl=800"
    asked = question_of(f"model=gpt-j-6b&classes={chat}%0D%0A%0A{batch}")
    assert asked == {"model": "gpt-j-6b", "classes": [chat, batch]}
    assert question_of(query_of(asked)) == asked
    assert question_of(f"class={chat}&class={batch}") == {"classes": [chat, batch]}
    assert command_of(asked).endswith(f"--class '{chat}' --class {batch}")
    page = form(asked)
    assert f"{escape(chat)}\n{escape(batch)}</textarea>" in page
    assert "<details open><summary>Classes of traffic" in page
    assert "<details><summary>Classes of traffic" in form({})


@given(
    st.dictionaries(
        st.sampled_from(["title", "model", "isl", "have", "growth"]),
        st.text(min_size=1, max_size=30).map(str.strip).filter(bool),
    )
)
def test_any_text_comes_back_from_its_link(asked: dict[str, str]) -> None:
    assert question_of(query_of(asked)) == asked


@pytest.mark.parametrize(
    "query",
    [
        "frobnicate=1",
        "x" * (LONGEST_QUERY + 1),
        f"title={'x' * 2001}",
        "ttft.when=1",
        "__class__=1",
    ],
)
def test_what_no_question_has_is_refused(query: str) -> None:
    with pytest.raises(InputError):
        question_of(query)
