"""The documentation site: it builds without a warning, its links lead somewhere, and its search
answers without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from tools.site import PAGES, ROOT, stage

QUESTIONS = {  # what a reader types, and the page that one of the first five results must be
    "benchmark file": "tasks",
    "trace": "tasks",
    "size RAG": "tasks",
    "FP8 GPUs": "lessons/07-optimisations",
    "conversations": "tasks",
    "disaggregated pools": "tasks",
    "offline night": "tasks",
    "GenAI-Perf": "tasks",
    "INVALID verdict": "bench",
    "break-even": "lessons/04-cost",
}


class Page(HTMLParser):
    """Anchors, links, and what a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "img", "link", "iframe", "source"):
            self.loads += [found[name] for name in ("src", "href") if name in found]


def build(output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.site", str(output), "--no-lessons", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("site") / "html"
    done = build(output)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in output.parent.iterdir()] == ["html"]
    return output


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_of_docs_has_a_place() -> None:
    named = {f"{name}.md" for names in PAGES for name in names}
    assert named == {
        path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }


def test_links_to_the_repository_lead_to_what_the_site_has(tmp_path: Path) -> None:
    stage(tmp_path / "source")
    text = (tmp_path / "source" / "course.md").read_text(encoding="utf-8")
    assert "[rag-assistant.yaml](path:files/examples/rag-assistant.yaml)" in text
    assert "](lessons/05-" in (tmp_path / "source" / "tasks.md").read_text(encoding="utf-8")
    assert not re.search(
        r"\]\(\.\./(?:src|tools|examples)/",
        "".join(p.read_text() for p in (tmp_path / "source").glob("*.md")),
    )


@pytest.mark.notebooks
def test_every_link_inside_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or not (parts.path or parts.fragment):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            known = {other.resolve(): found for other, found in pages.items()}
            if not target.is_file() or (
                parts.fragment
                and target in known
                and unquote(parts.fragment) not in known[target].ids
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    assert sum(len(page.links) for page in pages.values()) > 2_000


@pytest.mark.notebooks
def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert {
        load for page in pages.values() for load in page.loads if urlsplit(load).netloc
    } == set()


@pytest.mark.notebooks
def test_the_reference_has_every_verb_flag_and_public_name(site: Path) -> None:
    import tonnage
    from tonnage import api
    from tonnage.cli.main import VERBS

    command = (site / "command.html").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if f'id="tonnage-{verb}"' not in command] == []
    assert "–peak-rps" in command or "--peak-rps" in command
    python = (site / "python-reference.html").read_text(encoding="utf-8")
    names = [*(f"tonnage.{name}" for name in tonnage.__all__ if not name.startswith("__"))]
    names += [f"tonnage.api.{name}" for name in api.__all__ if name not in tonnage.__all__]
    assert [name for name in names if f'id="{name}"' not in python] == []


@pytest.mark.notebooks
@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")
@pytest.mark.parametrize("question", QUESTIONS)
def test_search_finds_the_page_without_a_network(question: str, site: Path, tmp_path: Path) -> None:
    address = f"file://{site}/search.html?q={quote(question)}"
    browser = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=8000",
    ]
    done = subprocess.run(
        [*browser, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True
    )
    found = list(
        dict.fromkeys(re.findall(r'<li class="kind-\w+"><a href="([^"?#]*)\.html', done.stdout))
    )
    assert QUESTIONS[question] in found[:5]
