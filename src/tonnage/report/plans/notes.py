"""What a plan rests on: its notes and warnings, the course's way of sizing for a mean, and the
definitions.
"""

from __future__ import annotations

from tonnage.errors import option
from tonnage.formats.invalid_runs import InvalidRun
from tonnage.plan import notes
from tonnage.plan.plan import Plan
from tonnage.plan.sensitivity import PercentileAnswer
from tonnage.report.document import Facts, Section, Table, Text, items, section
from tonnage.report.numbers import counted, number, percent, plain, whole
from tonnage.report.plans.fleet import MEMORIES, ROUTERS
from tonnage.report.plans.question import newer_text
from tonnage.spec.scenario import Mode

DEFINITIONS = (
    (
        "TTFT",
        "time to first token: from the moment a request was due to be sent, queueing included",
    ),
    ("ITL", "every single gap between two tokens, all requests pooled"),
    ("TPOT", "time from the first token to the last / (output tokens − 1), one value per request"),
    ("E2E", "time to the last token"),
    ("p95", "95 of 100 are at or below it"),
    ("requests/s inside the limits", "the highest load at which every limit still holds"),
)
MODES: dict[Mode, str] = {
    "streaming": "Streaming, so the time to the first token and the pace count",
    "sequential": "Sequential, so only the time to the whole answer counts",
    "offline": "Offline, so only throughput counts",
}
PARTS = {
    "system_prompt": "system prompt",
    "retrieved": "retrieved passages",
    "history": "chat history",
    "images": "image",
    "shared_prefix": "shared prefix",
}
ENGLISH = 0.75  # words of a token in English


def assumptions_section(plan: Plan, warnings: tuple[str, ...]) -> Section:
    """The notes that are not among the warnings, the warnings for which the first page has no room,
    and the definitions.

    A job has no latency but TPOT: none of the others is defined for it.
    """
    defined = (
        tuple(row for row in DEFINITIONS if row[0] == "TPOT")
        if plan.demand.offline
        else DEFINITIONS
    )
    return section(
        "assumptions",
        "What it rests on",
        items(warnings, "warning"),
        items(tuple(note_text(note) for note in plan.notes if not isinstance(note, notes.Data))),
        *percentile_blocks(plan.percentile_answer),
        Facts(defined),
    )


def percentile_blocks(answer: PercentileAnswer | None) -> tuple[Table, Text] | tuple[()]:
    """The percentile way next to the simulated one, and what the two do; nothing where that was not
    requested.
    """
    if answer is None:
        return ()
    peak, mean = plain(answer.peak_requests_per_second), plain(answer.mean_requests_per_second)
    rows = (
        (
            f"percentile: {peak}/s over a closed loop",
            number(answer.systems_exact),
            str(answer.systems),
        ),
        (
            f"simulation: {arrivals_text(answer)} arrivals at {mean}/s",
            number(answer.simulated_systems_exact),
            str(answer.simulated_systems),
        ),
    )
    header = ("way", "systems exactly", "systems")
    table = Table(
        caption="Two ways to size for a mean", header=header, rows=rows, chosen=1, mark="decides"
    )
    return table, Text(percentile_text(answer))


def arrivals_text(answer: PercentileAnswer) -> str:
    """The simulated arrivals, such as "Poisson"."""
    if answer.process == "gamma":
        return f"gamma (CV {plain(answer.cv)})"
    return "Poisson" if answer.process == "poisson" else "constant"


def percentile_text(answer: PercentileAnswer) -> str:
    """Explain what the two ways to count a percentile do."""
    return (
        f"The percentile way divides the {plain(answer.percentile)}th percentile of the arrivals in"
        f" one second, {plain(answer.peak_requests_per_second)}/s, by the throughput of a closed"
        f" loop of {whole(answer.concurrency_per_instance)} clients,"
        f" {number(answer.requests_per_second_per_instance)}/s an instance: it treats one busy"
        f" second as if it lasted. The simulation sends {arrivals_text(answer)} arrivals at"
        f" {plain(answer.mean_requests_per_second)}/s, the mean of the time that is sized for, lets"
        " queues form and drain, and holds the limits at their percentile; it decides."
    )


def _per_token(note: notes.LengthInWords | notes.LengthInCharacters) -> str:
    """State how many words or characters a token was counted as."""
    if isinstance(note, notes.LengthInCharacters):
        return (
            f", at about {plain(note.characters_per_token)} characters a token (English); count"
            " yours with the model's tokenizer"
        )
    return (
        f" at {plain(note.words_per_token)} words a"
        f" token{' (English)' if note.words_per_token == ENGLISH else ''}"
    )


def quality_text(note: notes.Judged) -> str:
    """State what a compressed checkpoint has lost against its original."""
    tasks = [
        f"{task} {original:.1%} → {compressed:.1%}"
        for task, (original, compressed) in note.scores.items()
    ]
    if note.text:
        text = "" if note.text == "held_back" else " on the calibration text"
        perplexity = f"perplexity {note.perplexity_original:.4g} → {note.perplexity:.4g}{text}"
        tasks += [perplexity, f"same top token {note.top1_agreement:.1%}"]
    if not note.scores and note.like:
        tasks += [f"published MMLU loss {note.loss:g}% ({note.like})"]
    return ", ".join(tasks) or "not judged on any text"


def note_text(note: notes.Note) -> str:
    """Write a note as a sentence."""
    if isinstance(note, notes.Measured):
        return _measured(note)
    if isinstance(note, notes.OfChoice):
        return _of_choice(note)
    match note:
        case notes.ModelRead(model=model):
            return f"{model.name}: {model.reading}."
        case notes.OlderPreset():
            return f"{newer_text(note)}."
        case notes.UseCaseDefaults():
            return f"The use case {note.use_case} sets: {', '.join(_settings(note))}."
        case notes.LengthInWords() | notes.LengthInCharacters():
            return (
                f"{note.which.upper()} of {note.written} is {whole(note.tokens)}"
                f" tokens{_per_token(note)}."
            )
        case notes.LengthsVary() if note.recorded:
            cvs = " and ".join(
                f"{cv:g} of the {which.upper()}"
                for which, cv in zip(note.which, note.cvs, strict=False)
            )
            return (
                f"Lengths are log-normal, as spread as those of recorded {note.recorded} (standard"
                f" deviation over mean: {cvs}; tonnage catalog lengths); {option('spread')} takes"
                " another spread."
            )
        case notes.LengthsVary():
            return (
                f"Lengths vary by ±{percent(note.share)} around the"
                f" {' and '.join(which.upper() for which in note.which)} given, which is assumed;"
                " give the real spread, or exact: before a number for requests that are equal."
            )
        case notes.PromptParts():
            sums = [
                f"{f'{p.count} × ' if p.count > 1 else ''}{whole(p.tokens)} {PARTS[p.part]}"
                for p in note.parts
            ]
            return (
                f"Every prompt is {note.tokens:,} tokens longer than what is asked:"
                f" {' + '.join(sums)}."
            )
        case notes.LimitsDoNotCount():
            return f"{MODES[note.mode]}: {', '.join(map(str, note.limits))} does not count."
        case notes.QueuedFromStart():
            return "All requests are queued from the start; no latency limit counts."
        case notes.NoLimit():
            decides = (
                "so the highest throughput measured decides"
                if note.measured
                else "so only saturation bounds the load"
            )
            return f"No latency limit was given, {decides}."


def data_texts(plan: Plan) -> tuple[str, ...]:
    """Remarks on the measured points of a plan, and on those of a scenario's own benchmarks; one
    sentence each.
    """
    beside = () if plan.measured is None else plan.measured.plan.notes
    return tuple(note_text(note) for note in (*plan.notes, *beside) if isinstance(note, notes.Data))


def _measured(note: notes.Measured) -> str:
    match note:
        case notes.BenchmarkAsMeasured():
            return (
                "Throughput and latencies are those of the benchmark at the chosen load: nothing is"
                " interpolated, no queue is simulated, and the peak is spread evenly over the"
                " instances."
            )
        case notes.PointsLeftOut():
            return (
                f"{note.left_out} of {note.points} points are of other models, lengths or"
                " deployments and were left out."
            )
        case notes.GpusNotMeasured():
            return f"The benchmark holds no point of {', '.join(note.gpus)}, which was asked for."
        case notes.Judged():
            return (
                f"The model is a checkpoint in {note.precision} of {note.original}:"
                f" {quality_text(note)}."
            )
        case notes.InvalidRun():
            return InvalidRun(
                run=note.run, why=note.why, counts=note.counts, option=note.option
            ).sentence
        case notes.UnsteadyPoints():
            plural = "s" if note.first_clients > 1 else ""
            return (
                f"{note.unsteady} of {note.points} points were not steady (requests/s × E2E below"
                f" {note.threshold} × clients): their throughput is understated; the first: closed"
                f" loop of {whole(note.first_clients)} client{plural} at TP {note.first_tp}."
            )


def _of_choice(note: notes.OfChoice) -> str:
    match note:
        case notes.Routed(router=name, together=1):
            alone = (
                f"Requests come to each instance by itself behind {ROUTERS.get(name, name)}: what"
                " one carries is found with one"
            )
            return f"{alone}; then the whole fleet is simulated."
        case notes.Routed(router=name, together=together):
            behind = f"The number of systems counts on instances behind {ROUTERS.get(name, name)}"
            return (
                f"{behind}: what one carries is found with {together} simulated together, then the"
                " whole fleet is."
            )
        case notes.RestsOn():
            return f"The chosen prediction rests in part on: {'; '.join(note.marks)}."
        case notes.KnobsChanged():
            changed = ", ".join(
                f"{change.knob} {change.default} → {change.chosen}" for change in note.changes
            )
            return f"The choice runs with knobs other than the engine's own: {changed}."
        case notes.TiersNotStarted():
            memories, who = (
                " and ".join(MEMORIES.get(tier, tier) for tier in note.tiers),
                note.offloader or "it",
            )
            return (
                f"The plan counts on {memories} below the KV cache, which the command does not"
                f" switch on: set {who} up as well."
            )
        case notes.FrontEnds():
            rate = number(note.requests_per_second_of_one)
            if note.front_ends > 1:
                named = f" ({note.setting} {note.front_ends})" if note.setting else ""
                return (
                    f"Every instance is taken to run {note.front_ends} API servers{named}: one can"
                    f" serve {rate} requests/s."
                )
            ends = f"and so ends its load at {number(note.requests_per_second)}"
            setting = f" ({note.setting})" if note.setting else ""
            return (
                f"Every instance is taken to run one API server, which can serve {rate} requests/s"
                f" {ends}: several of them{setting} would carry more."
            )


def _settings(note: notes.UseCaseDefaults) -> list[str]:
    settings = [] if note.mode is None else [f"mode {note.mode}"]
    question = "question" if note.parts else "ISL"
    settings += [
        f"{name} {tokens} tokens"
        for name, tokens in ((question, note.isl), ("OSL", note.osl))
        if tokens
    ]
    settings += [f"{PARTS[part.part]} {part.written} tokens" for part in note.parts]
    return settings + [str(limit) for limit in note.limits]


def warning_text(warning: notes.Warning) -> str:
    """Write a warning with its numbers."""
    match warning:
        case notes.PcieForLargeModel():
            return (
                f"{warning.model} has {whole(warning.parameters / 1e9)} billion parameters and"
                f" {warning.gpu} joins its GPUs by PCIe: all-reduces take {percent(warning.value)}"
                " of a decode step; above 13 billion prefer NVLink"
            )
        case notes.WideOverPcie():
            share = f"all-reduces take {percent(warning.value)} of a decode step"
            path = f"{number(warning.link_gb_s)} GB/s " + (
                "through the host's memory" if warning.staged else "between the cards"
            )
            return (
                f"TP {warning.tp} over PCIe on {warning.gpu}: {share}, by {path}; measure, or"
                " prefer one larger card"
            )
        case notes.LengthToShorten():
            side, other_side = (
                ("prompts", "answers") if warning.which == "isl" else ("answers", "prompts")
            )
            share = f"{abs(100 * warning.change):.0f}% shorter"
            return (
                f"shorten {side} first: {share} {side} save {counted(warning.gpus, 'GPU')}"
                f" ({number(warning.saved)} systems before rounding), {share} {other_side}"
                f" {number(warning.other_saved)}"
            )
        case notes.LimitHalvesThroughput():
            return (
                f"{warning.limit} holds an instance to {number(warning.requests_per_second)}"
                " requests/s; without it, it carries"
                f" {number(warning.requests_per_second_without)}, {warning.value:.1f} times as many"
            )
        case notes.BurstyTrace():
            return (
                f"the trace's gaps have a coefficient of variation of {number(warning.value)}: a"
                f" Poisson peak of its mean, {plain(warning.poisson_peak)} requests in a second, is"
                f" too low where {warning.peak_second} came"
            )
        case notes.SmallerModel():
            return (
                f"{warning.other}, with {number(warning.other_parameters / 1e9)} billion parameters"
                f" to {number(warning.parameters / 1e9)}, publishes {plain(warning.other_score)} in"
                f" {warning.benchmark} ({warning.setting}) to the {plain(warning.score)} of"
                f" {warning.model}: see whether it does"
            )
        case notes.CacheOfCheckpoint():
            return (
                f"the plan counts a KV cache of 16 bits, but {warning.engine} has no flag against"
                f" the 8 bits that {warning.checkpoint} declares: take kv_cache_quant_algo out of"
                " its hf_quant_config.json, or plan without +kv-fp16"
            )
