"""A checkpoint that ``compress`` wrote, next to its original, as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tonnage.report.document import Document, Table, items, section
from tonnage.spec.catalog.accuracy import accuracy_and_calibration
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
    following = (
        f"lm_eval --model vllm --model_args pretrained={folder} --tasks mmlu,gsm8k   judges it on tasks, where the GPU is",
        f"tonnage size … --precision {manifest['precision']}   and without it: what the loss buys",
    )
    quality = Table(caption="", header=header, rows=rows) if rows else items(("Without --text no perplexity was measured.",), "note")
    return Document(
        title=f"{folder} is written",
        subtitle="",
        sections=(section("made", "", items(tuple(told))), section("quality", "", quality), section("next", "", items(following, "note"))),
    )
