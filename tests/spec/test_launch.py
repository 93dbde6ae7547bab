"""How engines are started is data of their presets: each setting by the name that Tonnage has for it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tonnage.errors import DataErrors
from tonnage.plan.launch import SETTINGS
from tonnage.spec.catalog import engines, find_engine
from tonnage.spec.catalog.engine_presets import read_presets
from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.deployment import EngineKnobs, Parallelism
from tonnage.spec.engine import MODEL, Launch

KNOWN = {part.name for kind in (EngineKnobs, Parallelism) for part in fields(kind)} | set(SETTINGS)
STARTED = {engine.name: engine.launch for engine in engines() if engine.launch is not None}


def test_engines_of_today_can_be_started() -> None:
    assert {find_engine(name).name for name in ("vllm", "sglang", "tensorrt-llm-1.2", "vllm-0.10")} <= STARTED.keys()


@pytest.mark.parametrize("name", sorted(STARTED))
def test_every_setting_is_one_that_a_deployment_has(name: str) -> None:
    launch: Launch = STARTED[name]
    said = [setting for pairs in (launch.values, launch.switches, launch.file_keys) for setting, _ in pairs]
    assert len(said) == len(set(said))
    assert set(said) <= KNOWN
    assert "max_context" in {setting for setting, _ in launch.values}
    assert {"tp", "stage_gpus", "gpus"} & {setting for setting, _ in launch.values}
    assert "".join(launch.command).count(MODEL) == 1
    assert bool(launch.file_flag) == bool(launch.file_keys)
    assert all(flag.startswith("--") for _, flag in launch.values)


def test_a_setting_is_found_by_its_name() -> None:
    launch = STARTED["vllm-0.32"]
    assert launch.flag("max_num_tokens") == "--max-num-batched-tokens"
    assert launch.flag("scheduler") is None
    switch = launch.switch("chunked_prefill")
    assert switch is not None
    assert (switch.enable, switch.disable) == ("--enable-chunked-prefill", "--no-enable-chunked-prefill")
    assert launch.switch("tp") is None


def test_a_misspelt_key_of_a_launch_is_refused() -> None:
    rows = [
        row | {"launch": {**row["launch"], "file_flags": "x"}} if row["name"] == "vllm-0.10" else row
        for row in shipped_yaml("engines.yaml")
    ]
    with pytest.raises(DataErrors, match=r"engines\.yaml: vllm-0\.10: launch\.file_flags: unknown key; did you mean file_flag"):
        read_presets(rows, "engines.yaml")


def test_on_and_off_are_no_keys_because_yaml_reads_them_as_booleans() -> None:
    rows = [
        row | {"launch": {**row["launch"], "switches": {"ep": {True: "--x"}}}} if row["name"] == "vllm-0.10" else row
        for row in shipped_yaml("engines.yaml")
    ]
    with pytest.raises(DataErrors, match=r"launch\.switches\.ep\.true: unknown key; known here: enable, disable"):
        read_presets(rows, "engines.yaml")
