"""Builds the documentation site: the pages of docs/, the lessons, and the reference of command and
Python from the code.

    ./docs-site site               the lessons executed, which takes some minutes
    ./docs-site site --no-lessons  the lessons with the output that they ship with

A warning of Sphinx, such as a link that leads nowhere, is an error. The site needs no network: open
site/index.html.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from functools import partial
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[1]
LESSONS = ROOT / "src" / "tonnage" / "notebooks"
UPWARDS = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([\w./-]+)((?:#[\w-]+)?)\)")
"""A link whose path goes up: its text, the path and the anchor."""

PAGES = (
    ("tasks", "which-path", "course", "chain"),
    (
        "size",
        "scenario",
        "report",
        "cost",
        "autoscaling",
        "systems",
        "services",
    ),
    (
        "bench",
        "score",
        "calibrate",
        "workload",
        "watch",
        "metrics",
        "accuracy",
        "intervals",
        "fit",
        "step-models",
    ),
    (
        "simulate",
        "serve",
        "load-balancing",
        "memory",
        "catalog",
        "deploy",
        "compress",
        "ui",
        "python",
    ),
    ("scope", "security", "glossary", "design"),
)
GROUPS = (
    "What do you have?",
    "Size",
    "Measure and calibrate",
    "Simulate, serve and deploy",
    "About Tonnage",
)

CONFIGURATION = {
    "project": "Tonnage",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "html_theme": "furo",
    "html_title": "Tonnage",
    "html_copy_source": False,
    "html_show_sphinx": False,
    "myst_heading_anchors": 4,
    "nb_execution_timeout": 300,
    "nb_execution_raise_on_error": True,
    "nb_execution_show_tb": True,
    "suppress_warnings": ["misc.highlighting_failure"],  # csv has no lexer
    "autodoc_typehints": "none",
    "autodoc_member_order": "alphabetical",
    "copyright": "",
    "exclude_patterns": ["files", "extra"],
    "html_extra_path": ["extra"],
}


PLAYED = """# The lesson, played

The [batching simulator](simulate.md) of the lessons, step by step: choose a way of batching and a load, and play. These timelines are
recorded; in [`tonnage ui`](ui.md) every number is a slider.

```{raw} html
<p><a href="player.html">The lesson alone</a> has room for a wide screen.</p>
<iframe src="player.html" title="The lesson" style="width: 100%; height: 78rem; border: 0"></iframe>
```
"""


def main(arguments: list[str] | None = None) -> int:
    """Build the site; the exit code, 1 where anything warned."""
    parser = argparse.ArgumentParser(
        prog="./docs-site", description="Build the documentation site."
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--no-lessons", action="store_true", help="do not execute the lessons")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tonnage-site-") as folder:
        source = Path(folder) / "source"
        stage(source)
        built = Path(folder) / "built" / "html"  # MyST-NB writes next to it as well
        if build(source, Path(folder) / "doctrees", built, execute=not asked.no_lessons):
            return 1
        shutil.copytree(built, asked.output, dirs_exist_ok=True)
    print(f"open {asked.output / 'index.html'}")
    return 0


def build(source: Path, doctrees: Path, output: Path, *, execute: bool) -> int:
    """Run Sphinx on a folder of pages."""
    from sphinx.application import Sphinx

    settings = {**CONFIGURATION, "nb_execution_mode": "force" if execute else "off"}
    app = Sphinx(
        source,
        None,
        output,
        doctrees,
        "html",
        confoverrides=settings,
        status=None,
        warning=sys.stderr,
        warningiserror=True,
    )
    app.build()
    if app.statuscode:
        print("the site has warnings, which are errors", file=sys.stderr)
        return 1
    print(f"{len(app.env.found_docs)} pages")
    return 0


def stage(source: Path) -> None:
    """The pages of docs/, the lessons and the reference, as the site has them."""
    shutil.copytree(ROOT / "docs", source)
    shutil.copytree(LESSONS, source / "lessons")
    shutil.copytree(ROOT / "examples", source / "files" / "examples")
    for page in source.rglob("*.md"):
        up = "../" * (len(page.relative_to(source).parts) - 1)
        page.write_text(
            UPWARDS.sub(partial(_inside, up=up), page.read_text(encoding="utf-8")), encoding="utf-8"
        )
    (source / "extra").mkdir()
    (source / "extra" / "player.html").write_text(lesson(), encoding="utf-8")
    (source / "lesson.md").write_text(PLAYED, encoding="utf-8")
    (source / "index.md").write_text(front(), encoding="utf-8")
    (source / "command.md").write_text(command(), encoding="utf-8")
    (source / "python-reference.md").write_text(python(), encoding="utf-8")


def _inside(link: re.Match[str], *, up: str) -> str:
    """The link as the site has it: to a page, a lesson or an example; of any other file of the
    repository the path as text.
    """
    text, path = link[1], Path(link[2])
    if path.is_relative_to("src/tonnage/notebooks"):
        return f"[{text}]({up}lessons/{path.name if path.suffix else '00-first-contact.ipynb'})"
    if (ROOT / "docs" / path).is_file():
        return link[0]
    if (ROOT / path).is_file() and path.parts[0] == "examples":
        return f"[{text}](path:{up}files/{path})"
    return text if text == str(path) else f"{text} (`{path}`)"


def front() -> str:
    """The first page: what it is, in the words of README.md, and every page by what one wants to
    do.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    about = readme.split("\n\n")[1].replace("](docs/", "](")
    lessons = "\n".join(f"lessons/{path.stem}" for path in sorted(LESSONS.glob("*.ipynb")))
    parts = [f"# Tonnage\n\n{about}\n\n![The first page of a report](images/report-desktop.png)"]
    for title, names in zip(GROUPS, PAGES, strict=True):
        pages = "\n".join(names)
        parts.append(f"```{{toctree}}\n:caption: {title}\n:maxdepth: 1\n\n{pages}\n```")
    parts.insert(2, f"```{{toctree}}\n:caption: Learn\n:maxdepth: 1\n\nlesson\n{lessons}\n```")
    parts.append(
        "```{toctree}\n:caption: Reference\n:maxdepth: 1\n\ncommand\npython-reference\n```"
    )
    return "\n\n".join(parts) + "\n"


def lesson() -> str:
    """The lesson of the page as one file that needs no server: its controls, its script, and a
    recorded timeline of each choice.
    """
    from tonnage.page.lesson_view import BATCHERS, LOADS, player, watched
    from tonnage.page.server import ASSETS

    def asset(name: str) -> str:
        package, path = ASSETS[name]
        return files(package).joinpath(path).read_text(encoding="utf-8")

    recorded = {
        f"way={way}&load={load}": watched({"way": way, "load": load})
        for way in BATCHERS
        for load in LOADS
    }
    styles = "".join(
        f"<style>{asset(name)}</style>" for name in ("report.css", "page.css", "uPlot.min.css")
    )
    scripts = "".join(
        f"<script>{asset(name)}</script>" for name in ("page.js", "uPlot.iife.min.js", "lesson.js")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        ' content="width=device-width, initial-scale=1">'
        f'<title>The lesson</title>{styles}</head><body class="app"><main'
        f' class="lesson">{player({}, sliders=False)}</main>'
        '<script type="application/json"'
        f' id="recorded">{json.dumps(recorded, separators=(",", ":"))}</script>{scripts}</body></html>'
    )


def command() -> str:
    """Every verb and flag, from the command itself."""
    from tonnage.cli.main import app

    return app.generate_docs(output_format="markdown").replace("# tonnage\n", "# The command\n", 1)


def python() -> str:
    """Every public name of Python, from its docstring."""
    import tonnage
    from tonnage import api

    parts = ["# Python reference\n\n[Python](python.md) says how they belong together."]
    for module, names in (("tonnage", tonnage.__all__), ("tonnage.api", api.__all__)):
        parts.append(f"## {module}")
        for name in names:
            if name.startswith("__") or (module == "tonnage.api" and name in tonnage.__all__):
                continue
            kind = (
                "autoclass"
                if isinstance(getattr(tonnage if module == "tonnage" else api, name), type)
                else "autofunction"
            )
            parts.append(f"```{{eval-rst}}\n.. {kind}:: {module}.{name}\n```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
