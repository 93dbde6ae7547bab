"""The Size view in Debian's Chromium, as a new user would take it: questions, a slider, an answer, its exports."""

from __future__ import annotations

import time

import pytest

from tests.page.served import axe_faults, base_of, hosts_of, until
from tests.report.writers.chromium import Chromium

pytestmark = pytest.mark.browser
QUESTION = (
    "model=llama-3.1-8b&isl=2000&osl=200&peak_rps=300&ttft=p95<=500ms&tpot=p95<=50ms&gpu=h100-sxm-80gb&precision=fp8&tp=1&engine=vllm"
)
HEADLINE = "document.querySelector('#estimate .headline')?.textContent"
ANSWERED = "!document.querySelector('#simulated.old') && document.querySelector('#simulated .title')?.textContent"


@pytest.fixture(scope="module")
def view(address: str, browser: Chromium) -> str:
    """The view with its simulated answer."""
    url = f"{base_of(address)}/size?{QUESTION}"
    browser.open(url, 1440, 900)
    until(browser, ANSWERED)
    return url


def test_an_answer_comes_without_a_complaint_and_from_this_server_alone(view: str, browser: Chromium) -> None:
    assert "dgx-h100 for llama-3.1-8b" in browser.value(ANSWERED)
    assert browser.value("document.querySelectorAll('#simulated .figure').length") == 2
    assert browser.complaints == []
    assert hosts_of(browser) == {view.split("/")[2]}


def test_a_slider_asks_anew_and_the_link_is_the_question(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    until(browser, ANSWERED)
    before = browser.value(HEADLINE)
    move = (
        "(r => { r.value = 880; r.dispatchEvent(new Event('input', {bubbles: true})); })(document.querySelector('[data-for=f-peak_rps]'))"
    )
    browser.value(move)
    until(browser, f"{HEADLINE} !== {before!r}")
    rate = browser.value("document.getElementById('f-peak_rps').value")
    assert f"peak_rps={rate}&" in browser.value("location.search")
    assert browser.value("document.querySelector('#simulated').classList.contains('old')"), "the old answer is faded at once"
    until(browser, ANSWERED)
    systems = browser.value("document.querySelector('#simulated dl.big dd')?.textContent")
    assert int(systems.replace(",", "")) > 3


def test_a_limit_gets_a_percentile_and_wrong_words_are_said(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    browser.value("(f => { f.value = '90'; f.dispatchEvent(new Event('input', {bubbles: true})); })(document.getElementById('f-itl'))")
    until(browser, "location.search.includes('itl=p95%3C=90ms') || location.search.includes('itl=p95<=90ms')")
    browser.value("(f => { f.value = 'a lot'; f.dispatchEvent(new Event('input', {bubbles: true})); })(document.getElementById('f-isl'))")
    until(browser, "document.querySelector('#estimate [role=alert]')?.textContent.includes('isl')")


def test_usual_limits_are_offered(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    until(browser, HEADLINE)
    browser.value("(s => { s.value = 'rag'; s.dispatchEvent(new Event('change', {bubbles: true})); })(document.getElementById('u-case'))")
    until(browser, "document.getElementById('f-ttft').value === '2000'")
    assert browser.value("document.getElementById('f-itl').value") == "250"


def test_a_model_is_found_by_its_name_at_hugging_face(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    browser.value(
        "(f => { f.value = 'meta-llama/Llama-3.3'; f.dispatchEvent(new Event('input', {bubbles: true})); })"
        "(document.getElementById('f-model'))"
    )
    until(browser, "[...document.querySelectorAll('#models option')].some(o => o.value === 'llama-3.3-70b')")


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (1440, True), (768, False), (390, False), (320, False)])
def test_the_view_fits_and_has_no_serious_fault(view: str, browser: Chromium, width: int, dark: bool) -> None:
    browser.open(view, width, 844, dark=dark)
    until(browser, ANSWERED)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert axe_faults(browser) == []
    assert browser.complaints == []


def test_the_first_view_is_small(view: str, browser: Chromium) -> None:
    browser.ask("Network.setCacheDisabled", cacheDisabled=True)
    browser.open(view, 1440, 900)
    until(browser, HEADLINE)
    time.sleep(0.2)
    sizes = [e["params"]["encodedDataLength"] for e in browser.events if e.get("method") == "Network.loadingFinished"]
    assert len(sizes) >= 6
    assert sum(sizes) < 300_000
