import csv
from pathlib import Path

import pytest

from tonnage.sizing.fitting.moe_rows import degrees, select_moe
from tonnage.sizing.fitting.silicon_rows import COLUMNS, MEASURED

SPLIT = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
NAMES = (*COLUMNS, "attention_dp_size", "moe_tp_size", "moe_ep_size", "pp_size", *MEASURED.values())


def line(split: tuple[int, int, int, int] = (8, 1, 8, 1), dump: str = "2026-03-25.csv", **changed: str) -> dict[str, str]:
    day = changed.pop("day", "2026-03-01")
    clients = changed.get("clients", "16")
    found = {
        "mode": "agg",
        "model_path": "MiniMaxAI/MiniMax-M2.5",
        "system": "h200_sxm",
        "backend": "vllm",
        "precision": "fp8",
        "batch_size": changed.pop("clients", "16"),
        "isl": "1024",
        "osl": "1024",
        "pp_size": "1",
        "silicon_data_source": f"source_file={dump}; silicon_concurrency={clients}; measured={day}",
        "silicon_ttft_ms": "100.5",
        "silicon_tpot_ms": "12.5",
    }
    return found | {name: str(n) for name, n in zip(SPLIT, split, strict=True)} | changed


@pytest.mark.parametrize(
    ("split", "dump", "ran"),
    [
        ((64, 1, 8, 8), "2026-04-06.csv", (8, 1, 8)),
        ((1, 64, 8, 8), "2026-04-06.csv", (1, 8, 8)),
        ((4, 4, 1, 16), "2026-04-06.csv", (4, 1, 4)),
        ((2, 2, 1, 4), "db", (2, 1, 2)),
        ((16, 1, 4, 4), "2026-04-06.csv", (4, 1, 4)),
        ((1, 8, 1, 8), "2026-03-25.csv", (1, 8, 8)),
        ((8, 1, 8, 1), "2026-04-06.csv", (8, 1, 1)),
        ((4, 1, 2, 2), "2026-03-25.csv", (4, 1, 2)),
    ],
)
def test_degrees_are_those_that_ran(split: tuple[int, int, int, int], dump: str, ran: tuple[int, int, int]) -> None:
    changed = {"silicon_data_source": "db-dump/2026-04-27; silicon_concurrency=16"} if dump == "db" else {}
    assert degrees(line(split, dump, **changed)) == ran


def select(folder: Path, *lines: dict[str, str]) -> tuple[int, dict[str, int]]:
    file = folder / "silicon_sample.csv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, NAMES, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(lines)
    found = select_moe(file)
    return len(found.rows), found.left_out


def test_traps_of_the_file_are_left_out_and_counted(tmp_path: Path) -> None:
    deepseek = {"model_path": "deepseek-ai/DeepSeek-R1", "backend": "trtllm"}
    found = select(
        tmp_path,
        line(),
        line((64, 1, 8, 8), "2026-04-06.csv", **deepseek, day="2025-12-15"),
        line(**deepseek, day="2026-02-05"),
        line(model_path="zai-org/GLM-5"),
        line(model_path="openai/gpt-oss-120b", precision="fp4", system="h100_sxm", day="2025-12-05"),
        line((16, 1, 16, 1)),
        line(silicon_ttft_ms=""),
    )
    assert found == (
        2,
        {
            "multi-token prediction, not said": 1,
            "not one of the models": 1,
            "corrupt": 1,
            "more GPUs than a server has": 1,
            "no measured value": 1,
        },
    )


def test_a_measurement_counts_once_whatever_dump_names_its_degrees(tmp_path: Path) -> None:
    count, left_out = select(tmp_path, line((4, 4, 1, 16), "2026-04-06.csv"), line((4, 1, 1, 4)))
    assert (count, left_out) == (1, {"same measurement in another dump": 1})


def test_a_run_far_slower_than_another_of_the_same_is_left_out(tmp_path: Path) -> None:
    slow, slower = line(silicon_tpot_ms="24.0"), line(silicon_tpot_ms="48.0")
    assert select(tmp_path, line(), slow) == (2, {})
    assert select(tmp_path, line(), slow, slower) == (2, {"slowed by something else": 1})
    assert select(tmp_path, line(), line(clients="64", silicon_tpot_ms="48.0")) == (2, {})
