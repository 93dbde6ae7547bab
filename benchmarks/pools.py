"""Weights and KV caches that running engines printed at their start, next to what Tonnage says of
them.

    ./benchmark pools [pools.csv]

The rows of ``pools.csv`` are facts from public reports: an engine's version, its deployment, and
what it printed, in GiB of each GPU and in tokens. Those of llm-d-planner#194 are read back from the
percentages and parts of its report (H100 with 79.19 GiB, vLLM 0.19.0): the KV cache is the share of
the memory less weights, activations and what is outside of torch. ``tests/perf/test_memory.py``
asserts the shares that the last lines print.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tonnage.api.question.deployment import deployment_of
from tonnage.perf.memory import MemoryPlan, unchecked_plan
from tonnage.spec.model import Model

ROWS = Path(__file__).with_name("pools.csv")
WEIGHTS, TOKENS, ENOUGH = 0.05, 0.10, 0.85
"""Errors of weights and of tokens that are near, and the share of the rows that is to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One row: what an engine printed, and the plan of the same deployment; None where it did not
    print it.
    """

    version: str
    plan: MemoryPlan
    weights_gib: float | None
    kv_gib: float | None
    kv_tokens: int | None
    source: str

    @property
    def kind(self) -> str:
        """The kind of the model, by what decides its memory."""
        model: Model = self.plan.deployment.model
        if self.plan.state_bytes:
            return "hybrid"
        return (
            "experts"
            if model.is_moe
            else "windows"
            if self.plan.window_bytes_per_token
            else "dense"
        )

    @property
    def planned_gib(self) -> float:
        """The KV cache that is planned, in GiB."""
        return self.plan.kv_budget_bytes / 2**30

    @property
    def planned_tokens(self) -> int:
        """Tokens that it holds: those of requests as long as the engine counted them with, where
        that is all of the context.
        """
        return self.plan.tokens

    @property
    def planned_weights_gib(self) -> float:
        """The weights that are planned, those of encoders included, in GiB."""
        return (self.plan.weight_bytes + self.plan.encoder_bytes) / 2**30

    @property
    def weight_error(self) -> float | None:
        """Predicted over printed weights, less 1."""
        return None if self.weights_gib is None else self.planned_weights_gib / self.weights_gib - 1

    @property
    def token_error(self) -> float | None:
        """The same of the tokens, or where only bytes were printed of these; infinite where the
        engine had no room and the plan has.
        """
        if self.kv_tokens is not None:
            return self.planned_tokens / self.kv_tokens - 1
        if self.kv_gib is None:
            return None
        if self.kv_gib <= 0:
            return 0.0 if self.plan.kv_budget_bytes == 0 else float("inf")
        return self.planned_gib / self.kv_gib - 1


def read(path: Path = ROWS) -> tuple[Printed, ...]:
    """The rows of a file."""
    with path.open(encoding="utf-8", newline="") as lines:
        return tuple(map(_printed, csv.DictReader(lines)))


def _printed(row: dict[str, str]) -> Printed:
    degrees = {name: int(row[name]) for name in ("tp", "dp", "ep")}
    named = {name: row[name] for name in ("model", "gpu", "precision")}
    found = deployment_of(**named, **degrees, engine=f"{row['engine']}-{row['version']}")
    asked = {
        "kv_fraction": row["share"],
        "max_num_tokens": row["step_tokens"],
        "max_batch_size": row["slots"],
    }
    knobs = {
        name: float(text) if name == "kv_fraction" else int(text)
        for name, text in asked.items()
        if text
    }
    return Printed(
        version=f"{row['engine']} {row['version']}",
        plan=unchecked_plan(replace(found, knobs=replace(found.knobs, **knobs))),
        weights_gib=float(row["weights_gib"]) if row["weights_gib"] else None,
        kv_gib=float(row["kv_gib"]) if row["kv_gib"] else None,
        kv_tokens=int(row["kv_tokens"]) if row["kv_tokens"] else None,
        source=row["source"],
    )


def near(errors: Sequence[float | None], most: float) -> str:
    """How many of the errors that are there are at most so large, such as "38 of 40"."""
    there = [error for error in errors if error is not None]
    return f"{sum(abs(error) <= most for error in there)} of {len(there)}"


def lines(rows: Sequence[Printed]) -> Iterator[str]:
    """The table in Markdown, and the counts by kind."""
    yield (
        "| engine | model | GPUs | weights GiB | predicted | KV GiB | predicted | KV tokens |"
        " predicted | off | source |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        d = row.plan.deployment
        weights = (
            ("", "")
            if row.weights_gib is None
            else (f"{row.weights_gib:.2f}", f"{row.planned_weights_gib:.2f}")
        )
        pool = ("", "") if row.kv_gib is None else (f"{row.kv_gib:.2f}", f"{row.planned_gib:.2f}")
        tokens = (
            ("", "") if row.kv_tokens is None else (f"{row.kv_tokens:,}", f"{row.planned_tokens:,}")
        )
        off = "" if row.token_error is None else f"{100 * row.token_error:+.1f} %"
        where = f"{d.parallelism.gpus} × {d.gpu.name}"
        cells = (
            row.version,
            f"{d.model.name} {d.precision.name}",
            where,
            *weights,
            *pool,
            *tokens,
            off,
            row.source,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield f"| kind | weights within {100 * WEIGHTS:g} % | tokens within {100 * TOKENS:g} % |"
    yield "|---|---|---|"
    kinds = {
        kind: [row for row in rows if row.kind == kind]
        for kind in ("dense", "windows", "experts", "hybrid")
    }
    for kind, some in [*kinds.items(), ("all", list(rows))]:
        weights, tokens = (
            near([row.weight_error for row in some], WEIGHTS),
            near([row.token_error for row in some], TOKENS),
        )
        yield f"| {kind} | {weights} | {tokens} |"


def main() -> None:
    """Read the rows and print the table."""
    parser = argparse.ArgumentParser(
        description="Weights and KV caches that engines printed, and as planned"
    )
    parser.add_argument("file", nargs="?", type=Path, default=ROWS)
    print("\n".join(lines(read(parser.parse_args().file))))


if __name__ == "__main__":
    main()
