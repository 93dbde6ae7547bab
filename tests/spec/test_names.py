"""Names as buyers copy them from the pages of vendors, clouds and the model hub find their entry; unknown ones suggest near ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tonnage import api
from tonnage.errors import UnknownName
from tonnage.spec.catalog import find_engine, find_gpu, find_model, find_system, instance_types, machine_meant, newer_than_known, system_of
from tonnage.spec.catalog.price_list import catalog_prices

MEANT: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "spellings.yaml").read_text(encoding="utf-8"))


def test_spellings_on_the_pages_of_vendors_clouds_and_the_hub() -> None:
    for spelling, name in MEANT["gpus"].items():
        assert find_gpu(spelling).name == find_gpu(spelling.upper()).name == name
    for spelling, name in MEANT["systems"].items():
        found, meant = find_system(spelling), machine_meant(spelling)
        assert (found.name, find_gpu(spelling).name) == (name, found.gpu)
        assert meant == found or (meant is None and system_of(find_gpu(spelling)) == found), "HGX is the board and the server"
    for spelling, name in MEANT["models"].items():
        for written in (spelling, spelling.lower(), spelling.upper(), spelling.rpartition("/")[2]):
            assert find_model(written).name == name
    assert {spelling: find_engine(spelling).name for spelling in MEANT["engines"]} == MEANT["engines"]


def test_machine_types_have_the_gpus_of_their_offers_and_unknown_names_near_ones() -> None:
    offered = {(offer.gpu, size) for offer in catalog_prices().cloud for size in offer.machine_gpus}
    for name, machine in instance_types().items():
        assert find_gpu(machine.gpu).name == machine.gpu, name
        assert (machine.gpu, machine.gpus) in offered or machine.source.endswith("(recalled)"), name
        assert machine.source, name
        assert machine.date, name
    for find, name, near in [
        (find_gpu, "h1000", "h100"),
        (find_gpu, "GB200 NVL4", "gb200-186gb"),
        (find_gpu, "mi355", "mi355x"),
        (find_system, "gb200-nvl73", "gb200-nvl72"),
        (find_system, "dgx-h1000", "dgx-h100"),
        (find_model, "Qwen/Qwen3-33B", "qwen3-32b"),
        (find_model, "meta-llama/Llama-3.1-9B-Instruct", "llama-3.1-8b"),
    ]:
        with pytest.raises(UnknownName, match=f"did you mean .*{near}"):
            find(name)


def test_a_preset_that_answers_for_a_newer_version_is_named() -> None:
    newer = {
        "vllm 0.33": "vllm-0.32",
        "vLLM v0.41.2": "vllm-0.32",
        "sglang 0.5.23": "sglang-0.5.9",
        "tensorrt-llm 1.3.0": "tensorrt-llm-1.2",
    }
    assert {name: newer_than_known(name) for name in newer} == newer
    for name in ("vllm", "vllm-0.32", "vllm 0.32.7", "vllm 0.19.1", "sglang 0.5.9", "sglang 0.5.3", "tensorrt-llm 1.2.1", "nim"):
        assert not newer_than_known(name)
    report = api.memory(model="llama-3.1-8b", engine="vllm 0.33.1")
    assert report.lines()[0] == "vllm 0.33.1 is newer than every preset; vllm-0.32 answers for it"
    assert report.to_json()["newer_engine"] == "vllm 0.33.1"
    plan = api.size(model="llama-3.1-8b", gpu="h100", engine="vllm 0.33", isl=200, osl=50, peak_rps=1, tp=1)
    note = next(note for note in plan.notes if note.code == "older-preset")
    assert (note.requested, note.preset, plan.scenario.engines) == ("vllm 0.33", "vllm-0.32", ("vllm-0.32",))
