"""The Files view: the run folder, to which traces, benchmarks, prices and plans are dropped, with
the next step for each.
"""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from tonnage import api
from tonnage.api.question.confined_paths import check_inside
from tonnage.errors import InputError, option
from tonnage.page.fields import query_of
from tonnage.page.shell import NEEDS_TOKEN, asked_of, button, deploy_links, desk_of, faults, page
from tonnage.page.workspace import Desk, kind_of
from tonnage.report.plans.answer import title
from tonnage.report.plans.plan_document import first_page, read_plans, report
from tonnage.report.writers.html import fragment, html
from tonnage.spec.scenario import flat, to_document
from tonnage.spec.scenario_file import read_document

if TYPE_CHECKING:
    from starlette.requests import Request


LARGEST_FILE = 256 * 2**20  # bytes of an upload
MOST_FILES = 500
NAME = re.compile(r"\w[\w .+()-]{0,99}")
ENDINGS = (".csv", ".json", ".jsonl", ".yaml", ".yml", ".parquet", ".gz", ".txt")
EXAMPLES = "model=llama-3.1-8b"  # what a question begins with where a file names no model


def routes() -> list[Route]:
    """The addresses of the view."""
    return [
        Route("/files", view),
        Route("/files/list", listed),
        Route("/files/keep", keep, methods=["POST"]),
        Route("/files/{name:str}", changed, methods=["PUT", "DELETE"]),
        Route("/files/{name:str}/look", look),
        Route("/files/{name:str}/report", saved_report),
        Route("/deploy.zip", archive),
    ]


def checked_name(name: str) -> str:
    """The name of a file of the run folder. Raises InputError: it is none that a file may have
    here.
    """
    if not NAME.fullmatch(name) or ".." in name or not name.lower().endswith(ENDINGS):
        raise InputError(
            f"{option('name')}: '{name[:40]}' is no name for a file here; letters, digits and an"
            f" ending of {', '.join(ENDINGS)}"
        )
    return name


def _file_of(desk: Desk, name: str) -> Path:
    path = desk.folder / checked_name(name)
    check_inside(name, desk.folder, "name")
    if not path.is_file():
        raise InputError(f"{option('name')}: there is no '{name}' in the run folder")
    return path


async def view(request: Request) -> Response:
    """The place to drop files, and what there is."""
    desk = desk_of(request)
    inside = (
        '<h1>Files</h1><p class="lead">A trace, the file of a benchmark, prices, a'
        " <code>config.json</code>, a scenario or a plan: dropped here it goes to the folder"
        f" <code>{escape(desk.folder.name)}</code>, and nowhere else.</p>\n{NEEDS_TOKEN}<div"
        ' id="drop" class="drop"><label class="button strong">Choose files<input type="file"'
        ' id="chosen" multiple class="sr"></label><span>or drop them here</span><p id="sent"'
        ' class="hint" aria-live="polite"></p></div>\n<div class="two files"><div id="list"'
        ' hx-get="/files/list" hx-trigger="load, changed"></div><div id="look" class="simulated"'
        ' aria-live="polite"></div></div>'
    )
    return HTMLResponse(page("files", "Files", inside, scripts=("files.js",)))


async def listed(request: Request) -> Response:
    """The files of the folder."""
    desk = desk_of(request)
    rows = await run_in_threadpool(
        lambda: "".join(_row(desk.folder / name) for name in desk.files()[:MOST_FILES])
    )
    return HTMLResponse(
        f'<ul class="plans">{rows}</ul>' if rows else '<p class="hint">Nothing yet.</p>'
    )


def _row(path: Path) -> str:
    name = escape(path.name)
    size = path.stat().st_size
    words = f"{size / 2**20:,.1f} MB" if size >= 2**20 else f"{size / 2**10:,.1f} kB"
    shown = (
        f'<a class="words" href="#look" hx-get="/files/{name}/look" hx-target="#look">{name}</a>'
    )
    gone = (
        f'<button type="button" class="button" data-delete="{name}" aria-label="Delete'
        f' {name}">delete</button>'
    )
    return (
        f'<li>{shown}<span class="hint">{kind_of(path)} {words}</span><span'
        f' class="links">{gone}</span></li>'
    )


async def changed(request: Request) -> Response:
    """Put a file into the folder, whole or not at all, or take it away."""
    desk, name = desk_of(request), checked_name(request.path_params["name"])
    check_inside(name, desk.folder, "name")
    path = desk.folder / name
    if request.method == "DELETE":
        _file_of(desk, name).unlink()
        return PlainTextResponse("deleted\n")
    if len(desk.files()) >= MOST_FILES:
        raise InputError(
            f"{option('name')}: the folder holds {MOST_FILES} files; delete some first"
        )
    handle, partial = tempfile.mkstemp(dir=desk.folder, prefix=".upload-")
    try:
        with os.fdopen(handle, "wb") as file:
            size = 0
            async for part in request.stream():
                size += len(part)
                if size > LARGEST_FILE:
                    raise InputError(
                        f"{option('name')}: {name} is larger than {LARGEST_FILE:,} bytes; keep it"
                        " in the folder yourself"
                    )
                file.write(part)
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)
    return PlainTextResponse("kept\n", status_code=201)


async def keep(request: Request) -> Response:
    """Keep the plan of a question in the folder."""
    desk = desk_of(request)
    question = asked_of(request)
    plan = await desk.plans(question)
    stem = re.sub(r"[^\w.+-]+", "-", title(plan[0]))[:80].strip("-")
    name = checked_name(f"{stem}.json")
    path = desk.folder / name
    check_inside(name, desk.folder, "name")
    text = await desk.plan_text(question)
    await run_in_threadpool(lambda: path.write_text(text, encoding="utf-8"))
    return HTMLResponse(f'<span class="hint" role="status">kept as {escape(name)}</span>')


async def look(request: Request) -> Response:
    """What a file holds, and what can be done with it."""
    desk = desk_of(request)
    path = _file_of(desk, request.path_params["name"])
    name, kind = path.name, await run_in_threadpool(kind_of, path)
    if kind in ("plan", "comparison"):
        return HTMLResponse(_plan(name, path))
    if kind == "calibration":
        links = button(
            "Size with these factors", href=f"/size?{EXAMPLES}&coefficients={name}", kind="strong"
        )
        return HTMLResponse(_looked(name, "Factors of a calibration.", links))
    if kind == "config.json":
        return HTMLResponse(
            _looked(
                name,
                "The configuration of a model.",
                button("Size it", href=f"/size?model={name}", kind="strong"),
            )
        )
    if name.lower().endswith((".yaml", ".yml")):
        return HTMLResponse(await run_in_threadpool(_yaml, name))
    last = await desk.worker.answer("look", name=name)
    if "answer" not in last:
        return HTMLResponse(faults(last.get("faults", ["cancelled"])))
    # a trace is sized, and points of a benchmark decide a sizing of the deployment that their first
    # row names
    links, points = (
        "",
        last["answer"]["question"] | {"peak_rps": 20, "ttft": ["mean<=1s"], "benchmarks": name},
    )
    for content_kind in last["answer"]["kinds"]:
        if content_kind == "trace":
            links += button(
                "Size this traffic",
                href=f"/size?{EXAMPLES}&trace={name}&ttft=p95<=1s",
                kind="strong",
            )
        else:
            links += button("Size by these points", href=f"/size?{query_of(points)}", kind="strong")
    return HTMLResponse(f"{_looked(name, '', links)}{last['answer']['html']}")


def _looked(name: str, words: str, links: str) -> str:
    return (
        f"<h2>{escape(name)}</h2><div"
        f' class="actions">{links}</div>{f"<p>{words}</p>" if words else ""}'
    )


def _plan(name: str, path: Path) -> str:
    """A saved plan: its first page, its question, its report and its deployment."""
    try:
        plans = read_plans(path)
    except InputError as error:
        return faults(str(error).splitlines())
    links = button("Full report", href=f"/files/{name}/report", kind="strong")
    if len(plans) == 1:
        scenario = plans[0].asked
        links += (
            ""
            if scenario is None
            else button(
                "Change the question", href=f"/size?{query_of(flat(to_document(scenario)))}"
            )
        )
        links += (
            f'<a class="button quiet" data-compare="@{escape(name)}"'
            f' href="/compare?p=@{escape(name)}">Compare</a>'
        )
        links += button(
            "Measure it", href=f"/measure?model={plans[0].scenario.model}"
        ) + deploy_links(f"plan={name}")
    return _looked(name, "", links) + "".join(fragment(first_page(plan)) for plan in plans)


def _yaml(name: str) -> str:
    """A scenario opens as a question; anything else may be prices."""
    document = read_document(name)
    if "model" in document or "demand" in document:
        question = {
            key: value for key, value in flat(document).items() if not isinstance(value, dict)
        }
        return _looked(
            name,
            "A scenario.",
            button("Open the question", href=f"/size?{query_of(question)}", kind="strong"),
        )
    links = button(
        "Size with these prices",
        href=f"/size?{EXAMPLES}&isl=2000&osl=200&peak_rps=20&prices={name}",
        kind="strong",
    )
    return _looked(name, "Prices, or a description of hardware, which a question may name.", links)


async def saved_report(request: Request) -> Response:
    """The report of a saved plan."""
    path = _file_of(desk_of(request), request.path_params["name"])
    text = await run_in_threadpool(lambda: html(report(*read_plans(path))))
    return HTMLResponse(text, headers={"content-security-policy": ""})


async def archive(request: Request) -> Response:
    """The files of a deployment as one archive: of a saved plan, or of a question."""
    desk, target = desk_of(request), request.query_params.get("target", "")
    name = request.query_params.get("plan")
    if name is not None:
        text = _file_of(desk, name).read_text(encoding="utf-8")
    else:
        query = "&".join(
            part for part in request.url.query.split("&") if not part.startswith("target=")
        )
        text = await desk.plan_text(asked_of(request, query))
    packed = await run_in_threadpool(_packed, desk, text, target)
    return Response(
        packed,
        media_type="application/zip",
        headers={"content-disposition": f'attachment; filename="{target}.zip"'},
    )


def _packed(desk: Desk, plan: str, target: str) -> bytes:
    """Deploy's files for a plan; they are written below the run folder, and gone at the end."""
    with tempfile.TemporaryDirectory(dir=desk.folder, prefix=".deploy-") as scratch:
        source, folder = Path(scratch) / "plan.json", Path(scratch) / "files"
        source.write_text(plan, encoding="utf-8")
        deployed = api.deploy(source, target=target, output=folder)
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zip_file:
            for name in deployed.files:
                zip_file.write(folder / name, f"{target}/{name}")
        return packed.getvalue()
