from __future__ import annotations

import time
import urllib.request
from urllib.parse import parse_qsl

import pytest

from tests.page.served import axe_faults, base_of, hosts_of, until
from tests.report.writers.chromium import Chromium

pytestmark = pytest.mark.browser
QUESTION = "model=llama-3.1-8b&isl=2000&osl=200&peak_rps=300&ttft=p95<=500ms&tpot=p95<=50ms&gpu=h100-sxm-80gb&precision=fp8&tp=1&engine=vllm"
HEADLINE = "document.querySelector('#estimate .headline')?.textContent"

DECIDED = (
    "!document.querySelector('#simulated.old') && document.querySelector('#simulated"
    " .title')?.textContent"
)
ANSWERED = f"document.getElementById('progress').hidden && {DECIDED}"


@pytest.fixture(scope="module")
def view(address: str, browser: Chromium) -> str:
    """The view with its simulated answer."""
    url = f"{base_of(address)}/size?{QUESTION}"
    browser.open(url, 1440, 900)
    until(browser, ANSWERED)
    return url


def test_an_answer_comes_without_a_complaint_and_from_this_server_alone(
    view: str, browser: Chromium
) -> None:
    assert "dgx-h100 for llama-3.1-8b" in browser.value(ANSWERED)
    assert browser.value("document.querySelectorAll('#simulated .figure').length") == 2
    assert browser.complaints == []
    assert hosts_of(browser) == {view.split("/")[2]}


@pytest.mark.live
def test_the_six_questions_are_typed_and_answered_and_the_answer_taken_along(
    view: str, browser: Chromium
) -> None:
    browser.open(f"{view.partition('?')[0]}", 1440, 900)
    until(browser, HEADLINE)
    for field, words in {"model": "gpt-j-6b", "isl": "900", "osl": "99", "spare": "1"}.items():
        browser.write(f"#f-{field}", words)
    browser.click("label[for=d-users]")
    browser.write("#f-users", "2000")
    browser.write("#f-requests_per_user_day", "30")
    browser.write("#f-ttft", "800")
    browser.click(".question label.box", "l40s")
    until(
        browser,
        f"String({ANSWERED}).includes('gpt-j-6b') && location.search.includes('users=2000') &&"
        " location.search.includes('gpu=l40s')",
    )
    asked = dict(parse_qsl(browser.value("location.search").removeprefix("?")))
    assert {
        "model": "gpt-j-6b",
        "isl": "900",
        "osl": "99",
        "spare": "1",
        "gpu": "l40s",
        "ttft": "p95<=800ms",
    }.items() <= asked.items()
    links = browser.value(
        "[...document.querySelectorAll('#simulated .actions a')].map(a => a.href).filter(a =>"
        " a.includes('/plan.'))"
    )
    assert len(links) == 4
    for link in links:
        with urllib.request.urlopen(link, timeout=60) as answer:
            assert b"gpt-j-6b" in answer.read()
    assert browser.complaints == []
    assert hosts_of(browser) == {view.split("/")[2]}


@pytest.mark.live
def test_a_slider_asks_anew_and_the_link_is_the_question(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    until(browser, ANSWERED)
    before = browser.value(HEADLINE)
    move = (
        "(r => { r.value = 880; r.dispatchEvent(new Event('input', {bubbles: true}));"
        " })(document.querySelector('[data-for=f-peak_rps]'))"
    )
    browser.value(move)
    until(browser, f"{HEADLINE} !== {before!r}")
    rate = browser.value("document.getElementById('f-peak_rps').value")
    assert f"peak_rps={rate}&" in browser.value("location.search")
    assert browser.value("document.querySelector('#simulated').classList.contains('old')"), (
        "the old answer is faded at once"
    )
    until(browser, ANSWERED)
    systems = browser.value("document.querySelector('#simulated dl.big dd')?.textContent")
    assert int(systems.replace(",", "")) > 3


@pytest.mark.live
def test_a_limit_gets_a_percentile_and_wrong_words_are_said(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    browser.write("#f-itl", "90")
    until(
        browser,
        "location.search.includes('itl=p95%3C=90ms') || location.search.includes('itl=p95<=90ms')",
    )
    browser.write("#f-isl", "a lot")
    until(browser, "document.querySelector('#estimate [role=alert]')?.textContent.includes('isl')")


@pytest.mark.live
def test_usual_limits_are_offered(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    until(browser, HEADLINE)
    browser.value(
        "(s => { s.value = 'rag'; s.dispatchEvent(new Event('change', {bubbles: true}));"
        " })(document.getElementById('u-case'))"
    )
    until(browser, "document.getElementById('f-ttft').value === '2000'")
    assert browser.value("document.getElementById('f-itl').value") == "250"


@pytest.mark.live
def test_a_model_is_found_by_its_name_at_hugging_face(view: str, browser: Chromium) -> None:
    browser.open(view, 1440, 900)
    browser.write("#f-model", "meta-llama/Llama-3.3")
    until(
        browser,
        "[...document.querySelectorAll('#models option')].some(o => o.value === 'llama-3.3-70b')",
    )


@pytest.mark.live
@pytest.mark.parametrize(
    ("width", "dark"), [(1440, False), (1440, True), (768, False), (390, False), (320, False)]
)
def test_the_view_fits_and_has_no_serious_fault(
    view: str, browser: Chromium, width: int, dark: bool
) -> None:
    browser.open(view, width, 844, dark=dark)
    until(browser, ANSWERED)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    assert axe_faults(browser) == []


@pytest.mark.live
def test_the_first_view_is_small(view: str, browser: Chromium) -> None:
    browser.ask("Network.setCacheDisabled", cacheDisabled=True)
    browser.open(view, 1440, 900)
    until(browser, HEADLINE)
    time.sleep(0.2)
    sizes = [
        e["params"]["encodedDataLength"]
        for e in browser.events
        if e.get("method") == "Network.loadingFinished"
    ]
    assert len(sizes) >= 6
    assert sum(sizes) < 300_000
