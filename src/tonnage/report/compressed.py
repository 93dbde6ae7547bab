"""A checkpoint that ``compress`` wrote, next to its original, as a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tonnage.formats.lm_eval import TASKS
from tonnage.report.document import Document, Table, items, section
from tonnage.report.numbers import ABSENT
from tonnage.spec.catalog.accuracy import accuracy_and_calibration, published_loss
from tonnage.spec.precision import find_precision


def compressed(folder: str, manifest: Mapping[str, Any]) -> Document:
    """Sizes, quality on each text, the matrices that changed most, and what to type next."""
    figures = manifest["figures"]
    told = [
        f"{manifest['format']} by {manifest['tool']['name']} {manifest['tool']['version']}: "
        f"{manifest['bytes'] / 1e6:,.1f} MB of weights, {manifest['bytes'] / manifest['original_bytes']:.0%} of the original's."
    ]
    errors = sorted(figures.get("weight_errors", {}).items(), key=lambda one: -one[1])
    if errors:
        told.append(f"{len(errors)} matrices differ; relative error at most {errors[0][1]:.2%} ({errors[0][0]}).")
    impact, _ = accuracy_and_calibration(find_precision(manifest["precision"]))
    if impact:
        told.append(f"Published for the format: accuracy impact {impact}; tonnage catalog precisions has the sources.")
    rows = tuple(
        (
            name.replace("_", " "),
            f"{one['tokens']:,}",
            f"{one['perplexity_original']:.4g}",
            f"{one['perplexity']:.4g}",
            f"{one['top1_agreement']:.1%}",
            f"{one['kl_nats']:.3g}",
        )
        for name in ("calibration", "held_back")
        if (one := figures.get(name))
    )
    header = ("text", "tokens", "perplexity before", "after", "same top token", "KL divergence, nats")
    tasks = f"--tasks {','.join(TASKS.values())} --confirm_run_unsafe_code --output_path results"
    following = (
        f"HF_ALLOW_CODE_EVAL=1 lm_eval --model vllm --model_args pretrained={folder} {tasks}   where the GPU is; for the original too",
        f"tonnage compress {manifest['original']} --output {folder} --lm-eval results/original results/made   reads what it found",
        f"tonnage size … --model {manifest['original']}/config.json,{folder}/config.json   what the loss buys",
    )
    quality = Table(caption="", header=header, rows=rows) if rows else items(("Without --text no perplexity was measured.",), "note")
    return Document(
        title=f"{folder} is written",
        subtitle="",
        sections=(
            section("made", "", items(tuple(told))),
            section("quality", "", quality, *_tasks(manifest)),
            section("next", "", items(following, "note")),
        ),
    )


def _tasks(manifest: Mapping[str, Any]) -> tuple[Table, ...]:
    """The tasks of lm-evaluation-harness next to the losses that are published for the format; none where they were not run."""
    named = {task: benchmark for benchmark, task in TASKS.items()}
    rows = []
    for task, one in manifest["figures"].get("tasks", {}).items():
        known = published_loss(find_precision(manifest["precision"]), manifest["parameters"], named[task]) if task in named else None
        loss = 1 - one["made"] / one["original"] if one["original"] else 0.0
        error = math.hypot(one["error"], one["original_error"]) / one["original"] if one["original"] else 0.0
        verdict = "none is published" if known is None else "more than published" if 100 * (loss - 2 * error) > known[1] else "as published"
        rows.append(
            (
                *(task, one["metric"], *(f"{one[key]:.2%}" for key in ("original", "made"))),
                *(f"{loss:.2%} ± {2 * error:.2%}", ABSENT if known is None else f"{known[1]:g}% ({known[0]})", verdict),
            )
        )
    header = ("task", "metric", "before", "after", "loss", "published for the format", "verdict")
    note = "Losses are relative to the original, ± two standard errors. The published loss is that of the model nearest in size."
    return (Table(caption="lm-evaluation-harness", header=header, rows=tuple(rows), note=note),) if rows else ()
