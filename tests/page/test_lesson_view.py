from __future__ import annotations

import json
import urllib.request

import pytest

from tests.page.served import axe_faults, base_of, hosts_of, until
from tests.report.writers.chromium import Chromium
from tonnage.simulator.lesson import LessonConfig, run_lesson, watch_lesson

pytestmark = pytest.mark.browser
FIGURES = "[...document.querySelectorAll('#figures dd')].map(d => d.textContent).join(' ')"
READY = f"{FIGURES} && {FIGURES} !== ''"


def test_it_plays_and_steps(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/lesson", 1440, 900)
    until(browser, READY)
    before = browser.value("+document.getElementById('at').value")
    browser.click("#step")
    assert browser.value("+document.getElementById('at').value") == before + 1
    assert "slots prefill" in browser.value("document.getElementById('said').textContent")
    browser.click("#back")
    browser.click("#play")
    until(browser, f"+document.getElementById('at').value > {before} + 2")
    browser.click("#play")
    assert browser.value("document.getElementById('play').textContent") == "Play"
    assert browser.complaints == []
    assert hosts_of(browser) == {address.split("/")[2]}


@pytest.mark.live
def test_the_way_of_batching_and_the_load_change_the_figures(
    address: str, browser: Chromium
) -> None:
    browser.open(f"{base_of(address)}/lesson", 1440, 900)
    until(browser, READY)
    browser.value(
        "document.getElementById('at').value = 150; document.getElementById('at').dispatchEvent(new"
        " Event('input', {bubbles: true}))"
    )
    flight = browser.value(FIGURES)
    browser.click("label[for=way-static]")
    until(
        browser,
        f"{FIGURES} !== {flight!r} &&"
        " document.getElementById('reading').textContent.includes('Nobody enters')",
    )
    browser.click("label[for=load-concurrency]")
    until(
        browser,
        "location.search.includes('load=concurrency') && location.search.includes('concurrency=8')",
    )


def test_the_figures_at_the_end_are_those_of_the_course(address: str) -> None:
    lesson = (
        f"{base_of(address)}/lesson/run?until=1000&load=initial_batch&initial_batch=400&osl_std=5"
    )
    found = json.load(urllib.request.urlopen(lesson))
    for way, batcher, chunks in (
        ("Static", "static", 1),
        ("In-flight", "in-flight", 1),
        ("Chunked", "in-flight", 4),
        ("One prefill", "one-prefill", 1),
    ):
        known = run_lesson(
            LessonConfig(batcher=batcher, prefill_chunks=chunks, until=1000, initial_batch=400)
        )  # type: ignore[arg-type]
        shown = next(one for one in found["ways"] if one["name"] == way)
        assert shown["rate"] == known.to_json()["requests_per_1k_ticks"]
        assert shown["ttft"] == known.to_json()["ttft"]


def test_what_is_shown_at_a_step_is_the_lesson_up_to_its_end() -> None:
    whole = list(watch_lesson(LessonConfig(tick_rate=0.3, until=120)))
    for step, result in whole[:: len(whole) // 7]:
        alone = run_lesson(LessonConfig(tick_rate=0.3, until=step.start + step.duration))
        assert result.to_json() == alone.to_json()
        assert (result.made, result.tokens, result.ticks) == (alone.made, alone.tokens, alone.ticks)


@pytest.mark.live
def test_the_slots_of_an_engine_in_seconds(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/lesson", 1440, 900)
    browser.click(".seconds-form button")
    until(browser, "document.querySelectorAll('#gantt .figure').length >= 4")
    assert browser.complaints == []


@pytest.mark.live
@pytest.mark.parametrize(("width", "dark"), [(1440, True), (390, False)])
def test_it_fits_and_has_no_serious_fault(
    address: str, browser: Chromium, width: int, dark: bool
) -> None:
    browser.open(f"{base_of(address)}/lesson", width, 844, dark=dark)
    until(browser, READY)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert axe_faults(browser) == []


@pytest.mark.parametrize(
    "query",
    ["way=x", "slots=1e9", "until=1e9", "slots=<script>", "load=x", "tick_rate=nan", "osl_mean=-1"],
)
def test_wrong_values_are_said(address: str, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{base_of(address)}/lesson/run?{query}")
    assert error.value.code == 422
    error.value.close()
