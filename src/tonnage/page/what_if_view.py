"""The What-if view: the inputs that move an answer as sliders, and its limits to be dragged in the figure."""

from __future__ import annotations

import json
from contextlib import aclosing
from html import escape
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from tonnage.errors import InputError
from tonnage.page.fields import what_if_form
from tonnage.page.question import BASE, EXAMPLE, query_of, question_of
from tonnage.page.shell import button, faults, page
from tonnage.page.size_view import asked_of, desk_of, event
from tonnage.report.document import Drawing, Table, section
from tonnage.report.numbers import ABSENT, number
from tonnage.report.plans.answer import title
from tonnage.report.plans.figures import curve, tornado
from tonnage.report.plans.plan_document import first_glance, plans_of
from tonnage.report.writers.html import fragment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from tonnage.plan.plan import Plan

DRAG = "Drag a dashed limit up or down, or reach it with the tabulator and move it with the arrow keys: the systems follow."


def routes() -> list[Route]:
    """The addresses of the view."""
    return [Route("/what-if", view), Route("/what-if/stream", stream)]


async def view(request: Request) -> Response:
    """The sliders, and the places of the answers."""
    asked = asked_of(request) or EXAMPLE
    base = request.query_params.get(BASE) or query_of(asked)
    inside = (
        '<h1 class="sr">What if</h1><div class="two">\n'
        f"{what_if_form(asked, base)}"
        '<div class="results">\n<div id="estimate" class="estimate" aria-live="polite" aria-busy="true"></div>\n'
        '<div id="progress" class="progress" hidden><progress aria-label="Simulation"></progress><span class="said"></span>'
        '<button type="button" class="button" data-stop>Stop</button></div>\n'
        f'<div id="simulated" class="simulated" data-stream="/what-if/stream" data-base="{escape(base)}" tabindex="-1"></div>\n'
        "</div></div>\n"
    )
    return HTMLResponse(page("what-if", "What if", inside, query=query_of(asked), scripts=("drag.js",)))


async def stream(request: Request) -> Response:
    """The answer with the changes next to the one that they began with."""
    desk, asked, base = desk_of(request), asked_of(request), question_of(request.query_params.get(BASE, ""))

    async def events() -> AsyncIterator[str]:
        try:
            found = []
            for question in (base, asked):
                async with aclosing(desk.sized(question)) as answer:
                    async for said in answer:
                        if "progress" in said:
                            yield event("progress", json.dumps(said["progress"]))
                        elif "answer" in said:
                            found.append(plans_of(json.loads(said["answer"]), "the answer")[0])
                        elif "faults" in said:
                            yield event("answer", faults(said["faults"]))
                            return
            yield event("answer", _changed(found[0], found[1], query_of(asked)))
        except InputError as error:
            yield event("answer", faults(str(error).splitlines()))

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def _changed(base: Plan, plan: Plan, query: str) -> str:
    """Before and now, the figure whose limits can be dragged, and how the answer moves with each input."""
    before, now = (dict(first_glance(one)) for one in (base, plan))
    rows = tuple((name, before.get(name, ABSENT), now.get(name, ABSENT)) for name in dict.fromkeys((*now, *before)))
    table = Table(caption="Before and now", header=("", "before", "now"), rows=rows)
    exact = "" if plan.choice is None else f" · {number(plan.choice.systems_exact)} exactly"
    limits = [{"metric": one.metric, "statistic": one.statistic, "ms": one.milliseconds} for one in plan.scenario.limits_that_count]
    drawn, moved = curve(plan), tornado(plan)
    figure = "" if drawn is None else fragment(section("limits", "Limits", Drawing(figure=drawn, reading=DRAG, numbers=None)))
    swings = (
        "" if moved is None else fragment(section("sensitivity", "What moves the answer", Drawing(figure=moved, reading="", numbers=None)))
    )
    return (
        f'<div class="actions">{button("Size", href=f"/size?{query}", kind="strong")}'
        f'<a class="button quiet" data-compare="{escape(query)}" href="/compare?p={escape(query)}">Compare</a></div>'
        f'<div class="first"><header><p>Simulated{exact}</p><h2 class="title">{escape(title(plan))}</h2></header>'
        f'<div data-limits="{escape(json.dumps(limits))}">{figure}</div>'
        f"{fragment(section('change', 'Before and now', table))}{swings}</div>"
    )
