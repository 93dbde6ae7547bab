"""What stands first: the answer, how sure it is, the latencies at the peak, the cost, the risk; and all of it in ten lines."""

import json
from dataclasses import replace

import pytest

from tests.plan.candidates import candidate
from tests.report.example_plan import full, without_answer
from tonnage.cli.main import run
from tonnage.plan.at_peak import AtPeak
from tonnage.plan.candidate import Candidate
from tonnage.plan.confidence import Confidence
from tonnage.plan.limit import Limit
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import Changed, Sensitivity, Swing
from tonnage.report.plans.answer import sentence
from tonnage.report.plans.brief import MOST, brief_lines
from tonnage.report.plans.first_page import first_glance
from tonnage.report.plans.headline import cost_text, headline_rows, risk_text
from tonnage.report.plans.plan_text import plan_text
from tonnage.report.wording.at_peak import at_peak_text
from tonnage.report.wording.confidence import chance_text, confidence_text
from tonnage.report.wording.sensitivity import riskiest_text
from tonnage.report.writers.terminal import terminal
from tonnage.results.latencies import Latencies

SURE = Confidence(asked=0.8, meets=0.876, systems={"50": 4, "80": 5, "95": None}, step_factors={}, metric="ttft_ms")
PEAK = AtPeak(
    requests_per_second_per_instance=20.67,
    ttft_ms=Latencies(mean=101.0, p95=201.0),
    itl_ms=Latencies(mean=9.0, p99=61.0),
    tpot_ms=Latencies(mean=11.0, p95=21.0),
    e2e_ms=Latencies(mean=2_345.0),
    utilisation=0.64,
    instances=40,
)


def sized() -> Plan:
    first, *rest = full().candidates
    return replace(full(), candidates=(replace(first, confidence=SURE, at_peak=PEAK, checked=True), *rest))


def chosen(plan: Plan) -> Candidate:
    assert plan.choice is not None
    return plan.choice


def test_the_first_lines_are_answer_confidence_peak_cost_risk_and_router_in_this_order() -> None:
    rows = headline_rows(sized(), chosen(sized()))
    assert [name for name, text in rows if text] == ["Answer", "Confidence", "At the peak", "Cost", "Risk", "Router"]
    text = terminal(plan_text((sized(),)))
    places = [
        text.index(f"\n{name}  ") for name in ("Answer", "Confidence", "At the peak", "Cost", "Risk", "Router", "Capacity", "At limit")
    ]
    assert places == sorted(places)
    assert "87% probability of meeting the limits (80% asked); systems for 50%: 4, 80%: 5, 95%: none" in " ".join(text.split())


def test_the_sentence_and_the_cards_hold_them_too() -> None:
    said = sentence(sized())
    assert "The probability that every limit holds is 87%; the systems for each confidence are 50%: 4, 80%: 5, 95%: none." in said
    cards = dict(first_glance(sized()))
    assert cards["probability that every limit holds"] == "87%"
    assert cards["systems for 50 / 80 / 95 %"] == "4 / 5 / none"
    assert any("at the peak" in name for name in cards)


def test_the_peak_names_every_limited_statistic_beside_its_limit_and_the_mean_of_the_rest() -> None:
    limits = (Limit(metric="ttft", statistic="p95", milliseconds=500.0), Limit(metric="itl", statistic="p99", milliseconds=62.5))
    assert at_peak_text(PEAK, limits) == ("TTFT p95 201 ms (limit 500), ITL p99 61.0 ms (limit 62.5), E2E mean 2,345 ms; 64% of capacity")
    assert at_peak_text(PEAK, ()).endswith("E2E mean 2,345 ms; 64% of capacity")
    unmeasured = replace(PEAK, ttft_ms=Latencies())
    assert "TTFT" not in at_peak_text(unmeasured, limits)


@pytest.mark.parametrize(("share", "said"), [(0.0042, "under 1%"), (0.64, "64%")])
def test_a_page_says_once_and_in_one_way_how_full_the_fleet_is(share: float, said: str) -> None:
    first, *rest = sized().candidates
    plan = replace(sized(), candidates=(replace(first, utilisation=share, at_peak=replace(PEAK, utilisation=share)), *rest))
    text = terminal(plan_text((plan,)))
    load = next(line for line in text.splitlines() if line.startswith("Load  "))
    words = " ".join(text.split())
    assert words.count("of capacity") == words.count(f"{said} of capacity") == 1
    assert "%" not in load
    assert dict(first_glance(plan))["of capacity, used at the peak"] == said
    unchecked = replace(plan, candidates=(replace(first, utilisation=share, at_peak=None), *rest))
    assert f"{said} of capacity at the peak; limited by" in " ".join(terminal(plan_text((unchecked,))).split())


@pytest.mark.parametrize(
    ("share", "text"), [(0.949, "94%"), (0.8, "80%"), (0.9951, "over 99%"), (0.99, "99%"), (0.004, "under 1%"), (0.29, "29%")]
)
def test_a_chance_is_never_rounded_up(share: float, text: str) -> None:
    assert chance_text(share) == text


def test_a_confidence_that_nothing_reaches_is_said_and_is_the_risk() -> None:
    none = replace(SURE, systems={"50": 4, "80": None, "95": None}, meets=0.6)
    assert "60% probability of meeting the limits, and no number of systems reaches the 80% asked" in confidence_text(none)
    plan = replace(sized(), candidates=(replace(chosen(sized()), confidence=none),))
    assert "too close" in risk_text(plan, chosen(plan))


def swing(name: str, systems: int | None, exact: float | None) -> Swing:
    side = {"deployment": None, "reason": None}
    low = Changed(change=-0.2, systems=1, systems_exact=0.5, **side)
    high = Changed(change=0.2, systems=systems, systems_exact=exact, **side)
    return Swing(input=name, low=low, high=high)


def test_the_risk_is_read_off_the_sensitivity() -> None:
    calm = Sensitivity(systems=2, systems_exact=1.5, swings=(swing("isl", 2, 1.6), swing("rate", 2, 1.8)), relaxed=None)
    assert riskiest_text(calm) == "no input 20 % higher takes more systems; more requests come nearest (1.80 exactly)"
    moved = replace(calm, swings=(*calm.swings, swing("osl", 4, 3.2)))
    assert riskiest_text(moved) == "with 20 % longer answers it takes 4 systems in place of 2"
    dead = replace(calm, swings=(*moved.swings, swing("step_time", None, None)))
    assert riskiest_text(dead) == "with 20 % slower steps nothing meets the limits"


def test_the_cost_line_names_the_cheapest_and_says_where_only_one_has_a_price() -> None:
    text = cost_text(full())
    assert "USD a year" in text
    assert cost_text(replace(full(), cost=None)) == ""


def test_brief_has_ten_lines_at_most_and_is_enough_to_act() -> None:
    lines = brief_lines((sized(),))
    assert len(lines) <= MOST
    text = "\n".join(lines)
    for word in ("Question", "Answer", "Confidence", "At the peak", "Cost", "Risk", "More", "--report", "--json"):
        assert word in text
    assert len(brief_lines((without_answer(),))) <= MOST
    assert "no deployment meets the limits" in "\n".join(brief_lines((without_answer(),)))


def test_brief_has_the_command_that_starts_an_instance() -> None:
    first = chosen(sized())
    started = replace(first, pools=(replace(first.pool, launch=("vllm", "serve", "a model")),))
    assert any(
        line.split() == ["Start", "vllm", "serve", "'a", "model'"] for line in brief_lines((replace(sized(), candidates=(started,)),))
    )


def test_brief_of_several_models_is_one_line_each() -> None:
    several = [replace(sized(), scenario=replace(sized().scenario, model=f"model-{i}")) for i in range(20)]
    lines = brief_lines(several)
    assert len(lines) == MOST
    assert lines[0].startswith("model-0 ")
    assert "and 12 more models" in lines[8]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["size", "--model", "llama-3.1-8b", "--isl", "500", "--osl", "50", "--peak-rps", "0.1", "--gpu", "h100", "--tp", "1"]
    asked += ["--precision", "fp8", "--engine", "vllm", "--ttft", "p95<=1s"]
    assert run([*asked, "--brief"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MOST
    assert run([*asked, "--json"]) == 0
    choice = json.loads(capsys.readouterr().out)["choice"]
    text = " ".join(lines)
    assert f"E2E mean {choice['at_peak']['e2e_ms']['mean']:.0f} ms" in text
    assert choice["launch"][:2] == ["vllm", "serve"]
    assert " ".join(choice["launch"]) in text


def test_measured_plans_have_neither_peak_nor_confidence() -> None:
    plain = candidate()
    rows = dict(headline_rows(replace(full(), candidates=(plain,)), plain))
    assert rows["Confidence"] == rows["At the peak"] == ""
