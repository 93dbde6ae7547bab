"""The local page in Debian's Chromium: how fast a slider is answered, what the first view weighs,
and pictures of every view.

./benchmark ui               prints the times and the bytes
./benchmark ui --pictures    also makes the pictures in docs/images, at 1440 and 390 pixels
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from benchmarks.balance import cpu_s
from tests.page.served import base_of, served_page, until
from tests.report.writers.chromium import Chromium
from tonnage.api.running.processes import served_instances
from tonnage.api.sizing import ask
from tonnage.page.fields import question_of
from tonnage.serve.supervisor import Supervisor
from tonnage.spec.scenario import to_document

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
README = "model=llama-3.1-8b&isl=2000&osl=200&peak_rps=300&ttft=p95<=500ms&tpot=p95<=50ms"
CHANGED = README.replace("tpot=p95<=50ms", "tpot=p95<=18ms") + f"&base={quote(README)}"
COMPARED = f"p={quote(README + '&gpu=h100-sxm-80gb')}&p={quote(README + '&gpu=b200-sxm-180gb')}&p={quote(README + '&gpu=l40s')}"
DECIDED = (
    "!document.querySelector('#simulated.old') && !!document.querySelector('#simulated .title')"
)
SIZED = f"{DECIDED} && document.getElementById('progress').hidden"
VIEWS = {
    "size": (f"size?{README}", SIZED, 1500),
    "what-if": (f"what-if?{CHANGED}", SIZED, 1500),
    "compare": (f"compare?{COMPARED}", "!!document.querySelector('.ready')", 1500),
    "lesson": (
        "lesson?way=in-flight&load=concurrency&concurrency=8",
        "!!document.querySelector('#figures dd')",
        1300,
    ),
    "measure": ("measure", "!!document.querySelector('#bench')", 1300),
    "files": ("files", "!!document.querySelector('#list ul')", 1300),
}
"""The address of each view, what is true once it is there, and the pixels of its picture at
most."""
SIZES = (1440, 390)
MOVES = 15
SEEDS = (1, 2, 3)
SLIDER = """(async () => {
    const slider = document.querySelector('[data-for=f-peak_rps]'), times = [];
    for (let i = 0; i < %d; i++) {
        const swapped = new Promise((done) => document.addEventListener('htmx:afterSwap', done, { once: true }));
        const began = performance.now();
        slider.value = 500 + 20 * i;
        slider.dispatchEvent(new Event('input', { bubbles: true }));
        await swapped;
        times.push(performance.now() - began);
    }
    window.moved = times;
})()"""


Moment = tuple[float, float]
"""Seconds of the clock, and of the CPUs."""
PARTS = ("the choice with its cost", "the whole plan")


def now() -> Moment:
    """The moment, with what the server, its processes and the browser have used."""
    return time.monotonic(), cpu_s(os.getpid())


def timed(kind: str, answer: Callable[[int], Iterator[Moment]]) -> None:
    """Print how long the README's question takes in a warm server, with seeds that no run was made
    for.
    """
    seen = []
    for seed in SEEDS:
        began, *moments = answer(seed)
        seen.append([(clock - began[0], cpu - began[1]) for clock, cpu in moments])
    for part, moments in zip(PARTS, zip(*seen, strict=True), strict=True):
        clocks, cpus = zip(*moments, strict=True)
        print(
            f"README's question, {kind}, {part}: {statistics.median(clocks):.2f} s,"
            f" {min(clocks):.2f} to {max(clocks):.2f}; {statistics.median(cpus):.2f} s of CPU"
        )


def questions(browser: Chromium, base: str) -> None:
    """The README's question, by the page and by the interface for programs."""

    def page(seed: int) -> Iterator[Moment]:
        yield now()
        browser.open(f"{base}/size?{README}&seed={seed}", 1440, 900)
        for there in (DECIDED, SIZED):
            until(browser, there)
            yield now()

    def program(seed: int) -> Iterator[Moment]:
        asked = to_document(ask(None, **question_of(f"{README}&seed={seed + 100}")).scenario)
        streamed = urllib.request.Request(
            f"{base}/api/v1/size", json.dumps(asked).encode(), {"accept": "text/event-stream"}
        )
        yield now()
        with urllib.request.urlopen(streamed, timeout=120) as said:
            for line in said:
                if line in (b"event: decided\n", b"event: answer\n"):
                    yield now()

    timed("on the page, from its address", page)
    timed("to /api/v1/size", program)


def times(browser: Chromium, address: str) -> None:
    """Print what a user waits for, in a server that is warm."""
    base = base_of(address)
    questions(browser, base)
    browser.open(f"{base}/size?{README}", 1440, 900)
    until(browser, SIZED)
    browser.ask("Network.setCacheDisabled", cacheDisabled=True)
    browser.open(f"{base}/size?{README}&seed=9", 1440, 900)
    until(browser, "!!document.querySelector('#estimate .headline')")
    loaded = browser.value("performance.getEntriesByType('navigation')[0].loadEventEnd")
    sizes = [
        e["params"]["encodedDataLength"]
        for e in browser.events
        if e.get("method") == "Network.loadingFinished"
    ]
    print(
        f"first view: {sum(sizes) / 1e3:.0f} kB in {len(sizes)} requests, loaded after"
        f" {loaded:.0f} ms"
    )
    until(browser, SIZED)
    browser.value(SLIDER % MOVES)
    until(browser, "!!window.moved")
    moved = browser.value("window.moved")
    print(
        f"a slider's answer, in the browser: median {statistics.median(moved):.0f} ms of"
        f" {len(moved)}, at most {max(moved):.0f} ms"
    )


def measure(browser: Chromium) -> None:
    """Measure a simulated engine for some seconds."""
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
    instances = served_instances(arguments, 1)
    with tempfile.TemporaryDirectory() as logs, Supervisor(instances, Path(logs)) as engine:
        engine.wait_until_ready(timeout_s=60)
        values = {"url": instances[0].url, "concurrency": "4", "benchmark_duration": "12s"}
        for name, value in values.items():
            browser.value(f"document.getElementById('m-{name}').value = {value!r}")
        browser.value("document.querySelector('#bench .button.strong').click()")
        until(browser, "!!document.querySelector('#found .title, #found .faults')")


def pictures(browser: Chromium, address: str) -> None:
    """Take the pictures."""
    for name, (path, ready, tall) in VIEWS.items():
        for width in SIZES:
            browser.open(f"{base_of(address)}/{path}", width, 900)
            until(browser, ready)
            if name == "files":
                time.sleep(0.5)
                browser.value("document.querySelector('#list a').click()")
                until(browser, "!!document.querySelector('#look .figure')")
            if name == "measure":
                measure(browser)
            until(browser, "document.getAnimations().length === 0")
            time.sleep(0.3)
            height = min(browser.value("document.documentElement.scrollHeight"), tall)
            browser.screenshot(IMAGES / f"ui-{name}-{width}.png", height=height)
            print(f"docs/images/ui-{name}-{width}.png", browser.complaints or "")


def main() -> None:
    """Serve the page, and look at it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "page"
        folder.mkdir()
        shutil.copy(ROOT / "examples" / "code-completion.csv", folder)
        shutil.copy(ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv", folder)
        with served_page(folder) as address, Chromium() as browser:
            browser.open(address, 1440, 900)
            times(browser, address)
            if "--pictures" in sys.argv:
                pictures(browser, address)


if __name__ == "__main__":
    main()
