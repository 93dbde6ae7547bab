"""Makes the pictures of reports in docs/images, in Debian's Chromium: of a plan at 1100 and 390
pixels, and of a measured run.

./benchmark report_pictures
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.report.writers.chromium import Chromium
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PLAN = (
    *(
        "size",
        str(ROOT / "examples" / "chat-day.yaml"),
        "--mean-rps",
        "1000",
        "--where",
        "on-prem,cloud,hybrid,api",
    ),
    *(
        "--gpu",
        "h100-sxm-80gb,a100-sxm-80gb,l40s",
        "--precision",
        "fp16,fp8",
        "--tp",
        "1,2,4,8",
        "--engine",
        "tensorrt-llm,vllm",
    ),
    *("--ttft", "p95<=500ms", "--itl", "p99<=100ms"),
)
RUN = (
    *(
        "bench",
        "--model",
        "llama-3.1-8b",
        "--isl",
        "lognormal:800,500",
        "--osl",
        "uniform:20-120",
        "--request-rate",
        "11",
    ),
    *("--request-count", "600", "--no-selftest"),
)


def shot(
    browser: Chromium,
    page: Path,
    picture: str,
    *,
    width: int,
    part: str,
    height: float = 0,
    dark: bool = False,
) -> None:
    """One part of a page, from its top on, in at most so many pixels."""
    browser.show(page, width, 900, dark=dark)
    top, tall = browser.value(
        "(r => [r.top + scrollY,"
        f" r.height])(document.querySelector('{part}').getBoundingClientRect())"
    )
    browser.screenshot(IMAGES / picture, top=top, height=min(height or tall, tall) + 12)


def main() -> None:
    """Size, measure, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        plan, measured = Path(folder) / "plan.html", Path(folder) / "run.html"
        run([*PLAN, "--report", str(plan)])
        with exact_server(Schedule(ttft_s=0.05, itl_s=0.01, slots=12), seconds=180) as url:
            run([*RUN, "--url", url, "--report", str(measured)])
        shot(browser, plan, "report-desktop.png", width=1100, part=".first")
        shot(browser, plan, "report-figures.png", width=1100, part="#sensitivity", height=760)
        shot(browser, plan, "report-dark.png", width=1100, part="#cost", height=700, dark=True)
        shot(browser, plan, "report-phone.png", width=390, part=".first", height=1100)
        shot(
            browser, plan, "report-phone-figures.png", width=390, part="#answer figure", height=600
        )
        shot(browser, measured, "report-run.png", width=1100, part="#first-token")
        shot(browser, measured, "report-run-time.png", width=1100, part="#time", height=820)


if __name__ == "__main__":
    main()
