"""What a plan costs: the course's figures, every price and every reason stand in the section."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date

import pytest

import tonnage
from tests.cost.cost_cases import COURSE_PRICES, COURSE_SERVING, COURSE_TRAFFIC
from tests.questions import plans_with
from tests.report.example_plan import full
from tonnage.cost.plan_cost import compare, in_proportion, job_cost
from tonnage.report.document import Document, Section
from tonnage.report.plans.answer import answer_text
from tonnage.report.plans.cost import PRICE_NAMES, cost_section, cost_text, job_section, price_name
from tonnage.report.writers.terminal import terminal
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Figure

few_parts = plans_with()


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
    prices = PRICES.with_overrides({"systems": {"dgx-h100": None}, "cloud": {"h100": None}})
    text = text_of(
        cost_section(
            compare(replace(COURSE_TRAFFIC, mean_requests_per_second=None), COURSE_SERVING, prices)
        )
    )
    assert "On-prem, owned for the peak: no cost, as the price of dgx-h100 is not known" in text
    assert "Cloud GPUs by the hour: no cost, as no cloud price of h100-sxm-80gb is known" in text
    assert "API by tokens: no cost, as only the peak is known" in text
    assert "is cheaper" not in text


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


# Prices by name: every price of the catalog has one, and none is a key.


def paths() -> list[str]:
    """Every price of the shipped list."""
    prices = catalog_prices()
    found = [
        value.path for f in fields(prices) if isinstance(value := getattr(prices, f.name), Figure)
    ]
    found += [*(one.usd.path for one in prices.systems), *(one.usd.path for one in prices.gpus)]
    found += [offer.usd_per_gpu_hour.path for offer in prices.cloud]
    return found + [
        each.path
        for api in prices.api
        for each in (api.usd_per_million_input_tokens, api.usd_per_million_output_tokens)
    ]


def test_every_price_of_the_catalog_has_a_name_of_its_own_with_a_unit() -> None:
    names = {path: price_name(path) for path in paths()}
    assert len(names) > 100
    assert len(set(names.values())) == len(names)
    assert all("_" not in name.split(":")[0] and name != path for path, name in names.items())
    assert all("USD" in name for path, name in names.items() if path not in PRICE_NAMES)


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (
            {"peak_rps": 60},
            "USD; API: only the peak is known; give a mean or a profile to know the tokens of a"
            " year; hybrid comes to cloud GPUs alone",
        ),
        ({"mean_rps": 20, "peak_factor": 3}, "USD; API"),
    ],
)
def test_every_way_that_was_named_is_in_the_first_screen(load: dict[str, float], says: str) -> None:
    asked = {"model": "llama-3-8b", "gpu": "h100", "precision": "fp8", "engine": "vllm", "tp": 1}
    lengths = {"isl": 1000, "osl": 100}
    where = "on-prem,cloud,hybrid,api"
    text = cost_text(tonnage.size(**asked, **lengths, **load, where=where))
    assert says in text
    assert all(name in text for name in ("on-prem", "cloud GPUs", "API", "hybrid"))
    assert "API" not in cost_text(tonnage.size(**asked, **lengths, **load))


def test_where_no_limit_is_asked_for_the_answer_says_what_stands_in_the_way() -> None:
    plan = tonnage.size(
        model="llama-3-8b", gpu="v100", precision="bf16", isl=1000, osl=100, peak_rps=2
    )
    assert answer_text(plan) == (
        "no deployment runs it: Volta has no BF16 matrix units; tensorrt-llm-1.2 does not run on"
        " Volta accelerators"
    )
