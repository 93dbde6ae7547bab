"""What a plan costs: the course's figures, every price and every reason stand in the section."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC
from tests.report.example_plan import full
from tonnage.cost.planned import in_proportion, job_cost
from tonnage.cost.where import compare
from tonnage.plan.cost import Traffic, YearlyCost
from tonnage.report.document import Document, Section
from tonnage.report.plans.cost import cost_section, job_section, ways_table
from tonnage.report.writers.terminal import terminal

PRICES = COURSE_PRICES
TODAY = date(2026, 11, 21)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal folds what is looked for."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("tonnage.report.writers.terminal.WIDEST", 400)


def text_of(section: Section) -> str:
    """A section as a terminal shows it."""
    return terminal(Document(title="", subtitle="", sections=(section,)))


def test_course_figures_and_every_price_stand_in_the_section() -> None:
    cost = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=TODAY)
    text = text_of(cost_section(cost))
    assert "On-prem, owned for the peak ← 595,000 400,000 195,000 0.66" in " ".join(text.split())
    exactly = "exactly 4.806 systems would cost 571,960 USD a year, 0.64 USD per 1,000 requests."
    assert f"On-prem counts the 5 systems that are bought; {exactly}" in " ".join(text.split())
    assert "2.60" in text
    assert "below 45,769,231 requests a year" in text
    assert "! Prices older than a year" in text
    assert "0.44" in text
    assert cost.figures
    for figure in cost.figures:
        assert figure.path in text
        assert figure.source in text


def test_systems_that_the_fleet_s_simulation_asks_for_are_not_called_exact() -> None:
    served = replace(COURSE_SERVING, systems=6)
    text = text_of(cost_section(compare(COURSE_TRAFFIC, served, PRICES)))
    assert "6 systems" in text
    assert "On-prem counts" not in text
    assert "is the cost of exactly 6 systems over" in text


def test_reasons_stand_where_costs_are_not_known() -> None:
    prices = PRICES.with_overrides({"systems": {"dgx-h100": None}, "cloud": {"h100": None}})
    text = text_of(cost_section(compare(replace(COURSE_TRAFFIC, mean_requests_per_second=None), COURSE_SERVING, prices)))
    assert "On-prem, owned for the peak: no cost, as the price of dgx-h100 is not known" in text
    assert "Cloud GPUs by the hour: no cost, as no cloud price of h100-sxm-80gb is known" in text
    assert "API by tokens: no cost, as only the peak is known" in text
    assert "is cheaper" not in text


def test_one_priced_way_is_not_marked_as_the_cheapest() -> None:
    cost = compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES)
    assert ways_table(cost).chosen is not None
    alone = replace(cost, ways=tuple(way for way in cost.ways if way.where == "on-prem"))
    assert ways_table(alone).chosen is None


def test_a_job_in_text() -> None:
    prices = PRICES.with_overrides({"cloud": {"h100": 20.0}, "licence_usd_per_gpu_hour": None})
    serving = replace(COURSE_SERVING, requests_per_second_per_instance=1.0)
    job = job_cost(in_proportion(198_000, 5.5 * 3_600, serving), (2_000, 200), serving, prices)
    text = text_of(job_section(replace(full(), cost=job)))
    assert text.splitlines()[0] == "Cost of the job"
    assert "198,000 requests within 5.5 hours" in text
    assert "Owned                   238,000 USD a year for 2 systems of 8 GPUs" in text
    assert "On cloud GPUs           1,100 USD a job (55 GPU-hours (10 GPUs for 5.5 h)" in text
    assert "Through an API          515 USD a job" in text
    assert "Cheaper than the cloud  owning is, from 216 jobs a year on" in text
    assert "1,593 jobs a year, for more of which a year has no time" in text


def test_a_split_that_is_all_owned_is_not_told_twice() -> None:
    def kinds(traffic: Traffic, spare: int = 0) -> set[str]:
        cost = compare(traffic, replace(COURSE_SERVING, requests_per_second_per_instance=1.0, spare=spare), PRICES)
        rows = text_of(cost_section(cost)).partition("What each cost is made of")[2].partition("Prices, with")[0].splitlines()
        return {row.split("  ")[0] for row in rows[3:] if row and not row.startswith(" ")}

    burst = (8.0,) * 23 + (16.0,)
    mean = sum(burst) / 24
    flat = replace(COURSE_TRAFFIC, peak_requests_per_second=8.0, mean_requests_per_second=4.0)
    assert kinds(flat) == {"on-prem", "cloud GPUs", "API"}
    assert kinds(flat, spare=1) == {"on-prem", "cloud GPUs", "API"}
    split = replace(COURSE_TRAFFIC, peak_requests_per_second=16.0, mean_requests_per_second=mean, profile=burst)
    assert kinds(split) == {"on-prem", "cloud GPUs", "hybrid", "API", "hybrid with API"}


def test_no_cost_is_no_section() -> None:
    assert not cost_section(None).blocks
    assert isinstance(full().cost, YearlyCost)
    assert not job_section(full()).blocks
