"""The lessons as notebooks show them, with the style of JupyterLab, in a window of 1,280 and of 800
pixels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks.test_lessons import LESSONS, cells
from tests.report.writers.chromium import Chromium, path

pytestmark = [
    pytest.mark.notebooks,
    pytest.mark.browser,
    pytest.mark.skipif(path() is None, reason="no chromium on this machine"),
]

OPEN_ALL = "document.querySelectorAll('details').forEach(fold => fold.open = true)"
# Of each drawing that is shown: its class, how far it or one of its words is outside of the cell or
# of itself, and words over each other
DRAWINGS = """
[...document.querySelectorAll('.tonnage svg')].filter(svg => svg.checkVisibility()).map(svg => {
  const box = svg.getBoundingClientRect(), cell = svg.closest('.jp-OutputArea-output').getBoundingClientRect();
  const words = [...svg.querySelectorAll('text')].filter(t => t.textContent).map(t => t.getBoundingClientRect());
  const inside = (a, b) => Math.max(b.left - a.left, a.right - b.right, b.top - a.top, a.bottom - b.bottom, 0);
  return {kind: svg.getAttribute('class'), wide: box.width, out: Math.max(inside(box, cell), ...words.map(one => inside(one, box)))};
})"""
# Lines of text that take more rows than they are, or more room than the window has: code, what a
# cell printed, letters that draw
LINES = """
[...document.querySelectorAll('.jp-Cell pre')].filter(pre => pre.checkVisibility() && pre.textContent.trim()).filter(pre => {
  const style = getComputedStyle(pre), high = parseFloat(style.lineHeight), range = document.createRange();
  range.selectNodeContents(pre);
  const rows = Math.round(range.getBoundingClientRect().height / high), lines = pre.textContent.replace(/\\n+$/, '').split('\\n').length;
  return rows > lines || (pre.scrollWidth > pre.clientWidth + 1 && style.overflowX !== 'auto');
}).map(pre => pre.textContent.slice(0, 200))"""
CODE = (
    "[...document.querySelectorAll('.jp-InputArea pre')].filter(pre => pre.scrollWidth >"
    " pre.parentElement.clientWidth + 1).length"
)
# Tables that are cut at the right, with their first line
CUT = """
[...document.querySelectorAll('.tonnage .scroll')].filter(box => box.checkVisibility() &&
  box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 80))"""
# How many tiles are next to the first one of their list
TILES = """
[...document.querySelectorAll('.tonnage dl.big')].filter(list => list.checkVisibility()).map(list => {
  const tops = [...list.children].map(tile => Math.round(tile.getBoundingClientRect().top));
  return tops.filter(top => top === tops[0]).length;
})"""
FIRST_FIGURES = """
[...document.querySelectorAll('.tonnage')].filter(piece => piece.checkVisibility() && piece.querySelector('svg'))
  .map(piece => [...piece.querySelectorAll('svg')].slice(0, 2).some(svg => svg.checkVisibility()))"""
SOLUTIONS = "[...document.querySelectorAll('.jp-MarkdownCell details')].map(fold => fold.open)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as found:
        yield found


def page(lesson: Path, folder: Path) -> Path:
    """The shipped lesson as a page with the style of JupyterLab, its folded cells folded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nbconvert import HTMLExporter

        body, _ = HTMLExporter(template_name="lab").from_filename(str(lesson))
    target = folder / f"{lesson.stem}.html"
    target.write_text(body, encoding="utf-8")
    return target


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_no_drawing_is_cut_and_no_line_wraps(
    lesson: Path, width: int, browser: Chromium, tmp_path: Path
) -> None:
    browser.show(page(lesson, tmp_path), width, 1000)
    shown = sum(
        "text/html" in output.get("data", {})
        for cell in cells(lesson, "code")
        for output in cell["outputs"]
    )
    assert browser.value("document.querySelectorAll('.tonnage').length") == shown >= 1
    assert all(browser.value(FIRST_FIGURES))
    assert set(browser.value(SOLUTIONS)) == {False}
    assert browser.value(CUT) == []  # what is folded may be wider, and scrolls
    for _ in ("as it opens", "with every part unfolded"):
        drawings: list[dict[str, Any]] = browser.value(DRAWINGS)
        assert [drawing for drawing in drawings if drawing["out"] > 1.5] == []
        assert {drawing["kind"] for drawing in drawings} <= {
            "figure wide" if width == 1280 else "figure narrow",
            "figure wide",
        }
        assert browser.value(LINES) == []
        assert browser.value(CODE) == 0
        assert browser.value("document.documentElement.scrollWidth") <= width
        browser.value(OPEN_ALL)
    tiles: list[int] = browser.value(TILES)
    assert [in_a_row for in_a_row in tiles if in_a_row < (3 if width == 1280 else 2)] == []
