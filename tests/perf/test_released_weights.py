"""Weights as published: the totals of ``models.csv`` times the bytes of the released format, scales included, within 3 %."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tonnage.api import deployment_of
from tonnage.perf.memory import weight_bytes
from tonnage.spec.catalog import models
from tonnage.spec.precision import find_precision

SIZES = Path(__file__).resolve().parents[3] / "shared" / "data" / "modern" / "models.csv"
TABLES = 2.0
"""Bytes of a weight of embeddings, output head and router, which checkpoints keep in 16 bits."""

# bytes of a weight in routed experts and of the others, scales included, by the first format that the table has for a model
RELEASED = {
    "": (2.0, 2.0),  # Qwen3.8: nobody says
    "bf16": (2.0, 2.0),
    "fp8 block": (1.0, 1.0),
    "fp8 block 128x128": (1.0, 1.0),
    "fp8 block (official), EXL3/NVFP4 community": (1.0, 1.0),
    "mxfp8 (MiniMax-M3-MXFP8)": (8.25 / 8, 8.25 / 8),
    "experts fp4 (mxfp4), rest fp8": (4.25 / 8, 1.0),
    "routed experts mxfp4, rest bf16": (4.25 / 8, 2.0),
    "mxfp4 experts, rest bf16": (4.25 / 8, 2.0),
    "int4 QAT experts": (4.5 / 8, 2.0),
    "int4 QAT": (4.5 / 8, 2.0),
    "nvidia NVFP4": (4.5 / 8, 2.0),
    "NVFP4": (4.5 / 8, 4.5 / 8),
}


def published_bytes(row: dict[str, str]) -> float:
    """Bytes of a checkpoint from the columns of the table alone: experts and the rest in their formats, two tables in 16 bits at least."""
    narrow, wide = RELEASED[row["released_precision"].partition(";")[0]]
    count = {name: float(row[name] or 0) for name in ("experts", "moe_layers", "expert_inter", "expert_latent", "hidden", "vocab")}
    total = float(row["params_total_b"]) * 1e9
    experts = count["experts"] * count["moe_layers"] * 3 * (count["expert_latent"] or count["hidden"]) * count["expert_inter"]
    experts = 0.0 if narrow == wide else experts
    tables = count["vocab"] * count["hidden"] * (1 if row["tie_embeddings"] == "True" else 2)
    return experts * narrow + (total - experts - tables) * wide + tables * TABLES


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/data/modern is not there")
def test_weights_of_every_model_are_those_of_the_released_format() -> None:
    with SIZES.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    found = {
        row["model"]: weight_bytes(deployment_of(model=row["model"], gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""))
        for row in rows
    }
    off = {row["model"]: found[row["model"]] / published_bytes(row) - 1 for row in rows}
    assert len(off) == 45
    assert {name: error for name, error in off.items() if abs(error) > 0.03} == {}


@pytest.mark.parametrize("model", [model for model in models() if model.date == "2026-11-22"], ids=lambda model: model.name)
def test_every_model_of_2026_has_weights_in_its_own_format(model) -> None:
    precision = find_precision(model.usual_precision)
    tables = model.embedding_parameters + model.further_embeddings + model.router_parameters
    found = weight_bytes(deployment_of(model=model.name, gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""))
    least, most = (tables * TABLES + (model.parameters - tables) * size for size in (precision.weight_bytes, TABLES))
    assert least * 0.999 <= found <= most * 1.001
    assert found < 1.03 * least or precision.experts_only
