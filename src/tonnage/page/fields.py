"""The question of a page: leaves of a scenario by name, as a link, as a command, and as the form
with its six parts.

A link is a plan: its query holds every leaf that was set, under the name that its flag has, and
nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from html import escape
from typing import Any, Literal, get_args, get_origin
from urllib.parse import parse_qsl, quote, urlencode

from tonnage.errors import InputError, option
from tonnage.plan.candidate import CONFIDENCE
from tonnage.spec.catalog import gpus
from tonnage.spec.deployment import METRICS
from tonnage.spec.scenario import Leaf, leaves, takes
from tonnage.spec.use_cases import PRESETS

Flat = dict[str, Any]  # values by the names of leaves, as ``tonnage.size`` takes them

LEAVES: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves()}
LONGEST_QUERY, LONGEST_VALUE = 16_000, 2_000  # characters

# The forms of a demand, each with its leaves; the first leaf is the one that says which form it is
FORMS: dict[str, tuple[str, ...]] = {
    "peak": ("peak_rps",),
    "mean": ("mean_rps", "peak_percentile", "peak_factor", "profile"),
    "users": ("users", "requests_per_user_day", "working_hours", "working_days", "peak_factor"),
    "calls": ("calls_per_year", "requests_per_call", "peak_factor"),
    "trace": ("trace", "mean_rps"),
    "job": ("requests", "within"),
}

BASE = "base"  # name of the link that a question of What if began with

# What the page asks where a link asks nothing: the question of the README
EXAMPLE: Flat = {
    "model": "llama-3.1-8b",
    "isl": "2000",
    "osl": "200",
    "peak_rps": "300",
    "ttft": ["p95<=500ms"],
    "tpot": ["p95<=50ms"],
}


def form_of(question: Mapping[str, Any]) -> str:
    """The form of its demand."""
    return next(
        (name for name in ("trace", "users", "calls", "job", "mean") if FORMS[name][0] in question),
        "peak",
    )


def question_of(query: str) -> Flat:
    """The question of a link or of a form, which names the parts of its limits apart (``ttft.at``,
    ``ttft.ms``). Raises InputError.
    """
    if len(query) > LONGEST_QUERY:
        raise InputError(f"the link has {len(query):,} characters; {LONGEST_QUERY:,} are allowed")
    texts_by_name: dict[str, list[str]] = {}
    for written, value in parse_qsl(query):
        name = "classes" if written == "class" else written
        text = value.strip()
        if len(text) > LONGEST_VALUE:
            raise InputError(
                f"{option(name[:40])}: longer than {LONGEST_VALUE:,} characters; shorten it"
            )
        if text:
            texts_by_name.setdefault(name, []).append(text)
    form = texts_by_name.pop("demand", [""])[0]
    texts_by_name.pop(BASE, None)
    dropped = {
        leaf for name, parts in FORMS.items() if form in FORMS and name != form for leaf in parts
    } - set(FORMS.get(form, ()))
    for metric in METRICS:
        at, bound = texts_by_name.pop(f"{metric}.at", None), texts_by_name.pop(f"{metric}.ms", None)
        if at and bound:
            texts_by_name[metric] = [f"{at[0]}<={bound[0]}ms", *texts_by_name.get(metric, [])]
    unknown = next((name for name in texts_by_name if name not in LEAVES), None)
    if unknown is not None:
        raise InputError(
            f"{option(unknown[:40])}: unknown; a link holds the names that tonnage schema prints"
        )
    return {
        name: _of_leaf(LEAVES[name], texts_by_name[name])
        for name in LEAVES
        if name in texts_by_name and name not in dropped
    }


def _of_leaf(leaf: Leaf, texts: list[str]) -> Any:
    if leaf.path[0] == "limits":
        return list(dict.fromkeys(texts))
    if leaf.name == "classes":
        return [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    text = ",".join(texts)
    if takes(leaf.kind, bool) and text in ("true", "false"):
        return text == "true"
    return text


def query_of(question: Mapping[str, Any]) -> str:
    """The query of a link to a question."""
    listed = [
        (name, part)
        for name, value in question.items()
        for part in (value if isinstance(value, list) else [value])
    ]
    parts = [
        (name, str(part).lower() if isinstance(part, bool) else str(part)) for name, part in listed
    ]
    return urlencode(parts, quote_via=quote, safe=",:<=")


def command_of(question: Mapping[str, Any]) -> str:
    """The command that asks the same."""
    return shlex.join(["./tonnage", *tokens_of(question)])


def tokens_of(question: Mapping[str, Any]) -> list[str]:
    """Its words after the name of the program."""
    words = ["size"]
    for name, value in question.items():
        flag = "class" if name == "classes" else name.replace("_", "-")
        for part in value if isinstance(value, list) else [value]:
            words += (
                [f"--{'' if part else 'no-'}{flag}"]
                if isinstance(part, bool)
                else [f"--{flag}", str(part)]
            )
    return words


# Ends of the logarithmic sliders; limits in milliseconds
SLIDERS: dict[str, tuple[float, float]] = {
    "peak_rps": (0.1, 10_000),
    "mean_rps": (0.1, 10_000),
    "users": (10, 1_000_000),
    "calls_per_year": (10_000, 1_000_000_000),
    "requests": (1_000, 100_000_000),
    "isl": (16, 131_072),
    "osl": (1, 16_384),
    "ttft": (20, 60_000),
    "itl": (2, 1_000),
    "tpot": (2, 1_000),
    "e2e": (100, 300_000),
    "confidence": (50, 99),
}

LABELS = {
    "model": "Model",
    "isl": "Prompt length, tokens",
    "osl": "Output length, tokens",
    "peak_rps": "Requests per second at the peak",
    "mean_rps": "Mean requests per second",
    "peak_percentile": "Percentile of per-second arrivals",
    "peak_factor": "Peak as a multiple of the mean",
    "profile": "Hourly profile (24 or 168 values)",
    "users": "Users",
    "requests_per_user_day": "Requests per user and day",
    "working_hours": "Hours of the day",
    "working_days": "Working days a week",
    "calls_per_year": "Calls a year",
    "requests_per_call": "Requests per call",
    "trace": "Trace in the run folder",
    "requests": "Requests of the job",
    "within": "Time for the job",
    "have": "Systems that exist",
    "growth": "Growth of the load",
    "spare": "Spare systems",
    "confidence": "Confidence, %",
    "classes": "Classes of traffic, one a line",
}
LIMITED = {
    "ttft": "First token (TTFT)",
    "itl": "Gap between tokens (ITL)",
    "tpot": "Time per token (TPOT)",
    "e2e": "Whole answer (E2E)",
}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
DEMANDS = {
    "peak": "Peak",
    "mean": "Mean",
    "users": "Users",
    "calls": "Calls",
    "trace": "Trace",
    "job": "Job",
}
HINTS = {
    "have": "3xdgx-h100",
    "growth": "5%/month",
    "within": "8h",
    "profile": "profile.csv",
    "confidence": f"{100 * CONFIDENCE:.0f}",
    "requests_per_user_day": "30",
    "peak_factor": "3",
    "peak_percentile": "95",
    "requests_per_call": "1",
    "working_hours": "8",
    "working_days": "5",
    "spare": "0",
}
BRANCHES = {
    "lengths": "More about lengths",
    "sessions": "Conversations and shared prefixes",
    "search": "What may be combined",
    "choice": "What is chosen",
    "standby": "Standby for failures",
    "scaling": "Scaling over the day",
    "buying": "Buying and renting over years",
    "": "Everything else",
}
WAYS = (
    ("on-prem", "owned"),
    ("cloud", "cloud"),
    ("hybrid", "owned + cloud"),
    ("api", "API"),
    ("hybrid-api", "owned + API"),
)
SHOWN = {
    *("model", "isl", "osl", "gpu", "where", "have", "growth", "spare", "confidence", *METRICS),
    "classes",
    *(leaf for form_leaves in FORMS.values() for leaf in form_leaves),
}
# GPUs that have a box; others are typed
OFFERED = (
    "h100-sxm-80gb",
    "h200-sxm-141gb",
    "b200-sxm-180gb",
    "b300-sxm-270gb",
    "gb200-186gb",
    "gb300-279gb",
    "a100-sxm-80gb",
    "l40s",
)
_LIMIT = re.compile(r"\s*(mean|p50|p90|p95|p99)\s*<?=?\s*([\d.]+)\s*(ms|s)\s*")


def form(question: Mapping[str, Any], files: tuple[str, ...] = ()) -> str:
    """The whole form of a question; ``files`` are those of the run folder."""
    sections = []
    for branch, title in BRANCHES.items():
        mine = [
            leaf
            for leaf in LEAVES.values()
            if (leaf.path[0] if len(leaf.path) > 1 else "") == branch and leaf.name not in SHOWN
        ]
        opened = " open" if any(leaf.name in question for leaf in mine) else ""
        sections.append(
            f"<details{opened}><summary>{escape(title)}</summary>{''.join(_leaf(leaf, question) for leaf in mine)}</details>"  # noqa: E501
        )
    parts = (
        _model(question),
        _group(
            "2",
            "How long are prompts and answers?",
            _number("isl", question) + _number("osl", question),
        ),
        _demand(question, files),
        _group(
            "4",
            "How fast must it be?",
            _use_cases() + "".join(_limit(metric, question) for metric in METRICS),
        ),
        _where(question),
        _group(
            "6",
            "Growth, spare, confidence",
            "".join(_number(name, question) for name in ("growth", "spare", "confidence")),
        ),
        f'<div class="advanced"><h3>Advanced</h3>{"".join(sections)}</div>',
    )
    return (
        '<form id="question" class="question" action="/size" method="get" hx-get="/size/estimate"'
        ' hx-target="#estimate" hx-trigger="input delay:40ms, load" hx-sync="this:replace"'
        f' aria-label="The question" autocomplete="off">\n{"".join(parts)}<noscript><button'
        ' class="button">Answer</button></noscript></form>\n'
    )


def what_if_form(question: Mapping[str, Any], base: str) -> str:
    """The inputs that move an answer; the rest goes along unseen, as does ``base``, the question
    that it began with.
    """
    load = FORMS[form_of(question)][0]
    moved = tuple(
        name
        for name in ("isl", "osl", load, "confidence")
        if name in ("confidence", *question) and name != "trace"
    )
    limits = "".join(_limit(metric, question) for metric in METRICS)
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(_value(name, {name: part}))}">'
        for name, value in question.items()
        if name not in (*moved, *METRICS)
        for part in (value if isinstance(value, list) else [value])
    )
    return (
        '<form id="question" class="question" action="/what-if" method="get"'
        ' hx-get="/size/estimate" hx-target="#estimate" '
        'hx-trigger="input delay:40ms, load" hx-sync="this:replace" aria-label="Changes"'
        ' autocomplete="off">\n'
        '<fieldset><legend>What if it were …</legend><p class="hint">The sliders begin at the plan.'
        " The address keeps every change.</p>"
        f"{''.join(_number(name, question) for name in moved)}</fieldset>"
        f"<fieldset><legend>… within other limits</legend>{limits}</fieldset>{hidden}"
        f'<input type="hidden" name="{BASE}" value="{escape(base)}">'
        f'<div class="actions"><a class="button" href="/what-if?{escape(base)}">Back to the'
        " plan</a></div></form>\n"
    )


def _group(place: str, title: str, inside: str) -> str:
    return (
        "<fieldset><legend><span"
        f' class="place">{place}</span>{escape(title)}</legend>{inside}</fieldset>\n'
    )


def _value(name: str, question: Mapping[str, Any]) -> str:
    value = question.get(name, "")
    return (
        ",".join(map(str, value))
        if isinstance(value, list)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _model(question: Mapping[str, Any]) -> str:
    return _group(
        "1",
        "Which model?",
        '<div class="field whole"><label for="f-model" class="sr">Model</label><input id="f-model"'
        f' name="model" value="{escape(_value("model", question))}" list="models"'
        ' spellcheck="false"'
        ' placeholder="meta-llama/Llama-3.1-8B-Instruct" hx-get="/models" hx-trigger="input'
        ' changed delay:120ms, focus once" hx-target="#models" hx-swap="innerHTML"'
        ' hx-sync="this:replace" hx-params="model"><datalist id="models"></datalist><p'
        ' class="hint">A name of Hugging Face or the catalog, or a config.json under'
        " Files</p></div>",
    )


def _number(name: str, question: Mapping[str, Any]) -> str:
    """A leaf by its name, with a slider where its range is known."""
    hint = f' placeholder="{escape(HINTS[name])}"' if name in HINTS else ""
    about = f' title="{escape(LEAVES[name].about)}"'
    slider = _slider(name, LABELS[name]) if name in SLIDERS else ""
    return (
        f'<div class="field{" slid" if slider else ""}"><label'
        f' for="f-{name}">{escape(LABELS[name])}</label><input id="f-{name}" name="{name}"'
        f' value="{escape(_value(name, question))}" inputmode="decimal"{hint}{about}>{slider}</div>'
    )


def _slider(name: str, label: str) -> str:
    low, high = SLIDERS[name]
    ends = f'data-low="{low:g}" data-high="{high:g}"'
    return (
        f'<input type="range" min="0" max="1000" data-for="f-{name}" {ends}'
        f' aria-label="{escape(label)}, slider">'
    )


def _demand(question: Mapping[str, Any], files: tuple[str, ...]) -> str:
    chosen = form_of(question)
    radios = "".join(
        f'<input type="radio" id="d-{name}" name="demand"'
        f' value="{name}"{" checked" if name == chosen else ""}><label'
        f' for="d-{name}">{escape(title)}</label>'
        for name, title in DEMANDS.items()
    )
    fields = []
    for leaf in dict.fromkeys(leaf for parts in FORMS.values() for leaf in parts):
        belongs = " ".join(name for name, parts in FORMS.items() if leaf in parts)
        control = _files("trace", question, files) if leaf == "trace" else _number(leaf, question)
        fields.append(f'<div class="of" data-of="{belongs}">{control}</div>')
    segments = f'<div class="segments" role="radiogroup" aria-label="In which form">{radios}</div>'
    return _group("3", "How much traffic?", f"{segments}{''.join(fields)}{_classes(question)}")


def _classes(question: Mapping[str, Any]) -> str:
    """A line for each class; closed as long as there is none."""
    written = question.get("classes", [])
    lines = [written] if isinstance(written, str) else list(written)
    return (
        f"<details{' open' if lines else ''}><summary>Classes of traffic</summary><div"
        f' class="field whole"><label for="f-classes">{escape(LABELS["classes"])}</label><textarea'
        f' id="f-classes" name="classes" rows="{1 + 2 * max(1, len(lines))}" spellcheck="false"'
        f' placeholder="chat:peak_rps=20,isl=1000,osl=200,ttft=p95&lt;=500ms"'
        f' aria-describedby="h-classes">{escape(chr(10).join(lines))}</textarea><p class="hint"'
        ' id="h-classes">Each with its load, lengths and limits, the highest priority first; what a'
        " class leaves out is as above and below</p></div></details>"
    )


def _files(name: str, question: Mapping[str, Any], files: tuple[str, ...]) -> str:
    chosen = _value(name, question)
    options = "".join(
        f"<option{' selected' if file_name == chosen else ''}>{escape(file_name)}</option>"
        for file_name in dict.fromkeys((*filter(None, (chosen,)), *files))
    )
    return (
        f'<div class="field"><label for="f-{name}">{escape(LABELS[name])}</label><select'
        f' id="f-{name}" name="{name}"><option value="">choose …</option>{options}</select><p'
        ' class="hint"><a href="/files">Files</a> takes a trace that is dropped there</p></div>'
    )


def _use_cases() -> str:
    options = "".join(
        f'<option value="{name}">{name}</option>'
        for name, preset in PRESETS.items()
        if any((preset.limits.ttft, preset.limits.itl))
    )
    return (
        '<div class="field"><label for="u-case">Usual limits of</label><select id="u-case"'
        ' hx-get="/size/usual" name="usual" hx-include="closest form" hx-target="#question"'
        ' hx-swap="outerHTML" hx-trigger="change" hx-sync="this:replace"><option value="">choose'
        f" …</option>{options}</select></div>"
    )


def _limit(metric: str, question: Mapping[str, Any]) -> str:
    """A limit as a statistic and a time; further ones of the metric are kept as they are
    written.
    """
    written = question.get(metric, [])
    texts = [written] if isinstance(written, str) else list(written)
    match = _LIMIT.fullmatch(texts[0]) if texts else None
    statistic = match[1] if match else ""
    bound = "" if match is None else f"{float(match[2]) * (1 if match[3] == 'ms' else 1000):g}"
    rest = texts[1:] if match else texts
    options = "".join(
        f"<option{' selected' if choice == statistic else ''}>{choice}</option>"
        for choice in STATISTICS
    )
    label = escape(LIMITED[metric])
    further = "".join(
        f'<input type="hidden" name="{metric}" value="{escape(text)}"><p class="hint">also'
        f" {escape(text)}</p>"
        for text in rest
    )
    return (
        f'<div class="field limit"><label for="f-{metric}">{label}</label><span'
        f' class="pair"><select name="{metric}.at" aria-label="{label}, statistic"><option'
        f' value="">no limit</option>{options}</select><input id="f-{metric}" name="{metric}.ms"'
        f' value="{bound}" inputmode="decimal" data-limit="{metric}"><span'
        f' class="unit">ms</span></span>{_slider(metric, LIMITED[metric])}{further}</div>'
    )


def _where(question: Mapping[str, Any]) -> str:
    chosen = [part.strip() for part in _value("gpu", question).split(",") if part.strip()]
    catalog_gpus = {gpu.name for gpu in gpus()}
    boxes = "".join(
        _box("gpu", name, name, name in chosen)
        for name in (*OFFERED, *(typed for typed in chosen if typed not in OFFERED))
        if name in catalog_gpus or name in chosen
    )
    ways = _value("where", question).split(",")
    priced = "".join(_box("where", name, title, name in ways) for name, title in WAYS)
    tried, compared = (
        _boxes("gpu", "GPUs to try", "none: the usual ones", boxes),
        _boxes("where", "Costs to compare", "none: all", priced),
    )
    return _group("5", "Where does it run?", f"{tried}{_number('have', question)}{compared}")


def _boxes(name: str, title: str, otherwise: str, inside: str) -> str:
    label = (
        f'<span class="label" id="l-{name}">{escape(title)} <em>({escape(otherwise)})</em></span>'
    )
    return (
        f'<div class="field">{label}<div class="boxes" role="group"'
        f' aria-labelledby="l-{name}">{inside}</div></div>'
    )


def _box(name: str, value: str, title: str, checked: bool) -> str:
    state = " checked" if checked else ""
    return (
        f'<label class="box"><input type="checkbox" name="{name}"'
        f' value="{escape(value)}"{state}><span>{escape(title)}</span></label>'
    )


def _leaf(leaf: Leaf, question: Mapping[str, Any]) -> str:
    value, title = _value(leaf.name, question), leaf.name.replace("_", " ")
    choices: tuple[str, ...] = next(
        (get_args(part) for part in get_args(leaf.kind) if get_origin(part) is Literal), ()
    )
    if not choices and takes(leaf.kind, bool) and not takes(leaf.kind, str):
        choices = ("true", "false")
    about = f'<p class="hint" id="h-{leaf.name}">{escape(leaf.about)}</p>'
    named = f'id="f-{leaf.name}" name="{leaf.name}" aria-describedby="h-{leaf.name}"'
    if choices:
        options = "".join(
            f"<option{' selected' if choice == value else ''}>{choice}</option>"
            for choice in choices
        )
        control = f'<select {named}><option value="">default</option>{options}</select>'
    else:
        control = f'<input {named} value="{escape(value)}" spellcheck="false">'
    return (
        '<div class="field"><label'
        f' for="f-{leaf.name}">{escape(title)}</label>{control}{about}</div>'
    )
