"""The page: one file, nobody else's, well formed, reachable by keyboard, and deaf to what names
say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.example_plan import HOSTILE, bare, documents, full, hostile
from tonnage.errors import InputError
from tonnage.report.plans.plan_document import report
from tonnage.report.writers.html import html, write_page

VOID = {"meta", "br", "hr", "img", "input", "link"}
REFERENCES = {
    "src",
    "href",
    "action",
    "srcset",
    "data",
    "poster",
    "xlink:href",
    "formaction",
    "background",
    "manifest",
}
PLANS = documents()


class Page(HTMLParser):
    """Every element with its attributes; says when one is closed that was not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


@pytest.mark.parametrize("name", PLANS)
def test_page_is_whole_and_refers_to_nobody(name: str) -> None:
    text = html(PLANS[name])
    page = Page(text)
    for tag, attributes in page.elements:
        for attribute in REFERENCES & set(attributes):
            assert str(attributes[attribute]).startswith("#"), (tag, attributes)
        assert not [a for a in attributes if a.startswith("on") or a == "style"], (tag, attributes)
    assert page.count("link") == page.count("img") == page.count("iframe") == 0
    own = "".join(re.findall(r"<style>.*?</style>|<script>.*?</script>", text, re.DOTALL))
    assert not re.search(r"https?:|@import|url\(|//[a-z]|import\(|fetch\(|XMLHttp", own)
    assert "http:" not in text
    assert "https:" not in text


@pytest.mark.parametrize("name", PLANS)
def test_anchors_lead_somewhere_and_names_are_unique(name: str) -> None:
    page = Page(html(PLANS[name]))
    names = [a["id"] for _, a in page.elements if "id" in a]
    assert len(names) == len(set(names))
    assert {str(a["href"])[1:] for tag, a in page.elements if tag == "a"} <= set(names)


def test_the_page_is_for_readers_and_keyboards_and_allows_itself_alone() -> None:
    page = Page(html(report(full())))
    assert dict(page.elements[0][1])["lang"] == "en"
    assert page.count("h1") == page.count("main") == 1
    for tag, attributes in page.elements:
        if tag == "th":
            assert attributes["scope"] in {"col", "row"}
        if tag == "div" and attributes.get("class") == "scroll":
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
    assert page.count("table") >= 10
    page = Page(html(report(full())))
    policy = next(
        str(a["content"])
        for tag, a in page.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2
    text = html(report(hostile()))
    page = Page(text)
    assert page.count("script") == 1
    assert text.count("<script") == text.count("</script>") == 1
    assert HOSTILE in "".join(page.words)


def test_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "plan.html"
    write_page(target, report(full()))
    assert target.read_text(encoding="utf-8") == html(report(full()))
    with pytest.raises(InputError, match="report: cannot write"):
        write_page(tmp_path / "nowhere" / "plan.html", report(full()))

    def broken(self: Path, other: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(InputError, match="No space left"):
        write_page(target, report(bare()))
    assert target.read_text(encoding="utf-8") == html(report(full()))
    assert [p.name for p in tmp_path.iterdir()] == ["plan.html"]
