"""The comparison as text holds the course's figures, every price and every reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from tests.cost.cost_cases import COURSE_SERVING, COURSE_TRAFFIC
from tonnage.cli.show_cost import money, show_cost, show_job, usd
from tonnage.cost.job import job_cost
from tonnage.cost.where import compare
from tonnage.plan.traffic import Traffic
from tonnage.spec.catalog.price_list import catalog_prices

PRICES = catalog_prices()


def test_course_figures_stand_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("tonnage.cli.table.WIDEST", 400)
    text = show_cost(compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES, today=date(2026, 11, 21)))
    assert "On-prem, owned for the peak ← cheapest        595k         400k   195k                0.66" in text
    assert "On-prem for 4.806 systems exactly: 572k USD a year, 0.64 per 1,000 requests" in text
    assert "2.60" in text
    assert "api is cheaper below 45,769,231 requests a year, on-prem above" in text
    assert "! older than a year" in text
    assert "0.44" in text
    for figure in compare(COURSE_TRAFFIC, COURSE_SERVING, PRICES).figures:
        assert figure.path in text
        assert figure.source in text


def test_reasons_stand_where_costs_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr("tonnage.cli.table.WIDEST", 400)
    prices = PRICES.with_overrides({"systems": {"dgx-h100": None}, "cloud": {"h100": None}})
    text = show_cost(compare(replace(COURSE_TRAFFIC, mean_requests_per_second=None), COURSE_SERVING, prices))
    assert "On-prem, owned for the peak: no cost, the price of dgx-h100 is not known" in text
    assert "Cloud by the hour: no cost, no cloud price of h100-sxm-80gb is known" in text
    assert "API by tokens: no cost, only the peak is known" in text
    assert "Break-even" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (999.4, "999"), (572_000, "572k"), (999_499, "999k"), (999_500, "1.00M"), (2.34e6, "2.34M")],
)
def test_usd_to_three_digits(value: float | None, text: str) -> None:
    assert usd(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0, "0.00"), (2.6, "2.60"), (0.0123, "0.0123"), (1_234.5, "1,234.50")])
def test_money_in_cents(value: float | None, text: str) -> None:
    assert money(value) == text


def test_a_job_in_text() -> None:
    prices = PRICES.with_overrides({"cloud": {"h100": 20.0}, "licence_usd_per_gpu_hour": None})
    text = show_job(job_cost(198_000, 5.5 * 3_600, (2_000, 200), replace(COURSE_SERVING, requests_per_second_per_instance=1.0), prices))
    assert text.splitlines()[0] == "Cost of the job: 198,000 requests within 5.50 h"
    assert "  Owned       238k USD a year for 2 × 8 GPUs" in text
    assert "  Cloud       1,200.00 USD a job  (60 GPU-hours (6 begun hours)" in text
    assert "  API         514.80 USD a job" in text
    assert "Owning is cheaper than the cloud from 198 jobs a year on; a year has time for 1,593" in " ".join(text.split())


def test_a_split_that_is_all_owned_is_not_told_twice() -> None:
    def kinds(traffic: Traffic) -> set[str]:
        text = show_cost(compare(traffic, replace(COURSE_SERVING, requests_per_second_per_instance=1.0), PRICES))
        rows = text.partition("Parts")[2].partition("Break-even")[0].splitlines()
        return {row.split()[0] for row in rows[2:] if row and not row.startswith(" ")}

    burst = (8.0,) * 23 + (16.0,)
    mean = sum(burst) / 24
    assert kinds(replace(COURSE_TRAFFIC, peak_requests_per_second=8.0, mean_requests_per_second=4.0)) == {"on-prem", "cloud", "api"}
    split = replace(COURSE_TRAFFIC, peak_requests_per_second=16.0, mean_requests_per_second=mean, profile=burst)
    assert kinds(split) == {"on-prem", "cloud", "hybrid", "api"}
