from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.silicon_sample import NVIDIA, sample
from tests.tools.fit.silicon.test_dense import MAX
from tests.tools.fit.test_fit import GPUS, measured_as, nim_rows, static_rows
from tonnage.evidence.rows import LoadedRows, StaticRows
from tonnage.perf.terms_file import shipped
from tools.fit.modern.layout import modern_layout
from tools.fit.silicon.dense_rows import select
from tools.fit.silicon.dense_terms import silicon_layout
from tools.fit.silicon.moe import moe_layout
from tools.fit.silicon.silicon_rows import SiliconRows
from tools.fit.slopes import Slopes
from tools.fit.terms import CURRENT, Layout, layout


def one_by_one(slopes: Slopes, x: np.ndarray) -> np.ndarray:
    """The Jacobian with each term moved alone, by the same steps."""
    here = slopes.residuals(x)
    found = np.zeros((len(here), len(x)))
    for place in range(len(x)):
        moved = x.copy()
        moved[place] += 1e-5
        found[:, place] = (slopes.residuals(moved) - here) / (moved[place] - x[place])
    return found


def somewhere(of: Layout, seed: int = 5) -> np.ndarray:
    return of.start + 0.5 * of.spread * np.random.default_rng(seed).normal(size=len(of.start))


def held_against(of: Layout, parts: list[tuple[float, Any]]) -> Slopes:
    """The Jacobian of all terms somewhere, entry by entry the same as one by one."""
    x = somewhere(of)
    for _, rows in parts:
        rows.simulate(of.terms(x))
    slopes = Slopes(of, parts, x, step=1e-5)
    found, alone = slopes.jacobian(x), one_by_one(slopes, x)
    count = len(found) - len(x)
    assert np.array_equal(found[:count], alone[:count])
    # of the priors, in closed form
    assert found[count:] == pytest.approx(alone[count:], rel=1e-4, abs=1e-8)
    assert (found[:count] != 0).any(axis=0).sum() > len(x) / 3
    return slopes


def test_terms_that_reach_no_row_in_common_are_moved_together() -> None:
    """GPUs, generations, links and engines of the first stage; a tied term reaches the engine that
    takes it."""
    found = layout(GPUS)
    static = StaticRows(
        measured_as(static_rows(), StaticRows(static_rows()), found.terms(somewhere(found, 1)))
    )
    queued = [
        {
            "model": m,
            "gpu": "h100",
            "precision": "fp8",
            "tp": tp,
            "isl": 128,
            "osl": 8,
            "requests": 20,
            "engine": CURRENT,
            "output_tok_s": 1.0,
        }
        for m, tp in (("llama-3.1-70b", 4), ("mixtral-8x7b", 2))
    ]
    slopes = held_against(
        found, [(0.35, static), (1.0, LoadedRows(nim_rows()[::3])), (1.0, LoadedRows(queued))]
    )
    assert len(slopes.together) < 0.6 * len(found.names)


def test_corrections_of_engines_are_moved_together(tmp_path: Path) -> None:
    dense = SiliconRows(
        select(
            sample(tmp_path, NVIDIA, MAX, MAX | {"backend": "trtllm", "system": "b200_sxm"})
        ).rows
    )
    slopes = held_against(silicon_layout(shipped()), [(1.0, dense)])
    assert len(slopes.together) < 0.6 * len(slopes.layout.names)
    engines = ("sglang", "sglang-0.5.9", "vllm", "tensorrt-llm-1.1", "tensorrt-llm-1.2")
    rows = [
        {
            "model": "deepseek-r1",
            "gpu": gpu,
            "precision": "fp8",
            "tp": 8,
            "isl": 512,
            "osl": 8,
            "concurrency": 4,
            "engine": engine,
        }
        | {"slots": 4, "budget": 0, "spread": 0.0, "ttft_ms": 100.0, "itl_ms": 10.0}
        for engine, gpu in zip(engines, ("h200", "b200", "h200", "b200", "h200"), strict=True)
    ]
    slopes = held_against(moe_layout(shipped(), engines), [(1.0, SiliconRows(rows))])
    assert len(slopes.together) < 0.7 * len(slopes.layout.names)
    amd = zip(rows, ("mi300x", "mi355x", "mi355x"), ("sglang", "sglang", "atom"), strict=False)
    newer = [row | {"gpu": gpu, "engine": engine} for row, gpu, engine in amd]
    held_against(modern_layout(shipped()), [(1.0, SiliconRows(newer))])
