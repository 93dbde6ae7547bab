"""Every ``config.json`` of the wheel aiconfigurator-core is read, or refused with the reason
(``./check --accuracy``)."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config

WHEEL = importlib.util.find_spec("aiconfigurator_core")
FOLDER = (
    Path(WHEEL.submodule_search_locations[0]) / "model_configs"
    if WHEEL and WHEEL.submodule_search_locations
    else Path("missing")
)
FILES = sorted(FOLDER.glob("*_config.json"))
SIZES = Path(__file__).resolve().parents[3] / "shared" / "data" / "modern" / "models.csv"
HALF_SAID = "says how a checkpoint is quantized, and not what it is"

pytestmark = [
    pytest.mark.accuracy,
    pytest.mark.skipif(not FILES, reason="the wheel aiconfigurator-core 0.12 is not installed"),
]


def test_the_wheel_has_its_113_files() -> None:
    assert len(FILES) >= 113


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix("_config.json"))
def test_each_is_read_or_refused_with_the_reason(file: Path) -> None:
    if not file.name.endswith("_hf_quant_config.json"):
        model = read_config(file)
        assert model.parameters > 5e8
        assert model.kv_elements_per_gpu(1) > 0
        return
    with pytest.raises(InputError) as error:
        read_config(file)
    assert HALF_SAID in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not SIZES.is_file(), reason="../shared/data/modern is not there")
def test_cache_index_window_and_state_are_those_of_the_table_of_models() -> None:
    """Bytes in 16 bits, and with states in 32 bits, of every model of ``models.csv``; weights
    within 0.3 %."""
    with SIZES.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        model = find_model(row["model"])
        kept = model.caches(16, 1)
        assert model.parameters / 1e9 == pytest.approx(float(row["params_total_b"]), rel=0.003), (
            model.name
        )
        assert sum(n * cache.token for n, cache in kept) == pytest.approx(
            float(row["kv_bytes_per_token_bf16"]), rel=0.001
        ), model.name
        assert sum(n * cache.index for n, cache in kept) == pytest.approx(
            float(row["index_bytes_per_token_bf16"]), abs=1
        ), model.name
        windows = sum(n * cache.window_token * cache.window for n, cache in kept)
        assert windows == pytest.approx(float(row["window_bytes_per_seq_bf16"]), rel=0.001), (
            model.name
        )
        assert sum(n * cache.sequence for n, cache in kept) == pytest.approx(
            float(row["state_bytes_per_seq_fp32"]), abs=1
        ), model.name
