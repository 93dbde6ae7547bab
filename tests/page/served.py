"""``tonnage ui`` as a process of its own, on a free port, and axe-core for the pages that it
serves."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.report.writers.chromium import Chromium

SOON_S = 60.0
AXE = Path(__file__).with_name("axe.min.js")


@contextmanager
def served_page(folder: Path) -> Iterator[str]:
    """The address that the command prints, with its token; the process ends with the block."""
    command = [sys.executable, "-P", "-m", "tonnage", "ui", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def base_of(address: str) -> str:
    """Scheme, host and port."""
    return address.partition("/#")[0]


def token_of(address: str) -> str:
    return parse_qs(urlsplit(address).fragment)["token"][0]


def until(browser: Chromium, script: str, seconds: float = SOON_S) -> Any:
    """What a script says once that is true."""
    end = time.monotonic() + seconds
    while not (found := browser.value(script)):
        assert time.monotonic() < end, (
            f"never true: {script}; the console says {browser.complaints}"
        )
        time.sleep(0.05)
    return found


def hosts_of(browser: Chromium) -> set[str]:
    """Hosts that the page asked."""
    return {
        urlsplit(address).netloc for address in browser.requests if not address.startswith("data:")
    }


def axe_faults(browser: Chromium) -> list[str]:
    """Serious faults that axe-core finds on the page as it stands."""
    until(browser, "document.getAnimations().length === 0")
    browser.value(AXE.read_text(encoding="utf-8"))
    browser.value(
        "axe.run(document, {resultTypes: ['violations']}).then(found => window.axeFound ="
        " found.violations)"
    )
    until(browser, "!!window.axeFound")
    found = browser.value(
        "window.axeFound.map(one => [one.impact, one.id, one.nodes.map(n => n.target.join('"
        " ')).slice(0, 3).join(', ')])"
    )
    return [
        f"{rule}: {where}" for impact, rule, where in found if impact in ("serious", "critical")
    ]
