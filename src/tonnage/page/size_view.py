"""The views of plans: Size with its six questions, What if with its sliders, and Compare."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from tonnage.errors import InputError
from tonnage.page.fields import BASE, EXAMPLE, form, query_of, question_of, what_if_form
from tonnage.page.http_api import while_there
from tonnage.page.shell import (
    asked_of,
    button,
    deploy_links,
    desk_of,
    event,
    faults,
    page,
    streamed,
)
from tonnage.plan.plan import Plan
from tonnage.plan.use_cases import UseCases
from tonnage.report.document import Drawing, Facts, Table, section
from tonnage.report.numbers import ABSENT, number
from tonnage.report.plans.answer import NO_ANSWER, title
from tonnage.report.plans.comparison import compared
from tonnage.report.plans.diff import diff_text, differences
from tonnage.report.plans.figures import curve, curves, tornado
from tonnage.report.plans.plan_document import (
    first_glance,
    first_page,
    made_by,
    plan_csv,
    plans_of,
    report,
)
from tonnage.report.plans.question import breach_text
from tonnage.report.plans.screen import in_one
from tonnage.report.plans.use_cases import use_cases_report, use_cases_sections
from tonnage.report.writers.html import fragment, html
from tonnage.sizing.estimate import Estimate
from tonnage.spec.catalog import search
from tonnage.spec.model import Model
from tonnage.spec.scenario_file import to_yaml
from tonnage.spec.use_cases import PRESETS

if TYPE_CHECKING:
    from starlette.requests import Request


SAID = 6  # types of GPU that an estimate names
OFFERED = 40  # models that a search offers


def routes() -> list[Route]:
    """What the view answers to."""
    return [
        Route("/size", view),
        Route("/size/estimate", estimate),
        Route("/size/usual", usual),
        Route("/size/stream", stream),
        Route("/models", models),
        Route("/plan.{kind:str}", exported),
        Route("/what-if", what_if),
        Route("/what-if/stream", changes),
        Route("/compare", compare),
        Route("/compare/answer", side_by_side),
    ]


async def view(request: Request) -> Response:
    """The form, an estimate, and the place of the answer."""
    question = asked_of(request) or EXAMPLE
    questions = form(question, desk_of(request).files(".csv", ".jsonl", ".json", ".parquet"))
    inside = f'<h1 class="sr">Size</h1><div class="two">\n{questions}{_results()}'
    return HTMLResponse(page("size", "Size", inside, query=query_of(question)))


def _results(attributes: str = "") -> str:
    """The places of an estimate, of the progress and of the simulated answer."""
    return (
        '<div class="results">\n<div id="estimate" class="estimate" aria-live="polite"'
        ' aria-busy="true"></div>\n<div id="progress" class="progress" hidden><progress'
        ' aria-label="Simulation"></progress><span class="said"></span><button type="button"'
        ' class="button" data-stop>Stop</button></div>\n<div id="simulated"'
        f' class="simulated"{attributes} tabindex="-1"></div>\n</div></div>\n'
    )


async def estimate(request: Request) -> Response:
    """Closed forms, at once, for each change of the form."""
    try:
        question = asked_of(request)
        estimates = await run_in_threadpool(desk_of(request).estimated, question)
    except InputError as error:
        return HTMLResponse(faults(str(error).splitlines()))
    base, query = request.query_params.get(BASE), query_of(question)
    address = f"/size?{query}" if base is None else f"/what-if?{query}&{BASE}={quote(base)}"
    return HTMLResponse(_estimated(estimates, question), headers={"HX-Replace-Url": address})


def _estimated(estimates: tuple[Estimate, ...], question: Mapping[str, Any]) -> str:
    """The estimate, and the query that the simulation then answers."""
    query = escape(query_of(question))
    if not estimates:
        words = "Closed forms say nothing of this kind of question."
        return (
            f'<div data-query="{query}"><p class="tag">Simulated alone</p><p'
            f' class="hint">{words}</p></div>'
        )
    best, shown = estimates[0], estimates[:SAID]
    most_gpus = max(estimate.gpus for estimate in shown)
    rows, d = "", best.deployment
    for candidate in shown:
        if candidate.breach is not None:
            name = f'<span class="name">{escape(candidate.system)}</span>'
            rows += (
                f'<li>{name}<span class="fails">{escape(breach_text(candidate.breach))}</span></li>'
            )
            continue
        bar = (
            '<span class="track"><span class="fill'
            f' s{max(1, round(20 * candidate.gpus / most_gpus))}"></span></span>'
        )
        rows += (
            f'<li><span class="name">{candidate.systems} ×'
            f' {escape(candidate.system)}</span>{bar}<span class="count">{candidate.gpus}'
            " GPUs</span></li>"
        )
    headline, exactly = f"≈ {best.systems} × {best.system}", number(best.systems_exact) + " exactly"
    if best.confidence is None:
        exactly += ", as predicted: not with the confidence of the question"
    if best.breach is not None:
        headline, exactly = NO_ANSWER.capitalize(), f"nearest: {best.system}"
    return (
        f'<div data-query="{query}"><p class="tag">Estimate, closed forms, no queue</p><p'
        f' class="headline">{escape(headline)}</p><p'
        f' class="detail">{escape(exactly)} · {escape(d.precision.upper())}, TP'
        f" {d.tp}, {escape(d.engine)} · alone: TTFT {number(best.ttft_ms)} ms, TPOT"
        f' {number(best.tpot_ms)} ms</p><ol class="ranking" aria-label="By type of'
        f' GPU">{rows}</ol><a class="jump" href="#simulated">simulated ↓</a></div>'
    )


async def usual(request: Request) -> Response:
    """The form with the limits of a use case in place of the earlier ones."""
    chosen = request.query_params.get("usual", "")
    query = "&".join(part for part in request.url.query.split("&") if not part.startswith("usual="))
    question = question_of(query)
    preset = next((candidate for name, candidate in PRESETS.items() if name == chosen), None)
    if preset is not None:
        limits = {
            name: [text]
            for name in ("ttft", "itl", "tpot", "e2e")
            if (text := getattr(preset.limits, name))
        }
        question = {
            name: value
            for name, value in question.items()
            if name not in ("ttft", "itl", "tpot", "e2e")
        } | limits
    return HTMLResponse(
        form(question, desk_of(request).files(".csv", ".jsonl", ".json", ".parquet"))
    )


async def models(request: Request) -> Response:
    """Models whose name, owner or notes have the words that were typed."""
    models = [
        model
        for model in search(request.query_params.get("model", "")[:80])
        if isinstance(model, Model)
    ]
    options = (
        f'<option value="{escape(model.name)}">{model.parameters / 1e9:,.1f} billion parameters,'
        f" context {model.max_context:,}</option>"
        for model in models[:OFFERED]
    )
    return HTMLResponse("".join(options))


async def stream(request: Request) -> Response:
    """The simulated answer, with its progress, as server-sent events."""
    question, desk = asked_of(request), desk_of(request)

    async def events() -> AsyncIterator[str]:
        try:
            async with aclosing(desk.sized(question)) as answer:
                async for message in answer:
                    if "progress" in message:
                        yield event("progress", json.dumps(message["progress"]))
                    elif "decided" in message:
                        yield event(
                            "decided",
                            _pages(plans_of(json.loads(message["decided"]), "the choice")),
                        )
                    elif "answer" in message:
                        yield event("answer", answered(json.loads(message["answer"]), question))
                    elif "faults" in message:
                        yield event("answer", faults(message["faults"]))
        except InputError as error:
            yield event("answer", faults(str(error).splitlines()))

    return streamed(events())


def answered(document: Any, question: Mapping[str, Any]) -> str:
    """The first page of the report of each plan, or the answer for several classes of traffic, and
    where to go from it.
    """
    query = query_of(question)
    if "classes" in question:
        together = UseCases.from_json(document)
        sized = made_by(replace(together.plans[0], asked=None))
        title_of_all = escape(f"{', '.join(together.names)} on one fleet")
        to_report = button("Full report", href=f"/plan.html?{query}", kind="strong")
        to_json = button("JSON", href=f"/plan.json?{query}")
        return (
            f'<div class="actions">{to_report}{to_json}</div><div class="first"><header><p>'
            f'{escape(sized)} · simulated</p><h2 class="title">{title_of_all}</h2></header>'
            f"{fragment(*use_cases_sections(together))}</div>"
        )
    plans = plans_of(document, "the answer")
    links = (
        button("Full report", href=f"/plan.html?{query}", kind="strong"),
        button("What if", href=f"/what-if?{query}"),
        (
            f'<a class="button quiet" data-compare="{escape(query)}"'
            f' href="/compare?p={quote(query)}">Compare</a>'
        ),
        (
            f'<button type="button" class="button" hx-post="/files/keep?{escape(query)}"'
            ' hx-swap="outerHTML">Keep</button>'
        ),
        *(
            button(name, href=f"/plan.{kind}?{query}")
            for kind, name in (("json", "JSON"), ("yaml", "YAML"), ("csv", "CSV"))
        ),
        deploy_links(query) if len(plans) == 1 and plans[0].choice is not None else "",
    )
    return f'<div class="actions">{"".join(links)}</div>{_pages(plans)}'


def _pages(plans: tuple[Plan, ...]) -> str:
    return "".join(
        f'<div class="first"><header><p>{escape(made_by(plan))} · simulated</p><h2'
        f' class="title">{escape(title(plan))}</h2></header>{fragment(first_page(plan))}</div>'
        for plan in plans
    )


async def exported(request: Request) -> Response:
    """A plan as JSON (as the command writes it), as its question in YAML, as a table in CSV, or as
    the page of its report.
    """
    kind, desk = request.path_params["kind"], desk_of(request)
    if kind not in ("json", "yaml", "csv", "html"):
        return PlainTextResponse("not found", status_code=404)
    question = asked_of(request)
    if kind == "yaml":
        return _download(
            to_yaml((await run_in_threadpool(desk.understood, question)).scenario),
            "application/yaml",
            "question.yaml",
        )
    if kind == "json":
        return _download(await desk.plan_text(question), "application/json", "plan.json")
    if kind == "html" and "classes" in question:
        together = UseCases.from_json(json.loads(await desk.plan_text(question)))
        page_text = html(use_cases_report(together))
        return HTMLResponse(page_text, headers={"content-security-policy": ""})
    plans = await desk.plans(question)
    if kind == "csv":
        return _download(plan_csv(plans), "text/csv", "plan.csv")
    return HTMLResponse(html(report(*plans)), headers={"content-security-policy": ""})


def _download(text: str, media: str, name: str) -> Response:
    return Response(
        text, media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'}
    )


DRAG = (
    "Drag a dashed limit up or down, or reach it with the tabulator and move it with the arrow"
    " keys: the systems follow."
)


async def what_if(request: Request) -> Response:
    """The sliders, and the places of the answers."""
    question = asked_of(request) or EXAMPLE
    base = request.query_params.get(BASE) or query_of(question)
    results = _results(f' data-stream="/what-if/stream" data-base="{escape(base)}"')
    inside = (
        f'<h1 class="sr">What if</h1><div class="two">\n{what_if_form(question, base)}{results}'
    )
    return HTMLResponse(
        page("what-if", "What if", inside, query=query_of(question), scripts=("drag.js",))
    )


async def changes(request: Request) -> Response:
    """The answer with the changes next to the one that they began with."""
    desk, changed, base = (
        desk_of(request),
        asked_of(request),
        question_of(request.query_params.get(BASE, "")),
    )

    async def events() -> AsyncIterator[str]:
        try:
            plans = []
            for question in (base, changed):
                async with aclosing(desk.sized(question)) as answer:
                    async for message in answer:
                        if "progress" in message:
                            yield event("progress", json.dumps(message["progress"]))
                        elif "answer" in message:
                            plans.append(plans_of(json.loads(message["answer"]), "the answer")[0])
                        elif "faults" in message:
                            yield event("answer", faults(message["faults"]))
                            return
            yield event("answer", _before_and_now(plans[0], plans[1], query_of(changed)))
        except InputError as error:
            yield event("answer", faults(str(error).splitlines()))

    return streamed(events())


def _before_and_now(base: Plan, plan: Plan, query: str) -> str:
    """Before and now, the figure whose limits can be dragged, and how the answer moves with each
    input.
    """
    before, now = (dict(first_glance(shown_plan)) for shown_plan in (base, plan))
    rows = tuple(
        (name, before.get(name, ABSENT), now.get(name, ABSENT))
        for name in dict.fromkeys((*now, *before))
    )
    table = Table(caption="Before and now", header=("", "before", "now"), rows=rows)
    exact = "" if plan.choice is None else f" · {number(plan.choice.systems_exact)} exactly"
    limits = [
        {"metric": limit.metric, "statistic": limit.statistic, "ms": limit.milliseconds}
        for limit in plan.scenario.limits_that_count
    ]
    drawn, moved = curve(plan), tornado(plan)
    figure = (
        "" if drawn is None else fragment(section("limits", "Limits", Drawing(drawn, DRAG, None)))
    )
    swings = (
        ""
        if moved is None
        else fragment(section("sensitivity", "What moves the answer", Drawing(moved, "", None)))
    )
    return (
        f'<div class="actions">{button("Size", href=f"/size?{query}", kind="strong")}'
        f'<a class="button quiet" data-compare="{escape(query)}"'
        f' href="/compare?p={escape(query)}">Compare</a></div>'
        f'<div class="first"><header><p>Simulated{exact}</p><h2'
        f' class="title">{escape(title(plan))}</h2></header>'
        f'<div data-limits="{escape(json.dumps(limits))}">{figure}</div>'
        f"{fragment(section('change', 'Before and now', table))}{swings}</div>"
    )


MOST = 4  # plans side by side
LETTERS = "ABCD"


def places_of(request: Request) -> list[str]:
    """The links that are compared."""
    return list(dict.fromkeys(request.query_params.getlist("p")))[:MOST]


def _compared_at(places: Sequence[str], path: str = "/compare") -> str:
    return f"{path}?{'&'.join(f'p={quote(place)}' for place in places)}"


async def compare(request: Request) -> Response:
    """What is compared, and the place of the answer."""
    places = places_of(request)
    hidden_inputs = "".join(
        f'<input type="hidden" name="p" value="{escape(place)}">' for place in places
    )
    inside = (
        '<h1>Compare</h1><p class="lead">Up to four plans side by side. <em>Compare</em> under an'
        " answer of Size adds it here; the address of this page holds all of them.</p>\n<form"
        f' class="add" action="/compare" method="get">{hidden_inputs}<label for="add-p">Add the'
        ' link of a plan</label><input id="add-p" name="p"'
        ' placeholder="model=llama-3.1-8b&amp;isl=2000&amp;…" spellcheck="false"><button'
        ' class="button">Add</button></form>\n'
    )
    if places:
        boxes = "".join(
            _box(place, letter, places) for place, letter in zip(places, LETTERS, strict=False)
        )
        inside += (
            f'<ul class="plans" data-plans>{boxes}</ul><div'
            f' hx-get="{escape(_compared_at(places, "/compare/answer"))}" hx-trigger="load"'
            ' aria-live="polite"><p class="hint waiting">Simulating what is not answered yet'
            " …</p></div>\n"
        )
    return HTMLResponse(page("compare", "Compare", inside))


def _box(place: str, letter: str, places: list[str]) -> str:
    """One of the plans: where its question is, and how to leave it out."""
    rest = [listed_place for listed_place in places if listed_place != place]
    link = f'<a href="/size?{escape(place)}">change</a> ' if not place.startswith("@") else ""
    words = (
        place
        if place.startswith("@")
        else ", ".join(place.split("&")).replace("=", " ").replace("<", " ≤")
    )
    gone = f'<a href="{escape(_compared_at(rest) if rest else "/compare")}">leave out</a>'
    return (
        f'<li><span class="place">{letter}</span><span class="words">{escape(words)}</span><span'
        f' class="links">{link}{gone}</span></li>'
    )


async def side_by_side(request: Request) -> Response:
    """The plans side by side."""
    places = [
        place if place.startswith("@") else place.partition("?")[2] or place
        for place in places_of(request)
    ]

    async def plans() -> list[Plan]:
        return [await desk_of(request).plan_at(place) for place in places]

    try:
        for place in places:
            if not place.startswith("@"):
                question_of(place)
        return HTMLResponse(_side_by_side(await while_there(request, plans())))
    except InputError as error:
        return HTMLResponse(faults(str(error).splitlines()))


def _side_by_side(plans: Sequence[Plan]) -> str:
    names = [
        f"{letter}: {plan.scenario.model}" for letter, plan in zip(LETTERS, plans, strict=False)
    ]
    columns = "".join(
        f'<div class="column"><h2><span class="place">{letter}</span>{escape(title(plan))}</h2>'
        f"{fragment(section(f'glance-{letter}', '', Facts(first_glance(plan), big=True)))}</div>"
        for letter, plan in zip(LETTERS, plans, strict=False)
    )
    figure = curves(plans, names)
    drawn = (
        None
        if figure is None
        else Drawing(figure, "The lower and the further right, the better.", None)
    )
    markup = f'<div class="columns">{columns}</div>'
    markup += (
        fragment(section("curves", "Latency against load", drawn)) if drawn is not None else ""
    )
    markup += fragment(compared(plans, [in_one(plan) for plan in plans], names))
    for place, plan in enumerate(plans[1:], 1):
        different = diff_text(differences(plans[0], plan), (names[0], names[place]))
        both = f"{LETTERS[0]} and {LETTERS[place]}"
        titles = [
            f"{both}: {section.title.lower()}" if section.title else both
            for section in different.sections
        ]
        parts = zip(different.sections, titles, strict=True)
        markup += fragment(
            *(
                replace(section, key=f"{section.key}-{place}", title=words)
                for section, words in parts
            )
        )
    return f'<div class="ready">{markup}</div>'
