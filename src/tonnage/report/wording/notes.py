"""What a reader must know about the numbers of a plan, one sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tonnage.plan import note as notes
from tonnage.report.numbers import number, percent, plain, whole
from tonnage.report.wording.fleet_check import fleet_check_text
from tonnage.report.wording.limits import limit_text
from tonnage.report.wording.routers import NAMES
from tonnage.results.invalid_runs import InvalidRun

if TYPE_CHECKING:
    from tonnage.plan.plan import Plan
    from tonnage.spec.scenario import Mode

MODES: dict[Mode, str] = {
    "streaming": "Streaming, so the time to the first token and the pace count",
    "sequential": "Sequential, so only the time to the whole answer counts",
    "offline": "Offline, so only throughput counts",
}
PARTS = {
    "system_prompt": "system prompt",
    "retrieved": "retrieved passages",
    "history": "chat history",
    "shared_prefix": "shared prefix",
}
ENGLISH = 0.75
"""Words of a token in English."""


def note_texts(plan: Plan) -> tuple[str, ...]:
    """Every note of a plan."""
    return tuple(note_text(note) for note in plan.notes)


def fleet_check_note(plan: Plan) -> str:
    """The verdict of the fleet check as a note of its own; "" where there was none."""
    return "" if plan.fleet_check is None else f"Fleet check: {fleet_check_text(plan.fleet_check)}."


def _per_token(note: notes.LengthInWords | notes.LengthInCharacters) -> str:
    """How many words or characters a token was counted as."""
    if isinstance(note, notes.LengthInCharacters):
        return f", at about {plain(note.characters_per_token)} characters a token (English); count yours with the model's tokenizer"
    return f" at {plain(note.words_per_token)} words a token{' (English)' if note.words_per_token == ENGLISH else ''}"


def note_text(note: notes.Note) -> str:
    """One note as a sentence."""
    if isinstance(note, Measured):
        return _measured(note)
    match note:
        case notes.UseCaseDefaults():
            return f"The use case {note.use_case} sets: {', '.join(_settings(note))}."
        case notes.LengthInWords() | notes.LengthInCharacters():
            return f"{note.which.upper()} of {note.written} is {whole(note.tokens)} tokens{_per_token(note)}."
        case notes.LengthsVary():
            return (
                f"Lengths vary by ±{percent(note.share)} around the {' and '.join(which.upper() for which in note.which)} given, which is "
                "assumed; give the real spread, or exact: before a number for requests that are equal."
            )
        case notes.PromptParts():
            sums = [f"{f'{p.count} × ' if p.count > 1 else ''}{whole(p.tokens)} {PARTS[p.part]}" for p in note.parts]
            return f"Every prompt is {note.tokens:,} tokens longer than what is asked: {' + '.join(sums)}."
        case notes.Routed():
            return _routed(note)
        case notes.RestsOn():
            return f"The chosen prediction rests in part on: {'; '.join(note.marks)}."
        case notes.LimitsDoNotCount():
            return f"{MODES[note.mode]}: {', '.join(map(limit_text, note.limits))} does not count."
        case notes.KnobsChanged():
            changed = ", ".join(f"{each.knob} {each.default} → {each.chosen}" for each in note.changes)
            return f"The choice runs with knobs other than the engine's own: {changed}."
        case notes.FrontEnds():
            return _front_ends(note)
        case notes.QueuedFromStart() | notes.NoLimit():
            return _no_limit(note)
        case _:
            assert_never(note)


Measured = notes.BenchmarkAsMeasured | notes.PointsLeftOut | notes.GpusNotMeasured | notes.UnsteadyPoints | notes.InvalidRun


def _measured(note: Measured) -> str:
    match note:
        case notes.BenchmarkAsMeasured():
            return (
                "Throughput and latencies are those of the benchmark at the chosen load: nothing is interpolated, no queue is simulated, "
                "and the peak is spread evenly over the instances."
            )
        case notes.PointsLeftOut():
            return f"{note.left_out} of {note.points} points are of other models, lengths or deployments and were left out."
        case notes.GpusNotMeasured():
            return f"The benchmark holds no point of {', '.join(note.gpus)}, which was asked for."
        case notes.InvalidRun():
            return InvalidRun(run=note.run, why=note.why, counts=note.counts).sentence
        case notes.UnsteadyPoints():
            plural = "s" if note.first_clients > 1 else ""
            return (
                f"{note.unsteady} of {note.points} points were not steady (requests/s × E2E below {note.threshold} × clients): their "
                f"throughput is understated; the first: closed loop of {whole(note.first_clients)} client{plural} at TP {note.first_tp}."
            )
        case _:
            assert_never(note)


def _no_limit(note: notes.QueuedFromStart | notes.NoLimit) -> str:
    """Why no latency decides."""
    if isinstance(note, notes.QueuedFromStart):
        return "All requests are queued from the start; no latency limit counts."
    decides = "so the highest throughput measured decides" if note.measured else "so only saturation bounds the load"
    return f"No latency limit was given, {decides}."


def _routed(note: notes.Routed) -> str:
    """How the requests of a fleet come to its instances."""
    router = NAMES.get(note.router, note.router)
    if note.together == 1:
        return (
            f"Requests come to each instance by itself behind {router}: what one carries is found with one; then the whole fleet is "
            "simulated."
        )
    return (
        f"The number of systems is for instances behind {router}, which every deployment needs: what one carries is found with "
        f"{note.together} simulated together, then the whole fleet is."
    )


def _front_ends(note: notes.FrontEnds) -> str:
    """How many processes stream the tokens of an instance, and what one of them could."""
    most = number(note.requests_per_second_of_one)
    named = f" ({note.setting} {note.front_ends})" if note.setting and note.front_ends > 1 else ""
    if note.front_ends > 1:
        return f"Every instance is taken to run {note.front_ends} API servers{named}: one can stream {most} requests/s."
    told = f" ({note.setting})" if note.setting else ""
    return (
        f"Every instance is taken to run one API server, which can stream {most} requests/s and so ends its load at "
        f"{number(note.requests_per_second)}: several of them{told} would carry more."
    )


def _settings(note: notes.UseCaseDefaults) -> list[str]:
    """What a use case set."""
    found = [] if note.mode is None else [f"mode {note.mode}"]
    question = "question" if note.parts else "ISL"
    found += [f"{name} {tokens} tokens" for name, tokens in ((question, note.isl), ("OSL", note.osl)) if tokens]
    found += [f"{PARTS[one.part]} {one.written} tokens" for one in note.parts]
    return found + [limit_text(limit) for limit in note.limits]
