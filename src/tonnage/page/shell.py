"""What every view has around it: head, navigation, and where its words go."""

from __future__ import annotations

from html import escape

from tonnage.deploy.targets import TARGETS
from tonnage.version import VERSION

VIEWS = (("size", "Size"), ("what-if", "What if"), ("compare", "Compare"), ("lesson", "Lesson"), ("measure", "Measure"), ("files", "Files"))
"""Path and name of each view, in the order of the navigation."""

MARK = (
    '<svg class="logo" viewBox="0 0 24 24" aria-hidden="true"><rect x="3" y="13" width="4" height="8" rx="1"/>'
    '<rect x="10" y="8" width="4" height="13" rx="1"/><rect x="17" y="3" width="4" height="18" rx="1"/></svg>'
)
HTMX = '{"includeIndicatorStyles": false, "allowEval": false, "selfRequestsOnly": true, "historyCacheSize": 0, "defaultSettleDelay": 0}'


def page(active: str, title: str, inside: str, *, query: str = "", scripts: tuple[str, ...] = (), styles: tuple[str, ...] = ()) -> str:
    """A view as a whole page.

    Args:
        active: path of the view.
        query: of the question, which the links to the other views that take one carry along.
        scripts, styles: names of further ones.
    """
    links = "".join(_link(path, name, active, query) for path, name in VIEWS)
    more = "".join(f'<script src="/static/{name}" defer></script>\n' for name in scripts)
    more += "".join(f'<link rel="stylesheet" href="/static/{name}">\n' for name in styles)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta name=\"htmx-config\" content='{HTMX}'>\n"
        f"<title>{escape(title)} – Tonnage</title>\n"
        '<link rel="icon" href="data:,">\n'
        '<link rel="stylesheet" href="/static/report.css">\n<link rel="stylesheet" href="/static/page.css">\n'
        '<script src="/static/htmx.min.js" defer></script>\n<script src="/static/report.js" defer></script>\n'
        f'<script src="/static/page.js" defer></script>\n{more}</head>\n<body class="app">\n'
        '<a class="skip" href="#main">To the content</a>\n'
        f'<header class="bar"><a class="brand" href="/size">{MARK}<span>Tonnage</span></a>'
        f'<nav class="views" aria-label="Views"><ul>{links}</ul></nav></header>\n'
        f'<main id="main" class="{escape(active)}">\n{inside}</main>\n'
        f'<footer class="foot">Tonnage {VERSION} · runs on this machine, asks no other</footer>\n'
        '<div id="tip" role="status" hidden></div>\n</body>\n</html>\n'
    )


def _link(path: str, name: str, active: str, query: str) -> str:
    carried = f"?{escape(query)}" if query and path in ("size", "what-if") else ""
    current = ' aria-current="page"' if path == active else ""
    return f'<li><a href="/{path}{carried}"{current}>{name}</a></li>'


def faults(lines: list[str] | tuple[str, ...]) -> str:
    """What is wrong with a question, one line each."""
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="faults" role="alert"><p>This cannot be answered yet:</p><ul>{listed}</ul></div>'


def button(label: str, *, href: str, kind: str = "quiet") -> str:
    """A link that looks like a button."""
    return f'<a class="button {kind}" href="{escape(href)}">{escape(label)}</a>'


def deploy_links(query: str) -> str:
    """An archive of files for each target."""
    links = "".join(f'<a href="/deploy.zip?target={target}&amp;{escape(query)}">{target}</a>' for target in TARGETS)
    return f'<details class="menu"><summary class="button">Deploy</summary><div>{links}</div></details>'
