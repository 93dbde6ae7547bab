from __future__ import annotations

import numpy as np
import pytest

from tonnage.evidence.rows import errors
from tonnage.perf.terms import resolve
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_gpu, find_model
from tonnage.spec.deployment import Parallelism
from tonnage.spec.precision import find_precision
from tools.fit.silicon.moe import OLDER, moe_layout, preset, solve_moe
from tools.fit.silicon.moe_rows import degrees
from tools.fit.silicon.silicon_rows import SiliconRows


@pytest.mark.parametrize(
    ("split", "source", "ran"),
    [
        ((64, 1, 8, 8), "source_file=2026-04-06.csv", (8, 1, 8)),
        ((1, 64, 8, 8), "source_file=2026-04-06.csv", (1, 8, 8)),
        ((4, 4, 1, 16), "source_file=2026-04-06.csv", (4, 1, 4)),
        ((2, 2, 1, 4), "db-dump/2026-04-27", (2, 1, 2)),
        ((4, 1, 2, 2), "source_file=2026-03-25.csv", (4, 1, 2)),
    ],
)
def test_degrees_are_those_that_ran(
    split: tuple[int, int, int, int], source: str, ran: tuple[int, int, int]
) -> None:
    line = dict(
        zip(
            ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"),
            map(str, split),
            strict=True,
        )
    )
    assert degrees(line | {"silicon_data_source": f"{source}; silicon_concurrency=16"}) == ran


Row = dict[str, object]


def rows() -> list[Row]:
    found: list[Row] = []
    for model, engine, precision in (
        ("minimax-m2.5", "vllm-0.19", "fp8"),
        ("qwen3-235b-a22b", "tensorrt-llm-1.1", "fp8"),
    ):
        for clients in (2, 16, 64):
            for isl in (200, 2000):
                what = {
                    "model": model,
                    "gpu": "h200-sxm-141gb",
                    "precision": precision,
                    "engine": engine,
                    "tp": 8,
                    "dp": 1,
                    "ep": 8,
                }
                run = {
                    "isl": isl,
                    "osl": 40,
                    "concurrency": clients,
                    "spread": 0.0,
                    "slots": 64,
                    "budget": 8192,
                }
                found.append({**what, **run, "ttft_ms": 1.0, "itl_ms": 1.0})
    return found


@pytest.mark.accuracy
def test_the_fit_finds_terms_again_that_made_the_rows() -> None:
    """Rows made with twice the arithmetic and a different time per layer: the fit comes back to
    their times from its start."""
    made = rows()
    layout = moe_layout(shipped(), {preset(row) for row in made})
    x = layout.start.copy()
    x[layout.names.index("expert_compute")] += 0.5
    x[layout.names.index("expert_layer")] += 0.3
    parts = SiliconRows(made)
    parts.simulate(layout.terms(x))
    for name in ("ttft_ms", "itl_ms"):
        for row, value in zip(made, parts.simulated(name).tolist(), strict=True):
            row[name] = value
    before, after = (
        errors(SiliconRows(made), t)["itl_ms"]
        for t in (layout.terms(layout.start), solve_moe(layout, made))
    )
    assert np.abs(before).mean() > 0.03
    assert np.abs(after).mean() < 0.4 * np.abs(before).mean()


def test_an_engine_without_a_correction_has_what_all_share_and_dense_terms_stay() -> None:
    layout = moe_layout(shipped(), {"vllm", "tensorrt-llm-1.1"})
    x = layout.start.copy()
    x[layout.names.index("expert_rows")] += 1.0
    x[layout.names.index("vllm.expert_rows")] += 0.1
    found = layout.terms(x)["engines"]
    assert found["vllm"]["expert_rows"] == pytest.approx(
        found["tensorrt-llm-1.1"]["expert_rows"] * np.exp(0.1)
    )
    for term, value in shipped()["engines"]["vllm"].items():
        if not term.startswith(("expert_", "latent_", "dispatch")):
            assert found["vllm"][term] == value
    assert found["nim-2024"] == shipped()["engines"]["nim-2024"]


def test_what_blackwell_saves_per_layer_holds_where_experts_are_fused() -> None:
    layout = moe_layout(shipped(), {"vllm", "tensorrt-llm-1.1"})
    x = layout.start.copy()
    x[layout.names.index("expert_layer")] += 0.5
    x[layout.names.index("expert_layer_blackwell")] -= 0.2
    terms = layout.terms(x)

    def layer_s(engine: str, precision: str, gpu: str = "b200") -> float:
        formats, of = (
            find_gpu(gpu).executes(find_precision(precision)),
            (find_model("deepseek-r1"), find_gpu(gpu)),
        )
        found = resolve(terms, *of, formats, Parallelism(tp=8), engine)
        return (
            found.experts.layer_s
            / (
                terms["engines"][engine]["layer_s"]
                * terms["architectures"][of[1].arch].get("layer", 1.0)
            )
            + 1
        )

    whole, saved = np.exp(0.5), np.exp(0.3)
    for gpu in ("b200", "b300"):
        assert [
            layer_s("tensorrt-llm-1.1", p, gpu) for p in ("fp8", "nvfp4+experts")
        ] == pytest.approx([whole, saved])
        assert [
            layer_s("vllm", p, gpu) for p in ("fp8", "nvfp4+experts", "gptq+experts")
        ] == pytest.approx([saved, saved, whole])
    assert layer_s("vllm", "fp8", "h200") == pytest.approx(whole)


def test_an_older_version_is_corrected_from_the_next_one() -> None:
    layout = moe_layout(shipped(), {"sglang", "sglang-0.5.9", "vllm"})
    x = layout.start.copy()
    x[layout.names.index("sglang-0.5.9.expert_layer")] += 0.2
    x[layout.names.index("sglang.expert_layer")] += 0.1
    before, after = (layout.terms(values)["engines"] for values in (layout.start, x))
    factors = {
        name: after[name]["expert_layer"] / before[name]["expert_layer"] for name in layout.engines
    }
    assert factors == pytest.approx(
        {"sglang": np.exp(0.3), "sglang-0.5.9": np.exp(0.2), "vllm": 1.0}
    )
    x[layout.names.index(f"{OLDER}.expert_layer")] += 0.4
    all_older = layout.terms(x)["engines"]
    shared = {
        name: all_older[name]["expert_layer"] / after[name]["expert_layer"]
        for name in layout.engines
    }
    assert shared == pytest.approx({"sglang": np.exp(0.4), "sglang-0.5.9": 1.0, "vllm": 1.0})
    alone = moe_layout(shipped(), {"sglang", "vllm"})
    assert "sglang-0.5.9.expert_layer" not in alone.names
