"""A plan as text: the answer first, then what would change it, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.cli.table import number, table, wrapped
from tonnage.plan.explanation import TERMS
from tonnage.report.former_document import confidence_line
from tonnage.report.numbers import counted
from tonnage.report.reading import FRONT_END_FELT
from tonnage.report.wording_demand import demand_text
from tonnage.report.wording_deployments import MEMORY, load_text, memory_text
from tonnage.report.wording_existing import existing_text
from tonnage.report.wording_fleet_check import fleet_check_text
from tonnage.report.wording_limits import bound_text, limit_text
from tonnage.report.wording_notes import note_texts
from tonnage.report.wording_percentile import arrivals_text, percentile_text
from tonnage.report.wording_reasons import reason_text
from tonnage.report.wording_sensitivity import INPUTS, relaxed_text
from tonnage.report.wording_warnings import warning_text
from tonnage.spec.use_cases import pace

if TYPE_CHECKING:
    from tonnage.plan.candidate import Candidate
    from tonnage.plan.plan import Plan
    from tonnage.plan.sensitivity import Changed

CANDIDATES_SHOWN = 12
REJECTED_SHOWN = 8
HANGING = " " * 10
SURE = "P(meets): the chance that so many systems meet the limits; at 95%: how many do with 95 % probability"
MARKED = "* rests in part on transferred or published values, not on measurements of this GPU and engine"

COLUMNS = ("GPU", "prec.", "TP", "engine", "req/s/inst.", "req/s/8 GPUs", "systems exactly", "systems")
LATENCIES = ("TTFT p95 ms", "TPOT ms", "E2E ms", "bound by")
CONFIDENCE = ("P(meets)", "at 95%")
SPARE = ("req/s/inst.", "E2E ms", "TPOT ms", "TTFT p95 ms", "prec.", "req/s/8 GPUs")
"""Columns that a narrow terminal does without, in that order."""

FRONT_END_LIMITS = 0.85
"""Share of its time from which a busy front end is said to limit."""


def show_plan(plan: Plan, *, explain: bool = False) -> str:
    """The whole plan as lines of text; with ``explain`` also where time and memory go."""
    parts = [_question(plan), _answer(plan), _warnings(plan), _sensitivity(plan)]
    if explain and plan.explain is not None:
        parts.append(show_explanation(plan))
    parts += [_candidates(plan), _rejected(plan), _percentile(plan)]
    parts.append("\n".join(wrapped(f"· {note}") for note in note_texts(plan)))
    return "\n\n".join(part for part in parts if part)


def _line(name: str, text: str) -> str:
    """A named line of the head of the plan, folded under its text."""
    return wrapped(f"{name:<8}{text}", "  ", HANGING)


def _question(plan: Plan) -> str:
    s = plan.scenario
    limits = ", ".join(map(limit_text, s.limits)) or "none"
    asked = f"{s.model}, {s.isl} tokens in, {s.osl} out"
    return "\n".join([wrapped(f"Question  {asked}", "", HANGING), _line("Demand", demand_text(plan.demand)), _line("Limits", limits)])


def _answer(plan: Plan) -> str:
    best = plan.choice
    exists = "" if plan.existing is None else _line("Have", existing_text(plan.existing)) + "\n"
    if best is None:
        return exists + _line("Answer", "no deployment meets the limits; the reasons are below.")
    spare = plan.scenario.spare_systems
    whole = f"{number(best.systems_exact, 3)} exactly{f', {spare} spare' if spare else ''}"
    sentences = [
        f"one instance carries {number(best.requests_per_second_per_instance)} requests/s inside the limits "
        f"({load_text(best.load)}), 8 GPUs {number(best.requests_per_second_per_8_gpus)}",
        f"there: {_latencies(best)}",
        _pace(plan, best),
        f"utilisation at the peak {best.utilisation:.0%} of what the limits allow; bound by {bound_text(best.binds)}; "
        f"the fleet saturates at {number(best.saturation_requests_per_second_per_instance * best.instances)} requests/s",
        f"memory: {memory_text(best.memory, best.kv_tokens)}" if best.memory else "",
        f"{best.precision}: accuracy impact {best.accuracy_impact}, calibration {best.calibration}" if best.accuracy_impact else "",
        f"fleet check: {fleet_check_text(plan.fleet_check)}" if plan.fleet_check is not None else "",
        confidence_line(plan),
    ]
    first = _line("Answer", f"{best.systems} × {best.system} ({whole}): {best.instances} instances of {_name(best)}")
    return exists + "\n".join([first, *(wrapped(sentence, HANGING, HANGING + "  ") for sentence in sentences if sentence)])


def _name(c: Candidate) -> str:
    return f"{c.precision.upper()}, {_split(c)}, {c.engine} on {c.gpu}"


def _split(c: Candidate) -> str:
    """Such as "TP 4" or "TP 1, DP 8, EP 8"."""
    stages = {"pp": c.pp} if c.pp > 1 else {}
    return ", ".join(f"{name.upper()} {degree}" for name, degree in {"tp": c.tp, **stages, **c.parallelism.further}.items())


def _latencies(c: Candidate) -> str:
    """Mean and high percentiles of each latency, those that are known."""
    metrics = (("TTFT", c.ttft_ms), ("TPOT", c.tpot_ms), ("E2E", c.e2e_ms))
    known = [(name, [f"{s} {number(v)}" for s in ("mean", "p95", "p99") if (v := values.value(s)) is not None]) for name, values in metrics]
    return "; ".join(f"{name} {', '.join(statistics)} ms" for name, statistics in known if statistics)


def _pace(plan: Plan, best: Candidate) -> str:
    """The gaps between tokens beside the speed of reading, where somebody reads along."""
    mean, p99 = best.itl_ms.mean, best.itl_ms.p99
    if plan.scenario.mode != "streaming" or mean is None or p99 is None:
        return ""
    return f"pace: ITL mean {number(mean)}, p99 {number(p99)} ms, {pace(mean / 1e3, p99 / 1e3)}"


def _warnings(plan: Plan) -> str:
    return "\n".join(wrapped(f"! {warning_text(warned)}") for warned in plan.warnings)


def _sensitivity(plan: Plan) -> str:
    found = plan.sensitivity
    if found is None or not found.swings:
        return ""
    rows = [
        (INPUTS[swing.input], _change(swing.low), _needed(swing.low), _change(swing.high), _needed(swing.high)) for swing in found.swings
    ]
    header = ("input", "lower", "systems", "higher", "systems")
    title = f"What would change the answer (now {counted(found.systems, 'system')}, {number(found.systems_exact)} exactly)"
    relaxed = "" if found.relaxed is None else "\n" + wrapped(f"Cheapest limit to relax: {relaxed_text(found.relaxed)}", "", "  ")
    return f"{wrapped(title, '', '  ')}\n{table(header, rows)}{relaxed}"


def _change(changed: Changed) -> str:
    return f"{changed.change * 100:+.0f} %".replace("-", "−")


def _needed(changed: Changed) -> str:
    if changed.systems is None:
        return "none" if changed.reason is None else f"none: {reason_text(changed.reason)}"
    return f"{changed.systems} ({number(changed.systems_exact)})"


def show_explanation(plan: Plan) -> str:
    """Which term of a step binds, how far each limit is used, where the memory goes."""
    explained, choice = plan.explain, plan.choice
    if explained is None or choice is None:
        return ""
    terms = [(TERMS[term.term], number(term.seconds * 1e3), f"{term.share:.0%}") for term in explained.terms]
    memory = [(MEMORY[part.part], number(part.bytes_per_gpu / 1e9), f"{part.share:.0%}") for part in choice.memory]
    limits = [(limit_text(use.limit), number(use.value_ms), "–" if use.used is None else f"{use.used:.0%}") for use in explained.limits]
    step = (
        f"A mean step of {number(explained.step_seconds * 1e3)} ms: {number(explained.prefill_tokens)} prompt tokens, "
        f"{number(explained.decode_sequences)} requests that decode{_front_end(explained.front_end_busy)}"
    )
    tables = [
        f"{wrapped(step, '', '  ')}\n{table(('spent on', 'ms', 'share'), terms)}",
        f"Limits there\n{table(('limit', 'ms', 'used'), limits)}" if limits else "",
        f"Memory of one GPU\n{table(('part', 'GB', 'share'), memory)}",
    ]
    return "\n\n".join(part for part in tables if part)


def _front_end(busy: float) -> str:
    """How busy the front end is, from where it is felt."""
    advice = ", which limits: --stream-interval, or a further API server, spares it" if busy >= FRONT_END_LIMITS else ""
    return f"; the front end streams tokens {busy:.0%} of the time{advice}" if busy >= FRONT_END_FELT else ""


def _candidates(plan: Plan) -> str:
    if not plan.candidates:
        return ""
    shown = plan.candidates[:CANDIDATES_SHOWN]
    left = len(plan.candidates) - len(shown)
    s = plan.scenario
    title = f"Candidates, fewest GPUs first ({s.model}, {s.isl}/{s.osl} tokens, at the highest load inside the limits)"
    sure = any(c.confidence is not None for c in plan.candidates)
    header = (*COLUMNS, *(CONFIDENCE if sure else ()), *LATENCIES)
    spare = tuple(header.index(name) for name in SPARE)
    lines = [wrapped(title, "", "  "), table(header, [_candidate(c, sure=sure) for c in shown], spare=spare)]
    lines += [f"… and {left} more (--json has them all)"] if left > 0 else []
    lines += [wrapped(SURE, "", "  ")] if sure else []
    lines += [wrapped(MARKED, "", "  ")] if any(c.marks for c in plan.candidates) else []
    return "\n".join(lines)


def _candidate(c: Candidate, *, sure: bool) -> tuple[str, ...]:
    return (
        c.gpu,
        c.precision,
        "".join((f"{c.tp}{f'×{c.pp}' if c.pp > 1 else ''}", *(f" {name}{n}" for name, n in c.parallelism.further.items()))),
        c.engine + ("*" if c.marks else ""),
        number(c.requests_per_second_per_instance),
        number(c.requests_per_second_per_8_gpus),
        number(c.systems_exact),
        str(c.systems),
        *(_sure(c) if sure else ()),
        number(c.ttft_ms.p95),
        number(c.tpot_ms.mean),
        number(c.e2e_ms.mean),
        bound_text(c.binds),
    )


def _sure(c: Candidate) -> tuple[str, str]:
    """The chance that its systems meet the limits, and how many do with 95 %."""
    if c.confidence is None:
        return "–", "–"
    most = c.confidence.systems["95"]
    return f"{c.confidence.meets:.0%}", "none" if most is None else str(most)


def _rejected(plan: Plan) -> str:
    """Deployments of one GPU with one reason share a row."""
    groups: dict[tuple[str, str], list[str]] = {}
    for r in plan.rejected:
        groups.setdefault((r.gpu, reason_text(r.reason)), []).append(f"{r.precision} {r.parallelism} {r.engine}")
    if not groups:
        return ""
    rows = [(gpu, ", ".join(which), reason) for (gpu, reason), which in groups.items()]
    left = sum(len(which) for which in list(groups.values())[REJECTED_SHOWN:])
    more = f"\n… and {left} more (--json has them all)" if left > 0 else ""
    return f"Rejected\n{table(('GPU', 'deployments', 'reason'), rows[:REJECTED_SHOWN])}{more}"


def _percentile(plan: Plan) -> str:
    answer = plan.percentile_answer
    if answer is None:
        return ""
    ways = (
        (f"percentile: {answer.peak_requests_per_second:g}/s over a closed loop", answer.systems_exact, answer.systems),
        (
            f"simulation: {arrivals_text(answer)} at {answer.mean_requests_per_second:g}/s (decides)",
            answer.simulated_systems_exact,
            answer.simulated_systems,
        ),
    )
    rows = [(way, number(exact), str(systems)) for way, exact, systems in ways]
    return f"Two ways to size for a mean\n{table(('way', 'systems exactly', 'systems'), rows)}\n{wrapped(percentile_text(answer))}"
