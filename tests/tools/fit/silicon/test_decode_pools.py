from pathlib import Path

import pytest

from tests.silicon_sample import sample
from tonnage.evidence.predict import decoding, predict, read_point
from tonnage.perf.step import step_seconds
from tonnage.perf.terms import step_model
from tools.fit.silicon.decode_pools import SPLIT, WORKERS, select_decode_pools


def line(
    *,
    clients: int = 96,
    split: tuple[int, int, int] = (8, 1, 8),
    workers: str = "4",
    **changed: str,
) -> dict[str, str]:
    found = {
        "mode": "disagg",
        "model_path": "deepseek-ai/DeepSeek-V3",
        "system": "gb200",
        "backend": "trtllm",
        "backend_version": "0.8.1.post2",
        "precision": "fp4",
        "isl": "1024",
        "osl": "1024",
        "silicon_data_source": (
            f"db-dump/2026-04-27; config_id=388; silicon_concurrency={clients}; measured=2026-03-23"
        ),
        WORKERS: workers,
        "silicon_ttft_ms": "311",
        "silicon_tpot_ms": "10.06",
    }
    return found | {name: str(n) for name, n in zip(SPLIT, split, strict=True)} | changed


def aggregated() -> dict[str, str]:
    split = {
        "tp_size": "8",
        "attention_dp_size": "1",
        "moe_tp_size": "1",
        "moe_ep_size": "8",
        "pp_size": "1",
        "batch_size": "16",
    }
    return line(mode="agg", system="b200_sxm", clients=16, silicon_tpot_ms="8.5") | split


def test_a_row_is_one_decode_worker_with_its_share_of_the_clients(tmp_path: Path) -> None:
    (row,) = select_decode_pools(sample(tmp_path, line(clients=98), aggregated())).rows
    named = [row[name] for name in ("model", "gpu", "precision", "engine")]
    assert named == ["deepseek-r1", "gb200-186gb", "nvfp4+experts", "tensorrt-llm-1.2"]
    assert [row[name] for name in ("tp", "dp", "ep", "isl", "osl", "concurrency", "itl_ms")] == [
        8,
        1,
        8,
        922,
        922,
        25,
        10.06,
    ]


@pytest.mark.parametrize(("isl", "osl", "clients"), [(1024, 512, 1), (2000, 200, 7), (8192, 2, 64)])
def test_a_token_takes_the_mean_step_of_a_static_batch_where_nothing_is_streamed(
    isl: int, osl: int, clients: int
) -> None:
    row = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "precision": "fp8",
        "engine": "tensorrt-llm-0.9",
        "tp": 1,
        "isl": isl,
        "osl": osl,
    }
    batch = predict(read_point(row | {"batch": clients}))
    pool = decoding(read_point(row | {"concurrency": clients, "engine": "tensorrt-llm-0.10"}))
    assert set(pool) == {"itl_ms"}
    # contexts and picoseconds are whole numbers
    assert pool["itl_ms"] == pytest.approx(batch["itl_ms"], rel=2e-4)


def test_ranks_share_the_clients() -> None:
    row = {
        "model": "deepseek-r1",
        "gpu": "gb200-186gb",
        "precision": "nvfp4+experts",
        "engine": "tensorrt-llm-1.2",
        "isl": 900,
        "osl": 901,
    }
    point = read_point(row | {"tp": 1, "dp": 32, "ep": 32, "concurrency": 2048})
    step = step_model(point.deployment).coefficients
    assert decoding(point)["itl_ms"] == 1e3 * step_seconds(
        step, 0, 0, 64, 0, 64 * 900 + 64 * 901 // 2
    )
