"""The Size view: the six questions, an estimate at once, and the simulated answer as it comes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tonnage.errors import InputError
from tonnage.page.desk import Desk
from tonnage.page.fields import form
from tonnage.page.question import BASE, EXAMPLE, Flat, query_of, question_of
from tonnage.page.shell import button, deploy_links, faults, page
from tonnage.plan.plan import Plan
from tonnage.report.numbers import number
from tonnage.report.plans.answer import title
from tonnage.report.plans.plan_document import first_page, made_by, plan_csv, plans_of, report
from tonnage.report.writers.html import fragment, html
from tonnage.sizing.estimate import Estimate
from tonnage.spec.catalog import search
from tonnage.spec.model import Model
from tonnage.spec.scenario_file import to_yaml
from tonnage.spec.use_cases import PRESETS

if TYPE_CHECKING:
    from starlette.requests import Request

SAID = 6
"""Types of GPU that an estimate names."""
OFFERED = 40
"""Models that a search offers."""


def routes() -> list[Route]:
    """What the view answers to."""
    return [
        Route("/size", view),
        Route("/size/estimate", estimate),
        Route("/size/usual", usual),
        Route("/size/stream", stream),
        Route("/models", models),
        Route("/plan.{kind:str}", exported),
    ]


def desk_of(request: Request) -> Desk:
    """The desk of the server."""
    found: Desk = request.app.state.desk
    return found


def asked_of(request: Request, query: str | None = None) -> Flat:
    """The question of a link, or of a query that is a part of it. Raises InputError: it holds what no question has."""
    return question_of(request.url.query if query is None else query)


async def view(request: Request) -> Response:
    """The form, an estimate, and the place of the answer."""
    asked = asked_of(request) or EXAMPLE
    inside = (
        '<h1 class="sr">Size</h1><div class="two">\n'
        f"{form(asked, desk_of(request).files('.csv', '.jsonl', '.json', '.parquet'))}"
        '<div class="results">\n<div id="estimate" class="estimate" aria-live="polite" aria-busy="true"></div>\n'
        '<div id="progress" class="progress" hidden><progress aria-label="Simulation"></progress><span class="said"></span>'
        '<button type="button" class="button" data-stop>Stop</button></div>\n'
        '<div id="simulated" class="simulated" tabindex="-1"></div>\n</div></div>\n'
    )
    return HTMLResponse(page("size", "Size", inside, query=query_of(asked)))


async def estimate(request: Request) -> Response:
    """Closed forms, at once, for each change of the form."""
    try:
        asked = asked_of(request)
        found = await run_in_threadpool(desk_of(request).estimated, asked)
    except InputError as error:
        return HTMLResponse(faults(str(error).splitlines()))
    return HTMLResponse(_estimated(found, asked), headers={"HX-Replace-Url": _address(request, query_of(asked))})


def _address(request: Request, query: str) -> str:
    """The address of the view that the form is on."""
    base = request.query_params.get(BASE)
    return f"/size?{query}" if base is None else f"/what-if?{query}&{BASE}={quote(base)}"


def _estimated(found: tuple[Estimate, ...], asked: Mapping[str, Any]) -> str:
    """The estimate, and the query that the simulation then answers."""
    query = escape(query_of(asked))
    if not found:
        words = "Closed forms say nothing of this kind of question."
        return f'<div data-query="{query}"><p class="tag">Simulated alone</p><p class="hint">{words}</p></div>'
    best, shown = found[0], found[:SAID]
    most = max(one.gpus for one in shown)
    rows = "".join(_ranked(one, most) for one in shown)
    d = best.deployment
    return (
        f'<div data-query="{query}"><p class="tag">Estimate, closed forms, no queue</p>'
        f'<p class="headline">≈ {best.systems} × {escape(best.system)}</p>'
        f'<p class="detail">{number(best.systems_exact)} exactly · {escape(d.precision.upper())}, TP {d.tp}, {escape(d.engine)} · '
        f"alone: TTFT {number(best.ttft_ms)} ms, TPOT {number(best.tpot_ms)} ms</p>"
        f'<ol class="ranking" aria-label="By type of GPU">{rows}</ol><a class="jump" href="#simulated">simulated ↓</a></div>'
    )


def _ranked(one: Estimate, most: int) -> str:
    """One type of GPU, with a bar of its GPUs."""
    bar = f'<span class="track"><span class="fill s{max(1, round(20 * one.gpus / most))}"></span></span>'
    return f'<li><span class="name">{one.systems} × {escape(one.system)}</span>{bar}<span class="count">{one.gpus} GPUs</span></li>'


async def usual(request: Request) -> Response:
    """The form with the limits of a use case in place of the earlier ones."""
    chosen = request.query_params.get("usual", "")
    query = "&".join(part for part in request.url.query.split("&") if not part.startswith("usual="))
    asked = question_of(query)
    preset = next((one for name, one in PRESETS.items() if name == chosen), None)
    if preset is not None:
        limits = {name: [text] for name in ("ttft", "itl", "tpot", "e2e") if (text := getattr(preset.limits, name))}
        asked = {name: value for name, value in asked.items() if name not in ("ttft", "itl", "tpot", "e2e")} | limits
    return HTMLResponse(form(asked, desk_of(request).files(".csv", ".jsonl", ".json", ".parquet")))


async def models(request: Request) -> Response:
    """Models whose name, owner or notes have the words that were typed."""
    found = [one for one in search(request.query_params.get("model", "")[:80]) if isinstance(one, Model)]
    options = "".join(f'<option value="{escape(one.name)}">{escape(_about(one))}</option>' for one in found[:OFFERED])
    return HTMLResponse(options)


def _about(model: Model) -> str:
    return f"{model.parameters / 1e9:,.1f} billion parameters, context {model.max_context:,}"


async def stream(request: Request) -> Response:
    """The simulated answer, with its progress, as server-sent events."""
    asked, desk = asked_of(request), desk_of(request)

    async def events() -> AsyncIterator[str]:
        try:
            async with aclosing(desk.sized(asked)) as answer:
                async for said in answer:
                    if "progress" in said:
                        yield event("progress", json.dumps(said["progress"]))
                    elif "decided" in said:
                        yield event("decided", _pages(plans_of(json.loads(said["decided"]), "the choice")))
                    elif "answer" in said:
                        yield event("answer", answered(plans_of(json.loads(said["answer"]), "the answer"), asked))
                    elif "faults" in said:
                        yield event("answer", faults(said["faults"]))
        except InputError as error:
            yield event("answer", faults(str(error).splitlines()))

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def event(kind: str, data: str) -> str:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {kind}\n{lines}\n"


def answered(plans: tuple[Plan, ...], asked: Mapping[str, Any]) -> str:
    """The first page of the report of each plan, and where to go from it."""
    query = query_of(asked)
    links = (
        button("Full report", href=f"/plan.html?{query}", kind="strong"),
        button("What if", href=f"/what-if?{query}"),
        f'<a class="button quiet" data-compare="{escape(query)}" href="/compare?p={quote(query)}">Compare</a>',
        f'<button type="button" class="button" hx-post="/files/keep?{escape(query)}" hx-swap="outerHTML">Keep</button>',
        *(button(name, href=f"/plan.{kind}?{query}") for kind, name in (("json", "JSON"), ("yaml", "YAML"), ("csv", "CSV"))),
        deploy_links(query) if len(plans) == 1 and plans[0].choice is not None else "",
    )
    return f'<div class="actions">{"".join(links)}</div>{_pages(plans)}'


def _pages(plans: tuple[Plan, ...]) -> str:
    return "".join(_first(plan) for plan in plans)


def _first(plan: Plan) -> str:
    """The first page of the report of a plan."""
    head = f'<header><p>{escape(made_by(plan))} · simulated</p><h2 class="title">{escape(title(plan))}</h2></header>'
    return f'<div class="first">{head}{fragment(first_page(plan))}</div>'


async def exported(request: Request) -> Response:
    """A plan as JSON (as the command writes it), as its question in YAML, as a table in CSV, or as the page of its report."""
    kind, desk = request.path_params["kind"], desk_of(request)
    if kind not in ("json", "yaml", "csv", "html"):
        return PlainTextResponse("not found", status_code=404)
    asked = asked_of(request)
    if kind == "yaml":
        return _download(to_yaml((await run_in_threadpool(desk.understood, asked)).scenario), "application/yaml", "question.yaml")
    if kind == "json":
        return _download(await desk.plan_text(asked), "application/json", "plan.json")
    plans = await desk.plans(asked)
    if kind == "csv":
        return _download(plan_csv(plans), "text/csv", "plan.csv")
    return HTMLResponse(html(report(*plans)), headers={"content-security-policy": ""})


def _download(text: str, media: str, name: str) -> Response:
    return Response(text, media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'})
