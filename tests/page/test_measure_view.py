from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.served import axe_faults, base_of, hosts_of, token_of, until
from tests.report.writers.chromium import Chromium
from tonnage.api.running.processes import served_instances
from tonnage.cli.main import run
from tonnage.serve.supervisor import Supervisor

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
PLAN = "model=llama-3.1-8b&isl=300&osl=30&peak_rps=20&ttft=p95<=500ms&gpu=h100-sxm-80gb&precision=fp8&tp=1&engine=vllm"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a simulated engine."""
    arguments = [
        "--engine",
        "simulated",
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "h100-sxm-80gb",
        "--precision",
        "fp8",
    ]
    programs = served_instances(arguments, 1)
    with Supervisor(programs, tmp_path_factory.mktemp("logs")) as found:
        found.wait_until_ready(timeout_s=60)
        yield programs[0].url


@pytest.mark.live
@pytest.mark.skipif(
    not (DATA / "nim_inflight.csv").is_file(), reason="the measured files are not here"
)
def test_a_benchmark_that_is_dropped_is_scored(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/files", 1440, 900)
    until(browser, "!!document.querySelector('#list .hint, #list ul')")
    browser.drop("#drop", DATA / "nim_inflight.csv")
    until(
        browser,
        "document.querySelector('#look')?.textContent.includes('240 of 240 rows predicted')",
    )
    assert browser.value(
        "document.querySelector('#list ul').textContent.includes('nim_inflight.csv')"
    )
    assert browser.complaints == []
    assert hosts_of(browser) == {address.split("/")[2]}


def test_a_trace_that_is_dropped_is_described_and_sized(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/files", 390, 844)
    browser.drop("#drop", ROOT / "examples" / "code-completion.csv")
    until(browser, "document.querySelector('#look')?.textContent.includes('2,000 requests in')")
    assert browser.value("document.documentElement.scrollWidth") <= 390
    assert axe_faults(browser) == []
    browser.click("#look .button.strong")
    until(browser, "location.pathname === '/size' && document.querySelector('#d-trace')?.checked")
    until(browser, "!!document.querySelector('#estimate .headline')")


@pytest.mark.live
def test_a_plan_is_kept_and_exported(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/size?{PLAN}", 1440, 900)
    until(browser, "!!document.querySelector('#simulated [hx-post]')")
    browser.click("#simulated [hx-post]")
    kept = until(
        browser, "document.querySelector('.actions [role=status]')?.textContent"
    ).removeprefix("kept as ")
    for path in (
        f"plan.yaml?{PLAN}",
        f"plan.csv?{PLAN}",
        f"plan.html?{PLAN}",
        f"deploy.zip?target=kubernetes&plan={kept}",
    ):
        with urllib.request.urlopen(
            f"{base_of(address)}/{path}".replace("<", "%3C"), timeout=60
        ) as answer:
            assert answer.status == 200
            assert len(answer.read()) > 100
    browser.open(f"{base_of(address)}/files", 1440, 900)
    until(browser, f"document.querySelector('#list')?.textContent.includes({kept!r})")
    browser.click("#list a", kept)
    until(browser, "!!document.querySelector('#look .answer')")


@pytest.mark.live
def test_a_run_is_measured_and_compared(address: str, browser: Chromium, engine: str) -> None:
    asked = f"url={engine}&benchmark_duration=2s&concurrency=1,2&request_rate=&isl=300&osl=30&slo="
    browser.open(f"{base_of(address)}/measure?{asked}", 1440, 900)
    browser.value("document.getElementById('m-plan').selectedIndex = 1")
    browser.click("#bench .button.strong")
    until(browser, "document.querySelectorAll('#figures dd').length === 6")
    until(browser, "!!document.querySelector('#found .title, #found .faults')")
    assert "under 2 loads" in browser.value("document.querySelector('#found').textContent")
    assert browser.value("document.querySelectorAll('#curves canvas').length") == 2
    browser.click("#found [hx-get]")
    until(browser, "document.querySelectorAll('#next section').length >= 2")
    assert browser.complaints == []
    assert axe_faults(browser) == []


@pytest.mark.live
def test_a_deployment_is_watched_until_it_is_stopped(
    address: str, browser: Chromium, engine: str
) -> None:
    browser.open(f"{base_of(address)}/measure?url={engine}", 1440, 900)
    browser.click("#watch")
    until(
        browser,
        "document.querySelector('#found .faults')?.textContent.includes('choose the plan that is"
        " deployed')",
    )
    browser.value("document.getElementById('m-plan').selectedIndex = 1")
    browser.click("#watch")
    looked = until(browser, "document.querySelector('#found h2')?.textContent")
    assert "llama-3.1-8b" in looked
    until(
        browser,
        "document.querySelectorAll('#found section').length >= 1 &&"
        " !document.getElementById('halt').disabled",
    )
    assert axe_faults(browser) == []
    browser.click("#halt")
    until(
        browser,
        "document.getElementById('halt').disabled && !document.getElementById('watch').disabled",
    )
    assert browser.complaints == []
    assert hosts_of(browser) == {address.split("/")[2]}


def test_the_view_opens_without_a_complaint(address: str, browser: Chromium) -> None:
    browser.open(f"{base_of(address)}/measure", 1440, 900)
    until(
        browser,
        "!!document.querySelector('#bench .button.strong') && !!document.querySelector('#watch')",
    )
    assert browser.complaints == []


@pytest.mark.live
def test_runs_are_calibrated_and_sized_again(
    address: str, browser: Chromium, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Simulated runs stand in for measured ones, so that their verdict does not depend on how busy
    this machine is."""
    folder = tmp_path_factory.getbasetemp().glob("folder*/page")
    place = next(folder)
    deployed = ("--gpu", "h100-sxm-80gb", "--precision", "fp8", "--tp", "1", "--engine", "vllm")
    lengths = ("--isl", "300", "--osl", "30", "--requests", "60", "--concurrency", "1,2,4,8")
    assert (
        run(
            [
                "simulate",
                "--model",
                "llama-3.1-8b",
                *deployed,
                *lengths,
                "--output",
                str(place / "sweep"),
                "--json",
            ]
        )
        == 0
    )
    browser.open(f"{base_of(address)}/measure", 1440, 900)
    until(browser, "document.querySelector('#runs')?.textContent.includes('sweep')")
    browser.click("#runs li:has(a[href='/runs/sweep']) [hx-get]")
    until(browser, "!!document.querySelector('#predicted [hx-post]')")
    browser.click("#predicted [hx-post]")
    until(browser, "!!document.querySelector('#next .button.strong')")
    browser.click("#next .button.strong")
    until(
        browser,
        "location.pathname === '/size' &&"
        " location.search.includes('coefficients=sweep-factors.json')",
    )
    until(browser, "document.querySelector('#simulated')?.textContent.includes('simulated')")
    assert browser.complaints == []


def request(address: str, path: str, method: str, body: bytes = b"", token: str = "") -> int:
    asked = urllib.request.Request(
        f"{base_of(address)}{path}", data=body, method=method, headers={"x-tonnage-token": token}
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


HOSTILE: list[Any] = [
    "..%2Fx.csv",
    "%2Fetc%2Fpasswd.csv",
    ".hidden.csv",
    "x",
    "x.exe",
    "x%00.csv",
    "<b>.csv".replace("<", "%3C").replace(">", "%3E"),
    "a..csv",
    "~x.csv",
    "y" * 200 + ".csv",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_nothing(address: str, name: str) -> None:
    token = token_of(address)
    assert request(address, f"/files/{name}", "PUT", b"x", token) in (404, 405, 422)
    assert request(address, f"/files/{name}", "DELETE", b"", token) in (404, 405, 422)
    assert request(address, f"/files/{name}/look", "GET") in (404, 422)


def test_nothing_changes_without_the_token(address: str) -> None:
    for method, path in (
        ("PUT", "/files/a.csv"),
        ("DELETE", "/files/a.csv"),
        ("POST", f"/files/keep?{PLAN}"),
        ("POST", "/measure/calibrate"),
    ):
        assert request(address, path.replace("<", "%3C"), method, b"x", "wrong") == 401
    for path in ("/measure/live?url=http://127.0.0.1:1&model=x", "/measure/watch?url=x"):
        assert request(address, path, "POST", token="wrong") == 401
        assert request(address, path, "GET", token=token_of(address)) == 405


def test_a_file_comes_and_goes(address: str) -> None:
    token = token_of(address)
    assert request(address, "/files/a.csv", "PUT", b"timestamp,isl,osl\n0,1,1\n", token) == 201
    assert request(address, "/files/a.csv/look", "GET") == 200
    assert request(address, "/files/a.csv", "DELETE", b"", token) == 200
    assert request(address, "/files/a.csv/look", "GET") == 422
