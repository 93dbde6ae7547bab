"""What ``tonnage workload fit`` wrote, as a document: how the traffic is reproduced, and the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.report.blocks import items, section
from tonnage.report.described import distribution_words, process_words
from tonnage.report.document import Command, Document

if TYPE_CHECKING:
    from tonnage.workload.fit import Fit

KEPT = {
    "pairs": "The lengths are drawn in pairs from those that were seen: prompts and outputs are correlated.",
    "weights": "Lengths that no distribution fits within 10 % are drawn from those that were seen.",
    "distributions": "Prompts and outputs are drawn from these distributions, each by itself.",
}


def fitted(found: Fit, output: Path | None) -> Document:
    """How well each part fits, what stands in the scenario, and how to go on."""
    described = found.description
    lines = (
        distribution_words("ISL", described.fitted_isl),
        distribution_words("OSL", described.fitted_osl),
        KEPT[found.lengths],
        process_words(described.fitted_arrivals),
    )
    beside = f", and beside it {', '.join(sorted(found.files))}" if found.files else ""
    wrote = items((f"Written: {output}{beside}.",)) if output is not None else None
    trace = described.fitted_arrivals.process == "trace"
    model = "" if found.scenario.model else " --model llama-3.1-8b"
    rate = "" if trace else f" --request-rate {found.scenario.demand.peak_rps:g}"
    go_on = Command(text=f"tonnage simulate {output}{model}{rate}") if output is not None else None
    return Document(title="", subtitle="", sections=(section("fit", "", items(lines), wrote, go_on),))
