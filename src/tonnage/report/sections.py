"""A plan as a document: the answer first, then what it rests on, then how to repeat it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tonnage.report import figures
from tonnage.report.answer import first_glance, others, saturation, sentence, title
from tonnage.report.blocks import drawing, items, section
from tonnage.report.compared import compared
from tonnage.report.cost_section import cost_section
from tonnage.report.costs import yearly_costs
from tonnage.report.document import Block, Command, Document, Facts, Items, Section, Table, Text
from tonnage.report.existing import existing_section
from tonnage.report.figure import Plot
from tonnage.report.job_section import job_section
from tonnage.report.measured_comparison import beside
from tonnage.report.numbers import ABSENT, counted, number, percent, plain, sentence_of, usd
from tonnage.report.reading import (
    FRONT_END_FELT,
    Json,
    at,
    deployment,
    figure_of,
    further_degrees,
    gpus,
    knobs,
    latency,
    listed,
    same,
    words_of,
)
from tonnage.report.swings import relaxed, sensitivity

CANDIDATES_OPEN = 15
MARKED = "* rests in part on transferred or published values, not on measurements of this GPU and engine."

DEFINITIONS = (
    ("TTFT", "time to first token: from the moment a request was due to be sent, queueing included"),
    ("ITL", "every single gap between two tokens, all requests pooled"),
    ("TPOT", "(E2E − TTFT) / (output tokens − 1), one value a request"),
    ("E2E", "time to the last token"),
    ("p95", "95 of 100 are at or below it"),
    ("requests/s inside the limits", "the highest load at which every limit still holds"),
)


def document(*given: Json) -> Document:
    """The whole report of a plan; parts that the plan does not hold are left out. Of several plans, side by side first.

    A saved comparison of models stands for its plans.
    """
    plans = tuple(plan for one in given for plan in (listed(one, "plans") or (one,)))
    first = plans[0]
    day, version = words_of(first, "provenance", "date"), words_of(first, "provenance", "tonnage")
    about = words_of(first, "asked", "title")
    by = (f"{about} – sized" if about else "Sized") + f" by Tonnage {version}".rstrip() + (f", {day}" if day else "")
    if len(plans) == 1:
        return Document(title=title(first), subtitle=by, sections=_sections(first))
    parts = [_of_several(one, i, plan) for i, plan in enumerate(plans, 1) for one in _sections(plan)]
    return Document(title=f"{len(plans)} models compared", subtitle=by, sections=(compared(plans), *parts))


def _of_several(one: Section, place: int, plan: Json) -> Section:
    """A section of one plan of several: under its model's name, and only the first of each in the list of parts."""
    model = words_of(plan, "scenario", "model") or "model"
    return replace(one, key=f"{one.key}-{place}", title=f"{model}: {one.title}", listed=one.key == "answer")


def _sections(plan: Json) -> tuple[Section, ...]:
    made = (
        _answer(plan),
        _question(plan),
        existing_section(plan),
        _deployment(plan),
        beside(plan),
        _curve(plan),
        cost_section(plan),
        job_section(plan),
        _change(plan),
        _candidates(plan),
        _where_it_goes(plan),
        _rejected(plan),
        _rests_on(plan),
        _repeat(plan),
    )
    return tuple(one for one in made if one.blocks)


def _answer(plan: Json) -> Section:
    warnings = tuple(sentence_of(words_of(w, "text")) for w in listed(plan, "warnings"))
    glance = first_glance(plan)
    return section(
        "answer",
        "Answer",
        Text(text=sentence(plan), tone="answer"),
        Facts(rows=glance, big=True) if glance else None,
        items(warnings, "warning"),
    )


def _question(plan: Json) -> Section:
    scenario = at(plan, "scenario") or {}
    lengths = f"{words_of(scenario, 'isl')} tokens in, {words_of(scenario, 'osl')} tokens out"
    tried = " × ".join(", ".join(map(str, listed(scenario, key))) for key in ("gpus", "precisions", "engines") if listed(scenario, key))
    tps = ", ".join(map(str, listed(scenario, "tps")))
    rows = [
        ("Model", words_of(scenario, "model")),
        ("Lengths", lengths),
        ("Demand", words_of(plan, "demand", "how")),
        ("Limits", "; ".join(map(str, listed(scenario, "limits"))) or "none"),
        ("Traffic", "" if at(plan, "demand", "offline_requests") else _traffic(scenario)),
        ("Tried", tried + (f" × TP {tps}" if tps else "")),
    ]
    day = figures.profile(plan)
    numbers = None if day is None else _points_table(day, "The load in numbers")
    return section("question", "Question", Facts(rows=tuple(row for row in rows if row[1])), drawing(day, "", numbers))


def _systems(c: Json) -> str:
    return f"{plain(figure_of(c, 'systems'))} × {words_of(c, 'system')} (exactly {number(figure_of(c, 'systems_exact'))})"


def _traffic(scenario: Json) -> str:
    load, arrivals = words_of(scenario, "load"), words_of(scenario, "arrivals")
    how = f", {arrivals.replace('poisson', 'Poisson')} arrivals" if arrivals and load == "open" else ""
    return f"{load} loop{how}" if load in {"open", "closed"} else load


def _deployment(plan: Json) -> Section:
    columns = others(plan)
    if not columns:
        return section("deployment", "Deployment")
    properties = (
        ("deployment", deployment),
        ("systems", _systems),
        ("GPUs", lambda c: f"{gpus(c):,}"),
        ("instances", lambda c: words_of(c, "instances")),
        ("requests/s per instance", lambda c: number(figure_of(c, "requests_per_second_per_instance"))),
        ("requests/s per 8 GPUs", lambda c: number(figure_of(c, "requests_per_second_per_8_gpus"))),
        ("output tokens/s per 8 GPUs", lambda c: number(figure_of(c, "output_tokens_per_second_per_8_gpus"))),
        ("in flight per instance", lambda c: number(figure_of(c, "concurrency_per_instance"))),
        ("latency there", latency),
        ("what ends the load", lambda c: words_of(c, "binds")),
        ("P(meets the limits)", lambda c: percent(figure_of(c, "confidence", "meets"))),
        ("systems at 50, 80, 95 %", _systems_by_confidence),
        ("used at the peak", lambda c: percent(figure_of(c, "utilisation"))),
        ("fleet saturates at", saturation),
        ("engine knobs", knobs),
        ("memory", lambda c: words_of(c, "memory")),
        ("accuracy impact of the format", lambda c: words_of(c, "accuracy_impact")),
        ("its calibration", lambda c: words_of(c, "calibration")),
    )
    rows = [(name, *(read(c) or ABSENT for _, c in columns)) for name, read in properties]
    rows = [row for row in rows if set(row[1:]) != {ABSENT}]
    caption = "The chosen deployment" + (", and what else could be wanted" if len(columns) > 1 else "")
    table = Table(caption=caption, header=("", *(name for name, _ in columns)), rows=tuple(rows))
    checked = words_of(plan, "fleet_check", "text")
    return section("deployment", "Deployment", table, Text(text=f"The whole fleet at its peak: {checked}.") if checked else None)


def _systems_by_confidence(c: Json) -> str:
    if at(c, "confidence") is None:
        return ABSENT
    return ", ".join(words_of(c, "confidence", "systems", share) or "none" for share in ("50", "80", "95"))


def _curve(plan: Json) -> Section:
    plot = figures.curve(plan)
    reading = (
        "More load means more requests in a batch: throughput grows, and so does every latency. "
        "Dashed lines across are the limits; the answer is the last load at which all of them hold."
    )
    numbers = None if plot is None else _points_table(plot, "The curve in numbers")
    return section("curve", "Latency and throughput", drawing(plot, reading, numbers))


def _points_table(plot: Plot, caption: str) -> Table:
    """One row a load, one column a latency."""
    loads = sorted({p.x for s in plot.series for p in s.points})
    values = [{p.x: p.y for p in s.points} for s in plot.series]
    rows = tuple((plain(x) if x == round(x) else number(x), *(number(of.get(x)) for of in values)) for x in loads)
    return Table(
        caption=caption,
        header=(plot.x.title, *(f"{s.name}, {'ms' if plot.y.log else plot.y.title}" for s in plot.series)),
        rows=rows,
        folded=True,
    )


def _change(plan: Json) -> Section:
    rows = sensitivity(plan)
    cells = tuple((row.name, row.low.change, row.low.words, row.high.change, row.high.words) for row in rows)
    header = ("input", "lower", "systems", "higher", "systems")
    table = Table(caption="Systems when one input changes", header=header, rows=cells) if rows else None
    drawn = drawing(figures.tornado(plan), "The longer the bar, the more it pays to know that input well.", table)
    cheapest = relaxed(plan)
    line = Text(text=f"The cheapest limit to relax: {cheapest}.") if cheapest else None
    return section("sensitivity", "What would change the answer", drawn or table, line)


def _candidates(plan: Json) -> Section:
    candidates = listed(plan, "candidates")
    if not candidates:
        return section("candidates", "Candidates")
    costs = yearly_costs(plan)
    priced = any(cost is not None for cost in costs)
    header = ["GPU", "precision", "TP", "engine", "requests/s per 8 GPUs", "systems exactly", "systems", "GPUs"]
    sure = any(at(c, "confidence") is not None for c in candidates)
    header += ["P(meets)", "systems at 95 %"] if sure else []
    header += ["TTFT p95, ms", "TPOT mean, ms", "E2E mean, ms", *(["USD a year"] if priced else []), "ends at"]
    table = Table(
        caption=f"{counted(len(candidates), 'deployment')} inside the limits, fewest GPUs first",
        header=tuple(header),
        rows=tuple(_candidate_row(c, cost, priced, sure) for c, cost in zip(candidates, costs, strict=True)),
        chosen=next((i for i, c in enumerate(candidates) if same(c, at(plan, "choice"))), None),
        folded=len(candidates) > CANDIDATES_OPEN,
        note="* rests in part on transferred or published values, not on measurements of this GPU and engine."
        if any(listed(c, "marks") for c in candidates)
        else "",
    )
    reading = "Down is cheaper, left is faster. A deployment off the line is beaten in both by one that is on it."
    return section("candidates", "Candidates", drawing(figures.pareto(plan), reading, table) or table)


def _candidate_row(c: Json, cost: float | None, priced: bool, sure: bool) -> tuple[str, ...]:
    latencies = [
        number(figure_of(c, f"{metric}_ms", statistic)) for metric, statistic in (("ttft", "p95"), ("tpot", "mean"), ("e2e", "mean"))
    ]
    return (
        words_of(c, "gpu"),
        words_of(c, "precision"),
        words_of(c, "tp") + further_degrees(c, " × "),
        words_of(c, "engine") + ("*" if listed(c, "marks") else ""),
        number(figure_of(c, "requests_per_second_per_8_gpus")),
        number(figure_of(c, "systems_exact")),
        words_of(c, "systems"),
        f"{gpus(c):,}",
        *((percent(figure_of(c, "confidence", "meets")), words_of(c, "confidence", "systems", "95") or "none") if sure else ()),
        *latencies,
        *([usd(cost)] if priced else []),
        words_of(c, "binds"),
    )


def _where_it_goes(plan: Json) -> Section:
    """What binds, in a sentence, then the step and the memory by their parts."""
    explained = at(plan, "explain")
    blocks: list[Block | None] = [items(_binding(explained)) if explained else None]
    for figure, unit in ((figures.step(plan), "ms"), (figures.memory(plan), "GB")):
        if figure is not None:
            pairs = [(s.name, s.size) for bar in figure.bars for s in bar.segments]
            rows = tuple((name, number(size), percent(size / (sum(s for _, s in pairs) or 1.0))) for name, size in pairs)
            table = Table(caption=f"{figure.title}, in numbers", header=("part", unit, "share"), rows=rows, folded=True)
            blocks.append(drawing(figure, "", table))
    return section("explain", "Where time and memory go", *blocks)


def _binding(explained: Json) -> tuple[str, ...]:
    seconds, prompt, decode = (figure_of(explained, key) for key in ("step_seconds", "prefill_tokens", "decode_sequences"))
    most = next((t for t in listed(explained, "terms") if words_of(t, "term") == words_of(explained, "binds")), None)
    lines = []
    if seconds is not None:
        lines.append(
            f"At the highest load inside the limits, a mean step takes {number(seconds * 1e3)} ms for {number(prompt)} prompt tokens "
            f"and {number(decode)} requests that decode."
        )
    if most is not None:
        lines.append(f"What takes most of it: {words_of(most, 'label')}, {percent(figure_of(most, 'share'))}.")
    busy = figure_of(explained, "front_end_busy")
    if busy is not None and busy >= FRONT_END_FELT:
        lines.append(f"The front end streams tokens {percent(busy)} of the time.")
    for limit in listed(explained, "limits"):
        value, used = figure_of(limit, "value_ms"), figure_of(limit, "used")
        lines.append(f"{words_of(limit, 'limit')}: {number(value)} ms, {percent(used)} of the limit.")
    return tuple(lines)


def _rejected(plan: Json) -> Section:
    """Deployments with one reason share a row."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    rejected = listed(plan, "rejected")
    for r in rejected:
        degrees = words_of(r, "tp") + further_degrees(r, " × ")
        kind = f"{words_of(r, 'precision')} {words_of(r, 'engine')}"
        groups.setdefault((words_of(r, "gpu"), words_of(r, "reason")), []).append((kind, degrees))
    if not groups:
        return section("rejected", "Rejected")
    rows = tuple((gpu, _together(where), reason) for (gpu, reason), where in groups.items())
    caption = f"{counted(len(rejected), 'deployment')} tried that cannot carry the load, or are not worth a simulation"
    return section(
        "rejected", "Rejected, and why", Table(caption=caption, header=("GPU", "deployments", "reason"), rows=rows, folded=len(rows) > 12)
    )


def _together(deployments: Iterable[tuple[str, str]]) -> str:
    """Such as "fp8 vllm TP 1, 2, 4; fp16 vllm TP 8"."""
    kinds: dict[str, list[str]] = {}
    for kind, degrees in deployments:
        kinds.setdefault(kind, []).append(degrees)
    return "; ".join(f"{kind} TP {', '.join(degrees)}" for kind, degrees in kinds.items())


def _rests_on(plan: Json) -> Section:
    checked = words_of(plan, "fleet_check", "text")
    notes = tuple(note for note in map(str, listed(plan, "notes")) if not checked or checked not in note)
    marks = tuple(str(mark) for mark in listed(plan, "choice", "marks"))
    percentile = at(plan, "percentile_answer")
    return section(
        "assumptions",
        "What it rests on",
        items(notes),
        Items(
            items=tuple(f"The chosen deployment is priced with {mark}." if not mark.endswith(".") else mark for mark in marks),
            tone="warning",
        )
        if marks
        else None,
        _two_ways(percentile) if percentile else None,
        Text(text=words_of(percentile, "explanation")) if percentile else None,
        Facts(rows=DEFINITIONS),
    )


def _two_ways(answer: Json) -> Table:
    peak, mean = (number(figure_of(answer, f"{of}_requests_per_second")) for of in ("peak", "mean"))
    exact, simulated = (number(figure_of(answer, name)) for name in ("systems_exact", "simulated_systems_exact"))
    rows = (
        (f"percentile: {peak}/s over a closed loop", exact, words_of(answer, "systems")),
        (f"simulation: arrivals at {mean}/s (decides)", simulated, words_of(answer, "simulated_systems")),
    )
    return Table(caption="Two ways to size for a mean", header=("way", "systems exactly", "systems"), rows=rows, chosen=1)


def _repeat(plan: Json) -> Section:
    provenance = at(plan, "provenance") or {}
    command = words_of(provenance, "command")
    facts = [("Tonnage", words_of(provenance, "tonnage")), ("Data", words_of(provenance, "data")), ("Seed", words_of(provenance, "seed"))]
    facts += [("Date", words_of(provenance, "date")), ("Plan", words_of(plan, "schema"))]
    coefficients = at(provenance, "coefficients")
    if isinstance(coefficients, dict):
        facts += [(f"Coefficients of {name}", str(source)) for name, source in coefficients.items()]
    known = tuple(fact for fact in facts if fact[1])
    return section("repeat", "Repeat it", Command(text=command) if command else None, Facts(rows=known) if known else None)
