"""The Measure view: an endpoint under load as it goes, the run next to its plan, a calibration, and
the next sizing.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tonnage.api.question.confined_paths import check_inside
from tonnage.errors import InputError, option
from tonnage.page.fields import query_of
from tonnage.page.shell import NEEDS_TOKEN, button, desk_of, event, faults, page, streamed
from tonnage.report.plans.plan_document import read_plans
from tonnage.report.runs.run_document import run_report
from tonnage.report.runs.shown_run import read_shown_runs
from tonnage.report.writers.html import fragment, html
from tonnage.spec.scenario import flat, to_document
from tonnage.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from tonnage.page.workspace import Desk

# Label and default of the arguments of a measurement
FIELDS = {
    "url": ("Server", "http://127.0.0.1:8000"),
    "model": ("Name of its model", "llama-3.1-8b"),
    "isl": ("Prompt tokens", "1000+-20%"),
    "osl": ("Output tokens", "100+-20%"),
    "concurrency": ("Concurrency, several for a sweep", "1,4,16,64"),
    "request_rate": ("or requests per second", ""),
    "benchmark_duration": ("For how long each", "10s"),
    "slo": ("Limit for the verdict", "ttft p95<=500ms"),
}
SERVE = "./tonnage serve --engine simulated --model llama-3.1-8b --gpu h100-sxm-80gb"
NAME = re.compile(r"[\w][\w.+-]{0,79}")
EVERY = "5s"


def routes() -> list[Route]:
    """The addresses of the view."""
    return [
        Route("/measure", view),
        Route("/measure/live", live, methods=["POST"]),
        Route("/measure/watch", watch, methods=["POST"]),
        Route("/measure/predicted", predicted),
        Route("/measure/calibrate", calibrate, methods=["POST"]),
        Route("/runs/{name:str}", run_page),
    ]


def named(text: str, names: tuple[str, ...], what: str) -> str:
    """The name of something in the run folder. Raises InputError: there is none of that name."""
    if text not in names or not NAME.fullmatch(text):
        raise InputError(f"{option(what)}: there is no '{text[:40]}' in the run folder")
    return text


async def view(request: Request) -> Response:
    """What to measure, and the runs that there are."""
    desk = desk_of(request)
    plans = await run_in_threadpool(desk.plan_files)
    options = "".join(f"<option>{escape(name)}</option>" for name in plans)
    fields = "".join(
        f'<div class="field"><label for="m-{name}">{label}</label><input id="m-{name}"'
        f' name="{name}" value="{escape(request.query_params.get(name, value))}"'
        ' spellcheck="false"></div>'
        for name, (label, value) in FIELDS.items()
    )
    inside = (
        '<h1>Measure</h1><p class="lead">A load is sent to a server with the OpenAI API, and'
        f" everything is recorded. Without a server, <code>{escape(SERVE)}</code> simulates one on"
        f' this machine.</p>\n{NEEDS_TOKEN}<form id="bench" class="seconds-form"'
        f' autocomplete="off">{fields}<div class="field"><label for="m-plan">Plan to compare'
        ' with</label><select id="m-plan" name="plan"><option'
        f' value="">none</option>{options}</select></div><label class="box"><input type="checkbox"'
        ' name="selftest" value="yes"><span>check this client first</span></label><button'
        ' class="button strong">Measure</button><button type="button" class="button"'
        ' id="watch">Watch</button><button type="button" class="button" id="halt"'
        ' disabled>Stop</button></form>\n<p id="state" class="hint" aria-live="polite"></p><dl'
        ' class="big live" id="figures" hidden></dl><div class="curves" id="curves"'
        " hidden><figure><figcaption>TTFT and TPOT over the latest requests, ms</figcaption><div"
        ' id="latency"></div></figure><figure><figcaption>Requests per second</figcaption><div'
        ' id="rate"></div></figure></div>\n<div id="found"></div><section id="runs"'
        ' aria-labelledby="runs-title"><h2 id="runs-title">Runs of this'
        f" folder</h2>{_runs(desk, plans)}</section>"
    )
    return HTMLResponse(
        page(
            "measure",
            "Measure",
            inside,
            scripts=("uPlot.iife.min.js", "measure.js"),
            styles=("uPlot.min.css",),
        )
    )


def _runs(desk: Desk, plans: tuple[str, ...]) -> str:
    rows = ""
    for name in desk.run_folders():
        links = "".join(
            f' <a href="#predicted" hx-get="{_address(name, plan)}" hx-target="#found">compare with'
            f" {escape(plan)}</a>"
            for plan in plans
        )
        rows += (
            f'<li><a class="words" href="/runs/{escape(name)}">{escape(name)}</a><span'
            f' class="links">{links}</span></li>'
        )
    return f'<ul class="plans">{rows}</ul>' if rows else '<p class="hint">None yet.</p>'


def _address(run: str, plan: str) -> str:
    return escape(f"/measure/predicted?run={run}&plan={plan}")


async def live(request: Request) -> Response:
    """A measurement as server-sent events: readings as it goes, then the run."""
    desk = desk_of(request)
    fields = {
        name: value.strip()
        for name, value in request.query_params.items()
        if name in FIELDS and value.strip()
    }
    arguments: dict[str, Any] = {
        name: [value] if name == "slo" else value for name, value in fields.items()
    }
    check_inside(
        {name: value for name, value in arguments.items() if name not in ("url", "model")},
        desk.folder,
    )
    now = datetime.now(tz=UTC)
    output = f"run-{now:%Y%m%d-%H%M%S}"
    provenance = {"tonnage": VERSION, "command": "tonnage ui", "date": now.date().isoformat()}
    selftest = request.query_params.get("selftest") == "yes"
    plan = request.query_params.get("plan", "")

    async def events() -> AsyncIterator[str]:
        if not arguments.get("url") or not arguments.get("model"):
            yield event(
                "answer",
                faults(["url, model: missing; for example http://127.0.0.1:8000 and llama-3.1-8b"]),
            )
            return
        run = desk.bench.run(
            "bench", arguments=arguments, output=output, selftest=selftest, provenance=provenance
        )
        async with aclosing(run) as said_of:
            async for message in said_of:
                if "live" in message:
                    yield event("live", json.dumps(message["live"]))
                elif "faults" in message:
                    yield event("answer", faults(message["faults"]))
                else:
                    yield event("answer", await run_in_threadpool(_measured, desk, output, plan))

    return streamed(events())


def _measured(desk: Desk, name: str, plan: str) -> str:
    shown = run_report(read_shown_runs(desk.folder / name))
    links = button("Full report", href=f"/runs/{name}", kind="strong")
    plans = desk.plan_files()
    if plan in plans:
        there = (
            f'<a class="button quiet" href="#predicted" hx-get="{_address(name, plan)}"'
            f' hx-target="#next">Compare with {escape(plan)}</a>'
        )
        links += there + _calibrate_button(name, plan)
    head = (
        f"<header><p>{escape(shown.subtitle)}</p><h2"
        f' class="title">{escape(shown.title)}</h2></header>'
    )
    first = f'<div class="first">{head}{fragment(shown.sections[0])}</div>'
    return (
        f'<div class="simulated"><div class="actions">{links}</div><div'
        f' id="next"></div>{first}</div>'
    )


def _calibrate_button(run: str, plan: str) -> str:
    address = escape(f"/measure/calibrate?run={run}&plan={plan}")
    return (
        f'<button type="button" class="button" hx-post="{address}" hx-target="#next"'
        ' hx-disabled-elt="this">Calibrate</button>'
    )


async def predicted(request: Request) -> Response:
    """The measured run next to its prediction."""
    desk, query = desk_of(request), request.query_params
    run = named(query.get("run", ""), desk.run_folders(), "run")
    plan = named(query.get("plan", ""), desk.plan_files(), "plan")
    last = await desk.worker.answer("predicted", runs=desk.runs_in(run), plan=plan)
    if "answer" not in last:
        return HTMLResponse(faults(last.get("faults", ["cancelled"])))
    links = f'<div class="actions">{_calibrate_button(run, plan)}</div><div id="next"></div>'
    return HTMLResponse(
        f'<div id="predicted"><h2>{escape(run)} and'
        f" {escape(plan)}</h2>{last['answer']}{links}</div>"
    )


async def calibrate(request: Request) -> Response:
    """Factors from a run, in a file of the folder, and the same question with them."""
    desk, query = desk_of(request), request.query_params
    run = named(query.get("run", ""), desk.run_folders(), "run")
    plan = named(query.get("plan", ""), desk.plan_files(), "plan")
    output = f"{run}-factors.json"
    today = datetime.now(tz=UTC).date().isoformat()
    last = await desk.worker.answer(
        "calibrate", runs=desk.runs_in(run), plan=plan, output=output, today=today
    )
    if "answer" not in last:
        return HTMLResponse(faults(last.get("faults", ["cancelled"])))
    (first, *_) = await run_in_threadpool(read_plans, desk.folder / plan)
    again = ""
    if first.asked is not None:
        question = flat(to_document(first.asked)) | {"coefficients": output}
        again = button(
            "Size again with these factors", href=f"/size?{query_of(question)}", kind="strong"
        )
    return HTMLResponse(f'<div>{last["answer"]}<div class="actions">{again}</div></div>')


async def watch(request: Request) -> Response:
    """A running deployment next to its plan, look after look, as server-sent events."""
    desk = desk_of(request)
    urls = [part for part in re.split(r"[\s,]+", request.query_params.get("url", "")) if part][:64]
    plan = request.query_params.get("plan", "")

    async def events() -> AsyncIterator[str]:
        try:
            name = named(plan, await asyncio.to_thread(desk.plan_files), "plan")
        except InputError as error:
            yield event("answer", faults([f"{error}; choose the plan that is deployed"]))
            return
        async with aclosing(desk.bench.run("watch", urls=urls, plan=name, every=EVERY)) as looks:
            async for look in looks:
                if "live" in look:
                    yield event(
                        "look", f"<h2>{escape(look['live']['title'])}</h2>{look['live']['html']}"
                    )
                elif "faults" in look:
                    yield event("answer", faults(look["faults"]))

    return streamed(events())


async def run_page(request: Request) -> Response:
    """The whole report of a run."""
    desk = desk_of(request)
    name = named(request.path_params["name"], desk.run_folders(), "run")
    text = await run_in_threadpool(lambda: html(run_report(read_shown_runs(desk.folder / name))))
    return HTMLResponse(text, headers={"content-security-policy": ""})
