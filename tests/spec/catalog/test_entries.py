"""Entries of the catalog: presets that extend others, and hosts."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.spec.catalog.preset_rows import rows
from tonnage.errors import DataError, InputError
from tonnage.spec.catalog import (
    engines,
    find_engine,
    find_gpu,
    find_model,
    find_system,
    gpus,
    models,
    system_of,
    systems,
)
from tonnage.spec.catalog.entries import host_speed_of, read_presets

if TYPE_CHECKING:
    from collections.abc import Callable


WHOLE = json.loads(
    (Path(__file__).parents[2] / "golden" / "engine-presets.json").read_text(encoding="utf-8")
)
"""Every preset as it stood in the file before presets could extend others."""


def part(found: Any, whole: Any) -> Any:
    """What is there of the keys that there were then: knobs have been added since."""
    return (
        {key: part(found[key], value) for key, value in whole.items()}
        if isinstance(whole, dict)
        else found
    )


def test_every_resolved_preset_equals_the_one_that_stood_alone() -> None:
    found = {engine.name: json.loads(json.dumps(asdict(engine))) for engine in engines()}
    assert {name: part(found[name], whole) for name, whole in WHOLE.items()} == WHOLE
    for change, says in [
        ({"extends": "vllm-9"}, "vllm-0.12: extends: there is no preset 'vllm-9'"),
        ({"extends": "vllm-0.12"}, "vllm-0.12: extends: 'vllm-0.12' extends this preset in turn"),
    ]:
        with pytest.raises(DataError, match=says):
            read_presets(rows(**change), "engines.yaml")


DATA = Path(__file__).resolve().parents[4] / "shared" / "data"

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the measured data lie beside the repository, not in it"
)

PUBLISHED: dict[str, float] = yaml.safe_load(
    (Path(__file__).parents[1] / "published_parameters.yaml").read_text(encoding="utf-8")
)


def test_parameters_against_published_totals() -> None:
    for name, billions in PUBLISHED.items():
        assert find_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.005)
    for name, billions in [
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39.1),
        ("qwen3-30b-a3b", 3.3),
        ("qwen3-235b-a22b", 22),
    ]:
        model = find_model(name)
        assert (model.active_parameters + model.embedding_parameters) / 1e9 == pytest.approx(
            billions, rel=0.02
        )


def test_entries_have_source_date_and_possible_numbers() -> None:
    entries = [*models(), *gpus(), *systems(), *engines()]
    assert len(entries) > 80
    for entry in entries:
        assert entry.source, entry.name
        assert len(entry.date) == 10, entry.name
        assert entry.name == entry.name.lower()
    assert {model.name for model in models()} == set(PUBLISHED)
    for gpu in gpus():
        assert 0.85 < gpu.memory_bytes / (gpu.memory_gb * 1e9) < 1.1, gpu.name
        most = 4.5 if gpu.arch == "Rubin" else 2.1  # whose 16 bits are a quarter of its FP8
        assert gpu.fp8_tflops is None or gpu.fp16_tflops <= gpu.fp8_tflops <= most * gpu.fp16_tflops
        assert (gpu.link_gb_s == 0) == (gpu.link == "pcie"), gpu.name
        assert gpu.tp_link_bytes_s(2) > 0, gpu.name
    assert [find_gpu("gh200-96gb-hbm3").tp_link_bytes_s(n) for n in (1, 2, 4)] == [
        450e9,
        150e9,
        450e9,
    ]


@needs_data
def test_gpus_of_the_data_sheets_agree() -> None:
    with (DATA / "gpu_specs.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 29
    for row in rows:
        gpu = find_gpu(row["gpu"])
        assert gpu.fp16_tflops == float(row["bf16_dense_tflops"] or row["fp16_dense_tflops"])
        assert gpu.fp8_tflops == (
            float(row["fp8_dense_tflops"]) if row["fp8_dense_tflops"] else None
        )
        assert gpu.memory_bandwidth_gb_s == float(row["mem_bw_gb_s"])
        assert gpu.memory_gb == float(row["mem_gb"])
        assert gpu.bf16 == bool(row["bf16_dense_tflops"])


@pytest.mark.parametrize("family", sorted({spec.family for spec in engines()}))
def test_a_bare_engine_name_is_the_newest_preset(family: str) -> None:
    """By the first version that each speaks for, in numbers: 0.32 is newer than 0.4."""
    since = {
        spec.name: tuple(map(int, spec.since.split(".")))
        for spec in engines()
        if spec.family == family
    }
    assert find_engine(family).name == max(since, key=lambda name: since[name])


@pytest.mark.parametrize("find", [find_model, find_gpu, find_system, find_engine])
@given(
    st.text(max_size=30)
    | st.sampled_from(["\n", "a\nb", "/", "\0/", "x" * 5000 + "/", "../", ".json"])
)
def test_any_text_finds_or_is_refused_in_one_line(find: Callable[[str], object], text: str) -> None:
    try:
        find(text)
    except InputError as error:
        message = str(error)
    else:
        return
    assert len(message.splitlines()) == 1


def test_every_gpu_has_a_system() -> None:
    assert {system.gpu for system in systems()} == {gpu.name for gpu in gpus()}
    for gpu in gpus():
        assert system_of(gpu).gpu == gpu.name
        assert system_of(replace(gpu, name="of-tomorrow")).name == "8xof-tomorrow"
    assert find_system("8xL40S").gpu == "l40s"
    assert find_system("8xl4").gpus == 8
    assert find_system("DGX H100").name == "dgx-h100"


@pytest.mark.parametrize(
    ("host", "speed"),
    [
        (0.7, 0.7),
        ("0.7", 0.7),
        ("epyc-9005", 1.25),
        ("AMD EPYC 7742 64-Core Processor", 0.73),
        ("AMD EPYC 7763 64-Core Processor", 0.88),
        ("AMD EPYC 7R13 Processor", 0.88),
        ("AMD EPYC 9654 96-Core Processor", 1.0),
        ("AMD EPYC 9R14", 1.0),
        ("AMD EPYC 9575F 64-Core Processor", 1.25),
        ("Intel(R) Xeon(R) Platinum 8480C", 1.0),
        ("INTEL(R) XEON(R) PLATINUM 8568Y+", 1.0),
        ("Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", 0.83),
        ("Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", 0.73),
        ("AMD Ryzen Threadripper PRO 5995WX 64-Cores", 1.14),
        ("AMD Ryzen 9 7950X 16-Core Processor", 1.38),
        ("13th Gen Intel(R) Core(TM) i9-13900K", 1.52),
    ],
)
def test_a_host_is_a_speed_a_class_or_what_lscpu_prints(host: float | str, speed: float) -> None:
    assert host_speed_of(host) == speed


@pytest.mark.parametrize(
    "host", ["AMD EPYC Processor", "Intel(R) Xeon(R) CPU @ 2.20GHz", "Neoverse-V2", "", "fast"]
)
def test_a_host_that_nobody_rated_is_refused_with_what_to_type(host: str) -> None:
    with pytest.raises(InputError, match=r"is not known; write a number such as 0\.7, or one of"):
        host_speed_of(host)
