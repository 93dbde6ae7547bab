"""The Lesson view: the course's batching simulator in ticks, played step by step; then the slots of
a real engine in seconds.
"""

from __future__ import annotations

from html import escape
from math import isnan
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tonnage.api.question.confined_paths import check_inside
from tonnage.errors import InputError, option
from tonnage.page.shell import desk_of, faults, page
from tonnage.simulator.lesson import LessonConfig, LessonResult, watch_lesson
from tonnage.spec.written_numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request


# The ways of batching, by what a button calls them
BATCHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "static": ("Static", {"batcher": "static"}),
    "in-flight": ("In-flight", {"batcher": "in-flight"}),
    "chunked": ("Chunked", {"batcher": "in-flight", "prefill_chunks": 4}),
    "one-prefill": ("One prefill", {"batcher": "one-prefill"}),
}
READINGS = {
    "static": (
        "Nobody enters until all slots are empty: slots of short answers wait for the longest one."
    ),
    "in-flight": (
        "A request enters as soon as a slot is free. Its prefill holds up the tokens of all others."
    ),
    "chunked": (
        "As in-flight, with every prefill in four chunks: other requests get tokens between them."
    ),
    "one-prefill": (
        "As in-flight, with at most one request in prefill: steps stay short, and the queue waits a"
        " little longer."
    ),
}
LOADS = {
    "tick_rate": "Requests per tick",
    "concurrency": "Concurrency",
    "initial_batch": "One batch at the start",
}
# Label, default, and least, most and step of a slider
NUMBERS: dict[str, tuple[str, tuple[str, float, float, float]]] = {
    "slots": ("Slots", ("4", 1, 16, 1)),
    "prefill_ticks": ("Ticks of a prefill", ("2", 0, 10, 0.5)),
    "osl_mean": ("Output tokens, mean", ("10", 1, 40, 1)),
    "osl_std": ("Their standard deviation", ("5", 0, 20, 1)),
    "until": ("Ticks to run", ("200", 50, 1000, 50)),
}
LOAD_SLIDERS = {
    "tick_rate": ("0.3", 0.05, 1.0, 0.05),
    "concurrency": ("8", 1, 40, 1),
    "initial_batch": ("40", 1, 200, 1),
}
LONGEST = 1_000  # ticks that are played
MOST_REQUESTS = 400  # of a timeline, which is simulated by the readable engine
SECONDS = {
    "model": "llama-3.1-8b",
    "gpu": "h100-sxm-80gb",
    "isl": "1000",
    "osl": "100",
    "concurrency": "8",
    "requests": "40",
}
TITLES = {
    "model": "Model",
    "gpu": "GPU",
    "isl": "Prompt tokens",
    "osl": "Output tokens",
    "concurrency": "Concurrency",
    "requests": "Requests",
}
BATCHING = ("in-flight", "static", "one-prefill")


def routes() -> list[Route]:
    """The addresses of the view."""
    return [Route("/lesson", view), Route("/lesson/run", run), Route("/lesson/seconds", seconds)]


async def view(request: Request) -> Response:
    """The controls, the places that the script fills, and the same in seconds."""
    inside = f"{player(request.query_params)}{_in_seconds()}"
    return HTMLResponse(
        page(
            "lesson",
            "Lesson",
            inside,
            scripts=("uPlot.iife.min.js", "lesson.js"),
            styles=("uPlot.min.css",),
        )
    )


def player(controls: Mapping[str, str], *, sliders: bool = True) -> str:
    """The controls with values that are not the defaults, and the script's places; recorded lessons
    have no ``sliders``.
    """
    chosen, load = controls.get("way", "in-flight"), controls.get("load", "tick_rate")
    ways = "".join(
        _segment("way", key, title, key == chosen) for key, (title, _) in BATCHERS.items()
    )
    loads = "".join(_segment("load", key, title, key == load) for key, title in LOADS.items())
    values = "".join(
        _slider(name, label, about, controls) for name, (label, about) in NUMBERS.items()
    )
    amounts = "".join(
        f'<div class="of" data-of="{name}">{_slider(name, LOADS[name], about, controls)}</div>'
        for name, about in LOAD_SLIDERS.items()
    )
    engine = (
        '<fieldset class="sliders"><legend class="sr">Engine and'
        f" requests</legend>{values}</fieldset>"
    )
    return (
        '<h1>Batching, tick by tick</h1><p class="lead">An engine has a few slots. A request waits'
        " in the queue, enters a free slot, is "
        "prefilled, and then decodes one token a step. All slots share each step, so that a long"
        " prefill holds up every answer next to it."
        "</p>\n"
        f'<form id="lesson" class="lesson-form" autocomplete="off"><fieldset class="wide"><legend'
        f' class="sr">Way of batching</legend>'
        f'<div class="segments">{ways}</div><p id="reading" class="hint"></p></fieldset>'
        '<fieldset class="wide"><legend class="sr">Load</legend><div'
        f' class="segments">{loads}</div>{amounts if sliders else ""}'
        f"</fieldset>{engine if sliders else ''}</form>\n"
        '<div class="player"><button type="button" class="button strong" id="play">Play</button>'
        '<button type="button" class="button" id="back" aria-label="One step back">‹ Step</button>'
        '<button type="button" class="button" id="step" aria-label="One step on">Step ›</button>'
        '<input type="range" id="at" min="0" max="1" value="0" aria-label="Step">'
        '<label class="speed">Speed <select id="speed"><option value="4">4 steps/s</option><option'
        ' value="12" selected>12 steps/s</option>'
        '<option value="40">40 steps/s</option></select></label></div>\n'
        '<dl class="big live" id="figures"></dl>\n'
        '<div class="canvas"><canvas id="slots" role="img" aria-label="Slots over ticks, the queue'
        ' beneath"></canvas></div>\n'
        '<p class="legend"><span class="key k-prefill">prefill</span><span class="key'
        ' k-decode">decode, a token</span>'
        '<span class="key k-held">decode, held up by a longer step</span><span class="key'
        ' k-empty">empty</span>'
        '<span class="key k-queue">queue</span></p><p id="said" class="sr"'
        ' aria-live="polite"></p>\n'
        '<div class="curves"><figure><figcaption>Mean TTFT and E2E up to each tick,'
        ' ticks</figcaption><div id="latency"></div></figure>'
        "<figure><figcaption>Requests per 1,000 ticks up to each tick</figcaption><div"
        ' id="rate"></div></figure></div>\n'
        '<h2>The four ways at this load</h2><div id="ways"></div>\n'
    )


def _segment(name: str, key: str, title: str, checked: bool) -> str:
    state = " checked" if checked else ""
    return (
        f'<input type="radio" id="{name}-{key}" name="{name}" value="{key}"{state}><label'
        f' for="{name}-{key}">{title}</label>'
    )


def _slider(
    name: str, label: str, about: tuple[str, float, float, float], controls: Mapping[str, str]
) -> str:
    default, least, highest, step = about
    value = escape(controls.get(name, default)[:12])
    return (
        f'<div class="field slid"><label for="l-{name}">{label}</label><output'
        f' for="l-{name}">{value}</output><input type="range" id="l-{name}" name="{name}"'
        f' min="{least:g}" max="{highest:g}" step="{step:g}" value="{value}"></div>'
    )


def _in_seconds() -> str:
    fields = "".join(
        f'<div class="field"><label for="s-{name}">{TITLES[name]}</label><input id="s-{name}"'
        f' name="{name}" value="{value}"></div>'
        for name, value in SECONDS.items()
    )
    options = "".join(f"<option>{strategy}</option>" for strategy in BATCHING)
    return (
        '<section id="seconds" aria-labelledby="seconds-title"><h2 id="seconds-title">The same in'
        ' seconds</h2><p class="lead">The rules of a real engine, on a model and a GPU: every step'
        ' has the time that the fitted step model gives it.</p><form class="seconds-form"'
        ' hx-get="/lesson/seconds" hx-target="#gantt" hx-trigger="submit" hx-disabled-elt="find'
        f' button">{fields}<div class="field"><label for="s-batcher">Batching</label><select'
        f' id="s-batcher" name="batcher">{options}</select></div><button class="button'
        ' strong">Simulate</button></form><div id="gantt" aria-live="polite"></div></section>'
    )


def config_of(controls: Mapping[str, str], way: str) -> LessonConfig:
    """The lesson that the controls ask for, with one way of batching. Raises InputError: a value
    that cannot be used.
    """
    if way not in BATCHERS:
        raise InputError(f"way: is not one of {', '.join(BATCHERS)}")
    load = controls.get("load", "tick_rate")
    if load not in LOADS:
        raise InputError(f"load: is not one of {', '.join(LOADS)}")
    defaults = {name: default for name, (_, (default, *_)) in NUMBERS.items()} | {
        load: LOAD_SLIDERS[load][0]
    }
    values: dict[str, Any] = {
        name: _number(name, controls.get(name, default)) for name, default in defaults.items()
    }
    if values["until"] > LONGEST:
        raise InputError(
            f"{option('until')}: {values['until']:g} is too long to play; write at most {LONGEST:,}"
        )
    if values["slots"] > 64:
        raise InputError(
            f"{option('slots')}: {values['slots']:g} cannot be drawn; write at most 64"
        )
    return LessonConfig(**values, **BATCHERS[way][1])


def _number(name: str, text: str) -> float:
    parsed = number_of(text)
    if parsed is None:
        raise InputError(f"{option(name)}: '{text[:20]}' is not a number; write one")
    return (
        int(parsed)
        if name not in ("prefill_ticks", "tick_rate", "osl_mean", "osl_std", "until")
        and parsed.is_integer()
        else parsed
    )


def watched(controls: Mapping[str, str]) -> dict[str, Any]:
    """Every step of the lesson with the figures up to it, and the figures of every way of batching
    at the end. Raises InputError.
    """
    way = controls.get("way", "in-flight")
    steps = [
        {
            "start": step.start,
            "duration": step.duration,
            "slots": step.slots,
            "queued": step.queued,
            **_figures(result),
        }
        for step, result in watch_lesson(config_of(controls, way))
    ]
    ends = []
    for name, (title, _) in BATCHERS.items():
        *_, (_, last) = watch_lesson(config_of(controls, name))
        ends.append({"name": title, "chosen": name == way, **_figures(last)})
    return {"steps": steps, "ways": ends, "reading": READINGS[way]}


async def run(request: Request) -> Response:
    """The lesson, to be played."""
    try:
        return JSONResponse(await run_in_threadpool(watched, dict(request.query_params)))
    except InputError as error:
        return JSONResponse({"errors": str(error).splitlines()}, status_code=422)


def _figures(result: LessonResult) -> dict[str, float | int | None]:
    values = {
        "ttft": result.ttft,
        "e2e": result.e2e,
        "rate": result.requests_per_1k_ticks,
        "tokens": result.tokens_per_1k_ticks,
    }
    figures: dict[str, float | int | None] = {
        name: None if isnan(value) else round(value, 2) for name, value in values.items()
    }
    return {**figures, "busy": round(100 * result.busy_slots, 1), "left": result.final_queue}


async def seconds(request: Request) -> Response:
    """The slots of a simulated engine, as figures."""
    desk = desk_of(request)
    parameters: dict[str, Any] = {
        name: value
        for name, value in request.query_params.items()
        if value and name in (*SECONDS, "batcher")
    }
    try:
        check_inside(parameters, desk.folder)
        for name, limit in (
            ("concurrency", MOST_REQUESTS),
            ("requests", MOST_REQUESTS),
            ("isl", 20_000),
            ("osl", 20_000),
        ):
            if not 1 <= _number(name, parameters.get(name, "")) <= limit:
                raise InputError(
                    f"{option(name)}: {parameters[name]} cannot be drawn; write 1 to {limit:,}"
                )
        parameters["requests"] = int(_number("requests", parameters["requests"]))
    except InputError as error:
        return HTMLResponse(faults(str(error).splitlines()))
    last = await desk.worker.answer("timeline", arguments=parameters)
    return HTMLResponse(last.get("answer") or faults(last.get("faults", ["cancelled"])))
