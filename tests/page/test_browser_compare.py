"""The Compare and What-if views in Chromium: two plans side by side, and a limit that is
dragged."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.page.served import axe_faults, base_of, hosts_of, until
from tests.report.writers.chromium import Chromium

pytestmark = pytest.mark.browser
CHAT = "model=llama-3.1-8b&isl=1000&osl=100&peak_rps=900&ttft=p95<=500ms&tpot=p95<=40ms&precision=fp8&tp=1&engine=vllm"
H100, L40S = f"{CHAT}&gpu=h100-sxm-80gb", f"{CHAT}&gpu=l40s"
READY = "!!document.querySelector('.ready')"


@pytest.mark.parametrize(
    ("width", "dark"), [(1440, False), pytest.param(390, True, marks=pytest.mark.live)]
)
def test_two_plans_side_by_side(address: str, browser: Chromium, width: int, dark: bool) -> None:
    browser.open(
        f"{base_of(address)}/compare?p={quote(H100)}&p={quote(L40S)}", width, 900, dark=dark
    )
    until(browser, READY)
    assert browser.value("document.querySelectorAll('.column').length") == 2
    assert (
        browser.value("document.querySelectorAll('#curves .figure.wide polyline.curve').length")
        == 2
    )
    assert "search.gpu" in browser.value("document.querySelector('.ready').textContent")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    assert hosts_of(browser) == {address.split("/")[2]}
    assert axe_faults(browser) == []


@pytest.mark.live
def test_compare_adds_the_plan_of_size(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/compare?p={quote(H100)}", 1440, 900)
    until(browser, READY)
    browser.open(f"{base_of(address)}/size?{L40S}", 1440, 900)
    until(browser, "!!document.querySelector('#simulated [data-compare]')")
    browser.click("#simulated [data-compare]")
    until(
        browser,
        f"location.pathname === '/compare' && {READY} &&"
        " document.querySelectorAll('.column').length === 2",
    )


@pytest.mark.live
def test_a_dragged_limit_moves_the_systems(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/what-if?{H100}", 1440, 900)
    until(browser, "!!document.querySelector('.figure.wide .grip')")
    headline = "document.querySelector('#estimate .headline')?.textContent"
    systems = until(browser, headline)
    browser.drag(browser.spot(".figure.wide .grip[aria-label*=TPOT]"), 50)
    limit = float(browser.value("document.getElementById('f-tpot').value"))
    assert limit < 40
    until(browser, f"{headline} !== {systems!r}")
    until(browser, f"decodeURIComponent(location.search).includes('tpot=p95<={limit:g}ms')")
    until(
        browser,
        "!document.querySelector('#simulated.old') && !!document.querySelector('#change table')",
    )
    assert browser.complaints == []


def test_a_limit_is_moved_with_the_arrow_keys(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/what-if?{H100}", 1440, 900)
    until(browser, "!!document.querySelector('.figure.wide .grip')")
    browser.value("document.querySelector('.figure.wide .grip').focus()")
    browser.press("ArrowUp")
    assert browser.value("document.getElementById('f-ttft').value") == "550"


@pytest.mark.live
@pytest.mark.parametrize("width", [1440, 390])
def test_what_if_fits_and_has_no_serious_fault(address: str, browser: Chromium, width: int) -> None:
    browser.open(f"{base_of(address)}/what-if?{H100}", width, 900)
    until(browser, "!!document.querySelector('#change table')")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert axe_faults(browser) == []


@pytest.mark.live
def test_a_link_that_is_none_is_said(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/compare?p=frobnicate%3D1&p=%40..%2Fx.json", 1440, 900)
    until(browser, "!!document.querySelector('[role=alert]')")
    assert browser.complaints == []
