"""Facts as documents: entries of the catalog, number formats, memory, profiles of a machine,
compressed checkpoints.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tonnage.formats.lm_eval import TASKS
from tonnage.report.document import Document, Facts, Lines, Section, Table, document, items, section
from tonnage.report.numbers import ABSENT
from tonnage.spec.catalog import find_engine
from tonnage.spec.catalog.accuracy import accuracy_and_calibration, published_loss
from tonnage.spec.precision import find_precision

if TYPE_CHECKING:
    from tonnage.serve.launch import Start, Started
    from tonnage.serve.machine import Machine
    from tonnage.serve.profiles import Profile
    from tonnage.sizing.precisions import FormatGain
    from tonnage.spec.deployment import Deployment

# By kind, the fields that are shown
COLUMNS = {
    "models": (
        "name",
        "parameters_billions",
        "layers",
        "hidden",
        "kv_heads",
        "experts",
        "max_context",
        "source",
    ),
    "checkpoints": ("model", "repository", "format", "engines", "licence", "gated", "source"),
    "gpus": (
        *(
            "name",
            "arch",
            "fp16_tflops",
            "fp8_tflops",
            "int8_tops",
            "fp4_tflops",
            "memory_gb",
            "memory_bandwidth_gb_s",
        ),
        *("link", "tdp_w", "source"),
    ),
    "systems": ("name", "gpu", "gpus", "max_power_w", "source"),
    "engines": ("name", "family", "since", "notes"),
    "quality": ("model", "benchmark", "score", "setting", "date", "source"),
    "lengths": (
        "name",
        "about",
        "use_cases",
        "requests",
        "isl_mean",
        "isl_cv",
        "osl_mean",
        "osl_cv",
        "date",
        "source",
    ),
}
# The columns that are not called as their fields
CALLED = {
    "parameters_billions": "billion parameters",
    "kv_heads": "KV heads",
    "max_context": "max context",
    "engines": "read by",
    "fp16_tflops": "FP16 TFLOPS",
    "fp8_tflops": "FP8 TFLOPS",
    "int8_tops": "INT8 TOPS",
    "fp4_tflops": "FP4 TFLOPS",
    "memory_gb": "memory GB",
    "memory_bandwidth_gb_s": "GB/s",
    "tdp_w": "TDP W",
    "gpu": "GPU",
    "gpus": "GPUs",
    "max_power_w": "max power W",
    "score": "%",
    "use_cases": "use cases",
    "isl_mean": "ISL",
    "isl_cv": "CV",
    "osl_mean": "OSL",
    "osl_cv": "CV of OSL",
    "date": "of",
}
TITLES = {
    "models": "Models",
    "checkpoints": "Published checkpoints",
    "gpus": "GPUs",
    "systems": "Systems",
    "engines": "Engines",
    "quality": "Published quality",
    "lengths": "Recorded lengths, in tokens, and their standard deviation over the mean (CV)",
}
# By kind of price, the title of its table and what its first column is called
PRICES = {
    "general": ("Prices and rules of every cost", "price"),
    "system": ("Systems, USD to buy one", "system"),
    "gpu": ("GPUs without a server, USD to buy one", "GPU"),
    "cloud": ("{} in a cloud, USD per GPU and hour", "offer"),
    "api": ("APIs, USD per million tokens", "model"),
}

SPARED = ("source", "max power W", "TDP W", "hidden", "layers", "since", "FP4 TFLOPS", "INT8 TOPS")
LONGEST = 60  # characters of a cell; what is longer is cut short between words
CUT = "Texts that end in … are cut short; --json prints all of them."

SHORT = 40  # characters of the source of a price, beside which an offer needs its room


def catalogued(entries_by_kind: Mapping[str, Sequence[Mapping[str, Any]]]) -> Document:
    """The entries of each kind as rows; kinds without an entry are left out."""
    shown = {
        kind: entries for kind, entries in entries_by_kind.items() if entries and kind in TITLES
    }
    sections = [
        section(kind, f"{TITLES[kind]} ({len(entries)})", _table(kind, entries))
        for kind, entries in shown.items()
    ]
    return document(*sections, *_prices(entries_by_kind.get("prices", ())))


def _prices(prices: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """One table for each kind of price, and of clouds one for each GPU."""
    for kind, (title, first) in PRICES.items():
        of_kind = [price for price in prices if price["kind"] == kind]
        groups = (
            dict.fromkeys(price["name"] for price in of_kind) if kind == "cloud" else {"": None}
        )
        for group in groups:
            shown = [price for price in of_kind if group in ("", price["name"])]
            if shown:
                yield section(
                    f"{kind}-{group}",
                    f"{title.format(group)} ({len(shown)})",
                    _price_table(first, shown),
                )


def _price_table(first: str, prices: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each price, with its range, its day and its source; estimates are marked."""
    rows = []
    for price in prices:
        low, high, kind, unit = price["low"], price["high"], price["kind"], str(price["unit"])
        # elsewhere the title says it
        what = unit.removeprefix("USD per million ") if kind in ("api", "general") else ""
        usd = f"{price['value']:,.10g}{' (estimate)' if price['estimate'] else ''}"
        between = ABSENT if low == high else f"{low:,.10g} to {high:,.10g}"
        rows.append(
            (
                price["offer"] or price["name"],
                what,
                usd,
                between,
                price["date"],
                _cell(price["source"], SHORT),
            )
        )
    header = (first, "of what", "price", "range", "date", "source")
    return Table(header=header, rows=tuple(rows), spare=("range",)).filled()


def _table(kind: str, entries: Sequence[Mapping[str, Any]]) -> Table:
    rows = tuple(tuple(_cell(entry.get(field)) for field in COLUMNS[kind]) for entry in entries)
    header = tuple(CALLED.get(field, field) for field in COLUMNS[kind])
    cut = any(
        cell.endswith("…")
        for row in rows
        for name, cell in zip(header, row, strict=True)
        if name not in SPARED
    )
    return Table(header=header, rows=rows, spare=SPARED, note=CUT if cut else "")


def _cell(value: object, longest: int = LONGEST) -> str:
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = ", ".join(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if len(text) <= longest:
        return text
    head = text[:longest].rsplit(" ", 1)[0] if " " in text[:longest] else text.partition(" ")[0]
    return text if head == text else f"{head} …"


# accuracy impact and calibration of the format that the model itself is published in
NATIVE = "none"

SPARED_FORMATS = ("KV", "GB/GPU", "prompt")


def formats(base: Deployment, gains: tuple[FormatGain, ...]) -> Document:
    """Gains with the published words, then the formats with the hardware that does them."""
    from tonnage.sizing.precisions import ISL, LARGE, OSL, SMALL

    small, large = (" and ".join(map(str, batches)) for batches in (SMALL, LARGE))
    where = f"{base.model.name} on {base.parallelism.tp} × {base.gpu.name}, {base.engine}"
    title = (
        f"Predicted speed over 16 bits, {where}: of an output token at batch {small}; of whole"
        f" requests of {ISL:,} + {OSL} tokens at batch {large}; of a prompt. The words are"
        " published: at batch 4 and less, and at 16 and more."
    )
    lacking = tuple(f"{gain.precision.name}: {gain.lacks}" for gain in gains if gain.lacks)
    return document(
        section("gains", "", _gains(gains)),
        section("hardware", "", _hardware(gains), items(lacking, "note")),
        title=title,
    )


def _gains(gains: tuple[FormatGain, ...]) -> Table:
    from tonnage.sizing.precisions import LARGE, SMALL

    header = (
        "format",
        "GB/GPU",
        "KV",
        *(f"token at {b}" for b in SMALL),
        *(f"run at {b}" for b in LARGE),
        "prompt",
    )
    return Table(
        header=(*header, "said ≤ 4", "said ≥ 16", "accuracy impact", "calibration"),
        rows=tuple(_gain(gain, SMALL, LARGE) for gain in gains),
        spare=SPARED_FORMATS,
        note="\n".join(_unfitted(gains)),
    )


def _gain(gain: FormatGain, small: tuple[int, ...], large: tuple[int, ...]) -> tuple[str, ...]:
    publication = gain.published[-1] if gain.published else None
    words = (
        ("",) * 4
        if publication is None
        else (
            publication.gain_small,
            publication.gain_large,
            publication.accuracy_impact,
            publication.calibration,
        )
    )
    words = (*words[:2], NATIVE, NATIVE) if gain.native else words
    gains = [ABSENT] * (len(small) + len(large) + 1)
    if gain.gain is not None:
        values = (
            *(gain.gain.token[b] for b in small),
            *(gain.gain.run[b] for b in large),
            gain.gain.prompt,
        )
        gains = [f"{value:.2f}" for value in values]
    name = gain.precision.name + ("*" if gain.unfitted else "")
    return (
        name,
        f"{gain.weight_gb:.1f}",
        gain.precision.kv,
        *gains,
        *(word or ABSENT for word in words),
    )


def _unfitted(gains: tuple[FormatGain, ...]) -> list[str]:
    """Which formats rest on priors, those with one source together."""
    sources: dict[str, list[str]] = {}
    for gain in gains:
        for name, source in gain.unfitted:
            sources.setdefault(source, []).append(name)
    return [
        f"* {', '.join(dict.fromkeys(names))}: not fitted; {source}"
        for source, names in sources.items()
    ]


def _hardware(gains: tuple[FormatGain, ...]) -> Table:
    from tonnage.spec.catalog import gpus

    generations = {gpu.arch for gpu in gpus()}
    rows = []
    for gain in gains:
        p = find_precision(gain.precision.name)
        multiplied = (
            f"{'unpacked to' if p.unpacked else 'as'}"
            f" {p.arithmetic.upper()}{', half of the products' if p.sparse else ''}"
        )
        if p.experts_only:
            multiplied = "experts alone: as FP8 on units with FP4, else unpacked to FP16"
        hardware = (
            "every GPU of the catalog"
            if set(gain.generations) == generations
            else ", ".join(gain.generations)
        )
        hardware += "" if p.sparse else _unpacked_on(p.weight_format)
        rows.append((p.name, f"{p.weight_bits:.3g}", multiplied, hardware))
    return Table(header=("format", "bits", "multiplied", "hardware"), rows=tuple(rows))


def _unpacked_on(form: str) -> str:
    """The generations without units for a format on which engines unpack it, and these engines."""
    engines: dict[str, list[str]] = {}
    for engine in (find_engine("vllm"), find_engine("sglang")):
        for pair in engine.unpacks:
            name, _, arch = pair.partition(" ")
            if name == form:
                engines.setdefault(arch, []).append(engine.name)
    archs: dict[str, list[str]] = {}
    for arch, names in engines.items():
        archs.setdefault(" and ".join(names), []).append(arch)
    return "".join(
        f"; on {', '.join(where)} unpacked to FP16 by {names}" for names, where in archs.items()
    )


def memory(equations: Sequence[str]) -> Document:
    """The arithmetic of one GPU's memory."""
    return document(section("memory", "", items(tuple(equations))))


LEGEND = (
    "A runnable profile holds a request of the model's whole context, or of --max-model-len; GB are"
    " those that each GPU must have for that. The first one with a checkpoint is what --engine auto"
    " starts."
)
STARTING_TITLES = {
    "runnable": "Runs here",
    "low memory": "Runs here with a shorter context",
    "incompatible": "Does not run here",
}


def listing(machine: Machine, profiles: Sequence[Profile]) -> Document:
    """The profiles of a machine, first the ones that run here."""
    sections = []
    for kind, title in STARTING_TITLES.items():
        these = [profile for profile in profiles if profile.kind == kind]
        width = max((len(profile.name) for profile in these), default=0)
        sections.append(
            section(
                kind,
                title if these else "",
                Lines("\n".join(_line(profile, width) for profile in these)) if these else None,
            )
        )
    return document(
        *sections,
        section("notes", "", items((LEGEND, *machine.notes), "note")),
        title=machine.label,
    )


def _line(profile: Profile, width: int) -> str:
    """Such as "  vllm-fp8-tp1-pp1-throughput   24 GB  owner/name"."""
    needs = f"{profile.needs_bytes / 1e9:,.0f} GB" if profile.needs_bytes else ""
    context = f"--max-model-len {profile.context}: " if profile.kind == "low memory" else ""
    detail = (
        f"{context}{profile.why}"
        if profile.why
        else profile.checkpoint or f"name a --checkpoint in {profile.precision}"
    )
    return f"  {profile.name.ljust(width)}  {needs:>8}  {detail}"


def starting(machine: Machine, start: Start) -> Document:
    """Report what would be started."""
    import yaml

    facts = Facts(
        (
            ("machine", machine.label),
            ("engine", start.engine),
            ("served as", start.model),
            ("chosen", start.why),
        )
    )
    sections = [section("choice", "", facts)]
    for place, started in enumerate(start.instances):
        numbers = ", ".join(str(device.index) for device in started.devices)
        gpus = (
            f"{'GPU' if len(started.devices) == 1 else 'GPUs'} {numbers}"
            if started.devices
            else "no GPU"
        )
        heading = (
            f"instance {place}: {gpus}, port {started.port}, ready when {started.path} answers"
        )
        sections.append(section(f"instance-{place}", heading, Lines(_command(started))))
    file = (
        textwrap.indent(yaml.safe_dump(dict(start.file), sort_keys=False).rstrip(), "  ")
        if start.file
        else ""
    )
    shown = section("file", "engine.yaml", Lines(file)) if file else section("file", "")
    return document(*sections, shown, section("notes", "", items(start.notes, "note")))


def _command(instance: Started) -> str:
    """The environment, then the command with one flag a line."""
    words = [f"{name}={shlex.quote(value)}" for name, value in instance.environment.items()]
    lines, line = [" ".join(words)] if words else [], ""
    for word in instance.argv:
        if word.startswith("--") and line:
            lines.append(line)
            line = ""
        line = f"{line} {shlex.quote(word)}".strip()
    return " \\\n".join(
        f"  {text}" if not place else f"    {text}" for place, text in enumerate([*lines, line])
    )


def compressed(folder: str, manifest: Mapping[str, Any]) -> Document:
    """Sizes, quality on each text, the matrices that changed most, and what to type next."""
    figures = manifest["figures"]
    sentences = [
        f"{manifest['format']} by {manifest['tool']['name']} {manifest['tool']['version']}:"
        f" {manifest['bytes'] / 1e6:,.1f} MB of weights,"
        f" {manifest['bytes'] / manifest['original_bytes']:.0%} of the original's."
    ]
    errors = sorted(figures.get("weight_errors", {}).items(), key=lambda pair: -pair[1])
    if errors:
        sentences.append(
            f"{len(errors)} matrices differ; relative error at most {errors[0][1]:.2%}"
            f" ({errors[0][0]})."
        )
    impact, _ = accuracy_and_calibration(find_precision(manifest["precision"]))
    if impact:
        sentences.append(
            f"Published for the format: accuracy impact {impact}; tonnage catalog precisions has"
            " the sources."
        )
    form = (
        "{tokens:,}|{perplexity_original:.4g}|{perplexity:.4g}|{top1_agreement:.1%}|{kl_nats:.3g}"
    )
    judged = {
        name.replace("_", " "): figures[name]
        for name in ("calibration", "held_back")
        if figures.get(name)
    }
    rows = tuple(
        (name, *form.format_map(text_figures).split("|")) for name, text_figures in judged.items()
    )
    header = (
        "text",
        "tokens",
        "perplexity before",
        "after",
        "same top token",
        "KL divergence, nats",
    )
    tasks = f"--tasks {','.join(TASKS.values())} --confirm_run_unsafe_code --output_path results"
    following = (
        (
            f"HF_ALLOW_CODE_EVAL=1 lm_eval --model vllm --model_args pretrained={folder} {tasks}  "
            " where the GPU is; for the original too"
        ),
        (
            f"tonnage compress {manifest['original']} --output {folder} --lm-eval results/original"
            " results/made   reads what it found"
        ),
        (
            f"tonnage size … --model {manifest['original']}/config.json,{folder}/config.json   what"
            " the loss buys"
        ),
    )
    quality = (
        Table(header=header, rows=rows)
        if rows
        else items(("Without --text no perplexity was measured.",), "note")
    )
    return document(
        section("made", "", items(tuple(sentences))),
        section("quality", "", quality, *_tasks(manifest)),
        section("next", "", items(following, "note")),
        title=f"{folder} is written",
    )


def _tasks(manifest: Mapping[str, Any]) -> tuple[Table, ...]:
    """The tasks of lm-evaluation-harness next to the losses that are published for the format; none
    where they were not run.
    """
    named = {task: benchmark for benchmark, task in TASKS.items()}
    rows = []
    for task, scores in manifest["figures"].get("tasks", {}).items():
        published = (
            published_loss(
                find_precision(manifest["precision"]), manifest["parameters"], named[task]
            )
            if task in named
            else None
        )
        loss = 1 - scores["made"] / scores["original"] if scores["original"] else 0.0
        error = (
            math.hypot(scores["error"], scores["original_error"]) / scores["original"]
            if scores["original"]
            else 0.0
        )
        verdict = (
            "none is published"
            if published is None
            else "more than published"
            if 100 * (loss - 2 * error) > published[1]
            else "as published"
        )
        rows.append(
            (
                *(task, scores["metric"], *(f"{scores[key]:.2%}" for key in ("original", "made"))),
                *(
                    f"{loss:.2%} ± {2 * error:.2%}",
                    ABSENT if published is None else f"{published[1]:g}% ({published[0]})",
                    verdict,
                ),
            )
        )
    header = ("task", "metric", "before", "after", "loss", "published for the format", "verdict")
    note = (
        "Losses are relative to the original, ± two standard errors. The published loss is that of"
        " the model nearest in size."
    )
    return (
        (Table(caption="lm-evaluation-harness", header=header, rows=tuple(rows), note=note),)
        if rows
        else ()
    )
