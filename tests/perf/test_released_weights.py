"""Weights as published: the totals of ``models.csv`` times the bytes of the released format, scales included, within 3 %."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tonnage.api import deployment_of
from tonnage.perf.weights import weight_bytes
from tonnage.spec.catalog import models
from tonnage.spec.precision import find_precision

SIZES = Path(__file__).resolve().parents[3] / "shared" / "data" / "modern" / "models.csv"
TABLES = 2.0
"""Bytes of a weight of embeddings, output head and router, which checkpoints keep in 16 bits."""

# (share of weights in routed experts, bytes of their weights, bytes of the others), by the maker's word
MAKERS = {
    "deepseek-v4-pro": (61 * 384 * 3 * 7168 * 3072, 4.25 / 8, 1.0),
    "deepseek-v4-flash": (43 * 256 * 3 * 4096 * 2048, 4.25 / 8, 1.0),
    "kimi-k2.5": (60 * 384 * 3 * 7168 * 2048, 4.5 / 8, 2.0),
    "kimi-k3": (92 * 896 * 3 * 3584 * 3072, 4.25 / 8, 2.0),
    "gpt-oss-120b": (36 * 128 * 3 * 2880 * 2880, 4.25 / 8, 2.0),
    "qwen3.5-397b-a17b": (0, 0.0, 2.0),
    "glm-5": (0, 0.0, 2.0),
    "deepseek-v3.2": (0, 0.0, 1.0),
    "minimax-m3": (0, 0.0, 8.25 / 8),
}


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/data/modern is not there")
@pytest.mark.parametrize("name", MAKERS)
def test_weights_are_those_of_the_released_format(name: str) -> None:
    with SIZES.open(encoding="utf-8") as stream:
        totals = {row["model"].lower(): float(row["params_total_b"]) * 1e9 for row in csv.DictReader(stream)}
    experts, narrow, wide = MAKERS[name]
    expected = experts * narrow + (totals[name] - experts) * wide
    found = weight_bytes(deployment_of(model=name, gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""))
    assert found == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("model", [model for model in models() if model.date == "2026-11-22"], ids=lambda model: model.name)
def test_every_model_of_2026_has_weights_in_its_own_format(model) -> None:
    precision = find_precision(model.usual_precision)
    tables = model.embedding_parameters + model.further_embeddings + model.router_parameters
    found = weight_bytes(deployment_of(model=model.name, gpu="b200-sxm-180gb", tp=1, engine="vllm", precision=""))
    least, most = (tables * TABLES + (model.parameters - tables) * size for size in (precision.weight_bytes, TABLES))
    assert least * 0.999 <= found <= most * 1.001
    assert found < 1.03 * least or precision.experts_only
