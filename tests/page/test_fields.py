"""A link is a plan: forms, links and commands say the same question, and none of them leads out of
the run folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.api.question.confined_paths import check_inside
from tonnage.errors import InputError
from tonnage.page.fields import LONGEST_QUERY, command_of, query_of, question_of


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


OUTSIDE = [
    "/etc/passwd",
    "../x.csv",
    "a/../../x.json",
    "2x/etc/mine.yaml",
    "~/x",
    "~root/.ssh",
    "a\\b",
    "fitted,/etc/hosts",
    "a\0b",
    "host=/dev/zero",
]


@pytest.mark.parametrize("value", OUTSIDE)
def test_no_value_leads_out_of_the_run_folder(value: str, tmp_path: Path) -> None:
    for asked in ({"trace": value}, {"lengths": {"isl": [value]}}):
        with pytest.raises(InputError, match="outside of the folder"):
            check_inside(asked, tmp_path)


def test_a_link_of_the_file_system_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.csv").write_text("x")
    (tmp_path / "inside" / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(InputError, match="outside"):
        check_inside({"trace": "link.csv"}, tmp_path / "inside")


def test_hidden_files_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in (".env", ".git/config"):
        (tmp_path / name).write_text("x")
        with pytest.raises(InputError, match="outside"):
            check_inside({"trace": name}, tmp_path)
    check_inside({"share": ".5", "trace": "./trace.csv"}, tmp_path)


INSIDE = [
    "trace.csv",
    "meta-llama/Llama-3.1-8B",
    "5%/month",
    "50GB/s",
    "host=256GB@50GB/s,disk=4TB@6GB/s",
    "4000/300 0.1",
    "200k USD/year",
    "2/s for 60s, 20/s for 10s",
    "5x400",
]


@pytest.mark.parametrize("value", INSIDE)
def test_what_people_write_is_let_through(value: str, tmp_path: Path) -> None:
    check_inside({"any": value}, tmp_path)
