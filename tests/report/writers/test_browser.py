"""The page in a real browser: Debian's Chromium. ``./check`` says so where it is not installed, and
does not run these."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.example_plan import bare, full, hostile, without_answer
from tests.report.runs import example_run
from tests.report.writers.chromium import Chromium, path
from tonnage.report.plans.plan_document import report
from tonnage.report.runs.run_document import run_report
from tonnage.report.runs.shown_run import read_shown_runs
from tonnage.report.writers.html import write_page
from tonnage.simulator.lesson import LessonConfig, run_lesson
from tonnage.simulator.timeline import lesson_timeline

pytestmark = pytest.mark.browser
SIZES = ((1280, 900), (768, 1024), (390, 844), (320, 640))


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    assert path(), "no chromium on this machine; apt-get install chromium"
    with Chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    plans = {"full": full(), "bare": bare(), "none": without_answer(), "hostile": hostile()}
    for name, plan in plans.items():
        write_page(folder / f"{name}.html", report(plan))
    write_page(folder / "several.html", report(full(), without_answer()))
    write_page(
        folder / "run.html", run_report(read_shown_runs(example_run.measured(folder / "run")))
    )
    write_page(
        folder / "sweep.html", run_report(read_shown_runs(example_run.sweep(folder / "sweep")))
    )
    slots = lesson_timeline(run_lesson(LessonConfig()))
    write_page(folder / "slots.html", run_report(read_shown_runs(folder / "run"), slots))
    return {name: folder / f"{name}.html" for name in (*plans, "several", "run", "sweep", "slots")}


@pytest.mark.parametrize(
    "size",
    [*SIZES[1:3], *(pytest.param(size, marks=pytest.mark.live) for size in SIZES[::3])],
    ids=str,
)
def test_pages_open_alone_and_are_no_wider_than_the_window(
    browser: Chromium, pages: dict[str, Path], size: tuple[int, int]
) -> None:
    for page in pages.values():
        browser.show(page, *size)
        assert browser.requests == [page.resolve().as_uri()]
        assert browser.complaints == []
        assert browser.value("document.documentElement.scrollWidth") <= size[0]


def test_names_that_are_scripts_do_nothing(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["hostile"], 1280, 900)
    assert browser.value("document.scripts.length") == 1
    assert browser.value("document.images.length") == 0
    assert browser.value("document.title").startswith("5 × dgx-h100</script>")


def test_the_drawing_that_fits_is_shown(browser: Chromium, pages: dict[str, Path]) -> None:
    shown = (
        "[...document.querySelectorAll('.figure')].filter(f => f.getBoundingClientRect().width >"
        " 0).map(f => f.classList[1])"
    )
    browser.show(pages["full"], 1280, 900)
    assert set(browser.value(shown)) == {"wide"}
    browser.show(pages["full"], 390, 844)
    assert set(browser.value(shown)) == {"narrow"}


@pytest.mark.live
def test_labels_do_not_leave_their_figure(browser: Chromium, pages: dict[str, Path]) -> None:
    outside = """[...document.querySelectorAll('.figure text')].filter(t => {
        const a = t.getBoundingClientRect(), b = t.closest('svg').getBoundingClientRect();
        return b.width > 0 && (a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1);
    }).map(t => t.textContent)"""
    for name in ("full", "run", "sweep", "slots"):
        for width, height in SIZES:
            browser.show(pages[name], width, height)
            assert browser.value(outside) == []


def test_arrow_keys_step_from_mark_to_mark(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["full"], 1280, 900)
    browser.value("document.querySelector('#answer .figure').focus({preventScroll: true})")
    assert browser.value("document.getElementById('tip').hidden")
    browser.press("ArrowRight")
    first = browser.value("document.getElementById('tip').textContent")
    browser.press("ArrowRight")
    second = browser.value("document.getElementById('tip').textContent")
    assert first.startswith("TTFT p95")
    assert second.startswith("TTFT p95")
    assert first != second
    box = browser.value(
        "(r => [r.left, r.top, r.right,"
        " r.bottom])(document.getElementById('tip').getBoundingClientRect())"
    )
    assert box[0] >= 0
    assert box[1] >= 0
    assert box[2] <= 1280
    browser.press("Escape")
    assert browser.value("document.getElementById('tip').hidden")


def test_pointer_shows_the_whole_configuration(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["full"], 1280, 900)
    mark = "document.querySelector('#candidates .figure.wide .mark:has(circle.chosen)')"
    browser.value(f"{mark}.scrollIntoView({{block: 'center'}})")
    x, y = browser.value(
        f"(r => [r.left + r.width / 2, r.top + r.height / 2])({mark}.getBoundingClientRect())"
    )
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    said = browser.value("document.getElementById('tip').textContent")
    for part in (
        "FP8, TP 1, tensorrt-llm on h100-sxm-80gb",
        "5 × dgx-h100",
        "max batch 2,048",
        "USD a year",
    ):
        assert part in said


@pytest.mark.live
def test_everything_is_reached_with_the_tabulator_and_seen(
    browser: Chromium, pages: dict[str, Path]
) -> None:
    browser.show(pages["full"], 1280, 900)
    browser.value(
        "for (const one of document.querySelectorAll('section > details')) one.open = true"
    )
    reached = set()
    for _ in range(120):
        browser.press("Tab")
        reached.add(
            browser.value(
                "(e => e.tagName + '.' + (e.getAttribute('class') || ''))(document.activeElement)"
            )
        )
    assert {"A.", "DIV.scroll", "svg.figure wide", "SUMMARY.", "BUTTON."} <= reached


@pytest.mark.live
def test_words_stand_out_from_their_paper_in_light_and_dark(
    browser: Chromium, pages: dict[str, Path]
) -> None:
    ratio = """(() => {
        const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255)
            .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
        const paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
            if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
        let least = 99;
        for (const e of document.querySelectorAll('p, li, td, th, dt, dd, h1, h2, a, summary, caption, figcaption, code')) {
            const [a, b] = [light(getComputedStyle(e).color), light(paper(e))].sort((x, y) => y - x);
            least = Math.min(least, (a + .05) / (b + .05));
        }
        return least;
    })()"""
    for name in ("full", "run"):
        for dark in (False, True):
            browser.show(pages[name], 1280, 900, dark=dark)
            assert browser.value(ratio) >= 4.5


@pytest.mark.live
@pytest.mark.parametrize("section", ["first-token", "tokens", "whole", "lengths", "time"])
def test_arrow_keys_reach_the_marks_of_every_figure_of_a_run(
    browser: Chromium, pages: dict[str, Path], section: str
) -> None:
    browser.show(pages["run"], 1280, 900)
    browser.value(
        f"document.querySelector('#{section} .figure.wide').focus({{preventScroll: true}})"
    )
    browser.press("ArrowRight")
    assert not browser.value("document.getElementById('tip').hidden")
    assert browser.value("document.getElementById('tip').textContent.length") > 10


def soon(browser: Chromium, script: str, wanted: object) -> bool:
    """Whether a script says what is wanted within three seconds: the page hears of a scroll with
    its next frame."""
    for _ in range(60):
        if browser.value(script) == wanted:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.live
@pytest.mark.parametrize("width", [1440, 1000, 390])
def test_the_contents_stay_in_sight_and_show_what_is_read(
    browser: Chromium, pages: dict[str, Path], width: int
) -> None:
    browser.show(pages["full"], width, 844)
    browser.value("document.getElementById('sensitivity').scrollIntoView({behavior: 'instant'})")
    assert soon(
        browser,
        "[...document.querySelectorAll('nav a[aria-current]')].map(a => a.hash).join()",
        "#sensitivity",
    )
    top, bottom = browser.value(
        "(r => [r.top, r.bottom])(document.querySelector('nav').getBoundingClientRect())"
    )
    assert 0 <= top < bottom
    assert top < 844
    heading = browser.value("document.querySelector('#sensitivity h2').getBoundingClientRect().top")
    assert heading >= (bottom if width < 1248 else 0), "the contents hide the heading"


def test_a_link_to_a_folded_part_opens_it(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["full"], 1440, 900)
    assert not browser.value("document.querySelector('#repeat > details').open")
    browser.value("document.querySelector('nav a[href=\"#repeat\"]').click()")
    assert soon(browser, "document.querySelector('#repeat > details').open", True)


@pytest.mark.live
@pytest.mark.parametrize("name", ["full", "several", "run", "sweep"])
def test_no_table_is_cut_off_on_a_telephone(
    browser: Chromium, pages: dict[str, Path], name: str
) -> None:
    browser.show(pages[name], 390, 844)
    browser.value("for (const one of document.querySelectorAll('details')) one.open = true")
    cut = (
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth +"
        " 1).map(e => e.getAttribute('aria-label'))"
    )
    assert browser.value(cut) == []


@pytest.mark.live
@pytest.mark.parametrize("name", ["full", "bare", "none", "several"])
def test_the_first_page_is_one_page_of_paper_and_stands_alone(
    browser: Chromium, pages: dict[str, Path], name: str
) -> None:
    browser.show(pages[name], 695, 1009)  # A4 between its margins, in pixels of CSS
    browser.ask("Emulation.setEmulatedMedia", media="print")
    height = browser.value("document.querySelector('.first').getBoundingClientRect().height")
    breaks = browser.value(
        "getComputedStyle(document.querySelector('.first + section')).breakBefore"
    )
    browser.ask("Emulation.setEmulatedMedia", media="")
    assert height <= 1009
    assert breaks == "page"


@pytest.mark.live
def test_prints(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["full"], 1280, 900)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 3 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 16


# What a notebook's page says of everything inside of a cell
FOREIGN = """<!doctype html><meta name="viewport" content="width=device-width, initial-scale=1"><style>
.out dl { display: block; } .out dt { float: left; clear: left; } .out table { table-layout: fixed; margin: 0 auto; }
.out tbody tr:nth-child(odd) td, .out th { text-align: right; background: pink; white-space: nowrap; }
.out h1, .out h2 { font-size: 60px; } .out pre { white-space: pre-wrap; font-size: 40px; } .out * { letter-spacing: 3px; }
</style><div class="out" style="width: %dpx">%s</div>"""
LAID_OUT = """(() => {
  const cell = document.querySelector('.out').getBoundingClientRect(), tops = [...document.querySelectorAll('dl.big > div')].map(
    tile => Math.round(tile.getBoundingClientRect().top));
  const shown = [...document.querySelectorAll('svg')].filter(svg => svg.checkVisibility());
  document.querySelectorAll('details').forEach(fold => fold.open = true);
  const style = getComputedStyle(document.querySelector('pre')), wide = [...document.querySelectorAll('svg, table, dl, h1, h2')].filter(
    e => e.getBoundingClientRect().right > cell.right + 1).map(e => e.tagName);
  return {tiles: tops.filter(top => top === tops[0]).length, kinds: shown.map(svg => svg.classList[1]), white: style.whiteSpace, wide};
})()"""


@pytest.mark.parametrize(("width", "kind", "tiles"), [(850, "wide", 4), (370, "narrow", 2)])
def test_in_a_notebook_reports_keep_their_looks_and_follow_the_width_of_the_cell(
    browser: Chromium, tmp_path: Path, width: int, kind: str, tiles: int
) -> None:
    page = tmp_path / "cell.html"
    page.write_text(
        FOREIGN % (width, run_lesson(LessonConfig(batcher="static"))._repr_html_()),
        encoding="utf-8",
    )
    browser.show(page, 1280, 900)
    assert browser.value(LAID_OUT) == {"tiles": tiles, "kinds": [kind], "white": "pre", "wide": []}
