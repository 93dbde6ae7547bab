"""The Compare view: up to four plans side by side, their curves in one figure, and the differences of their questions."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tonnage.errors import InputError
from tonnage.page.http_api import while_there
from tonnage.page.question import question_of
from tonnage.page.shell import faults, page
from tonnage.page.size_view import desk_of
from tonnage.report.document import Drawing, Facts, section
from tonnage.report.plans.answer import title
from tonnage.report.plans.comparison import compared
from tonnage.report.plans.diff import diff_text, differences
from tonnage.report.plans.figures import curves
from tonnage.report.plans.plan_document import first_glance
from tonnage.report.plans.screen import in_one
from tonnage.report.writers.html import fragment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from tonnage.page.desk import Desk
    from tonnage.plan.plan import Plan

MOST = 4
"""Plans side by side."""
LETTERS = "ABCD"


def routes() -> list[Route]:
    """The addresses of the view."""
    return [Route("/compare", view), Route("/compare/answer", answer)]


def places_of(request: Request) -> list[str]:
    """The links that are compared."""
    return list(dict.fromkeys(request.query_params.getlist("p")))[:MOST]


def _address(places: Sequence[str], path: str = "/compare") -> str:
    return f"{path}?{'&'.join(f'p={quote(place)}' for place in places)}"


async def view(request: Request) -> Response:
    """What is compared, and the place of the answer."""
    places = places_of(request)
    inside = (
        '<h1>Compare</h1><p class="lead">Up to four plans side by side. <em>Compare</em> under an answer of Size adds it here; the address '
        "of this page holds all of them.</p>\n"
        f'<form class="add" action="/compare" method="get">{"".join(_kept(place) for place in places)}'
        '<label for="add-p">Add the link of a plan</label><input id="add-p" name="p" placeholder="model=llama-3.1-8b&amp;isl=2000&amp;…" '
        'spellcheck="false"><button class="button">Add</button></form>\n'
    )
    if places:
        boxes = "".join(_box(place, letter, places) for place, letter in zip(places, LETTERS, strict=False))
        inside += (
            f'<ul class="plans" data-plans>{boxes}</ul><div hx-get="{escape(_address(places, "/compare/answer"))}" hx-trigger="load" '
            'aria-live="polite"><p class="hint waiting">Simulating what is not answered yet …</p></div>\n'
        )
    return HTMLResponse(page("compare", "Compare", inside))


def _kept(place: str) -> str:
    return f'<input type="hidden" name="p" value="{escape(place)}">'


def _box(place: str, letter: str, places: list[str]) -> str:
    """One of the plans: where its question is, and how to leave it out."""
    rest = [one for one in places if one != place]
    link = f'<a href="/size?{escape(place)}">change</a> ' if not place.startswith("@") else ""
    words = place if place.startswith("@") else ", ".join(place.split("&")).replace("=", " ").replace("<", " ≤")
    gone = f'<a href="{escape(_address(rest) if rest else "/compare")}">leave out</a>'
    return f'<li><span class="place">{letter}</span><span class="words">{escape(words)}</span><span class="links">{link}{gone}</span></li>'


async def answer(request: Request) -> Response:
    """The plans side by side."""
    desk = desk_of(request)
    try:
        places = [place if place.startswith("@") else _link(place) for place in places_of(request)]
        plans = await while_there(request, _plans(desk, places))
    except InputError as error:
        return HTMLResponse(faults(str(error).splitlines()))
    return HTMLResponse(_side_by_side(plans))


def _link(place: str) -> str:
    """The query of a link, which may be a whole address."""
    query = place.partition("?")[2] or place
    question_of(query)
    return query


async def _plans(desk: Desk, places: Sequence[str]) -> list[Plan]:
    return [await desk.plan_at(place) for place in places]


def _side_by_side(plans: Sequence[Plan]) -> str:
    names = [f"{letter}: {plan.scenario.model}" for letter, plan in zip(LETTERS, plans, strict=False)]
    columns = "".join(
        f'<div class="column"><h2><span class="place">{letter}</span>{escape(title(plan))}</h2>'
        f"{fragment(section(f'glance-{letter}', '', Facts(rows=first_glance(plan), big=True)))}</div>"
        for letter, plan in zip(LETTERS, plans, strict=False)
    )
    figure = curves(plans, names)
    drawn = None if figure is None else Drawing(figure=figure, reading="The lower and the further right, the better.", numbers=None)
    found = f'<div class="columns">{columns}</div>'
    found += fragment(section("curves", "Latency against load", drawn)) if drawn is not None else ""
    found += fragment(compared(plans, [in_one(plan) for plan in plans], names))
    for place, plan in enumerate(plans[1:], 1):
        different = diff_text(differences(plans[0], plan), (names[0], names[place]))
        parts = (replace(one, key=f"{one.key}-{place}", title=_difference(one.title, place)) for one in different.sections)
        found += fragment(*parts)
    return f'<div class="ready">{found}</div>'


def _difference(part: str, place: int) -> str:
    return f"{LETTERS[0]} and {LETTERS[place]}: {part.lower()}" if part else f"{LETTERS[0]} and {LETTERS[place]}"
