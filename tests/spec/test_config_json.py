"""Published config.json files are counted as published; everything else is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spec.config_files import (
    DEEPSEEK,
    GEMMA_2,
    GEMMA_3,
    GPT_OSS,
    LLAMA,
    PUBLISHED,
    one_line,
    values,
    write,
)
from tests.spec.published_configs import config_of
from tonnage.errors import InputError
from tonnage.spec.catalog import find_model
from tonnage.spec.config_json import read_config


@pytest.mark.parametrize(
    ("config", "billions"), PUBLISHED, ids=[c["architectures"][0] for c, _ in PUBLISHED]
)
def test_parameters_of_published_files(
    tmp_path: Path, config: dict[str, Any], billions: float
) -> None:
    assert read_config(write(tmp_path, config)).parameters / 1e9 == pytest.approx(
        billions, rel=0.005
    )


@pytest.mark.parametrize(
    ("config", "name"),
    [(DEEPSEEK, "deepseek-v3"), (GPT_OSS, "gpt-oss-20b"), (GEMMA_2, "gemma-2-9b")],
)
def test_a_file_is_read_as_the_catalog_has_the_model(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    read, known = read_config(write(tmp_path, config)), find_model(name)
    assert (
        replace(read, name=known.name, source=known.source, date=known.date, notes=known.notes)
        == known
    )


def test_layers_are_counted_by_list_by_pattern_or_as_the_library_has_them(tmp_path: Path) -> None:
    by_pattern = read_config(write(tmp_path, GEMMA_3))
    assert (by_pattern.window, by_pattern.windowed_layers, by_pattern.growing_layers) == (
        512,
        22,
        4,
    )
    bare = {key: value for key, value in GEMMA_3.items() if key != "sliding_window_pattern"}
    listed = [("full" if (i + 1) % 6 == 0 else "sliding") + "_attention" for i in range(26)]
    for other in (bare, bare | {"_sliding_window_pattern": 6}, bare | {"layer_types": listed}):
        assert read_config(write(tmp_path, other)) == by_pattern
    assert (
        read_config(write(tmp_path, GEMMA_3 | {"sliding_window_pattern": 2})).windowed_layers == 13
    )
    assert (
        read_config(
            write(tmp_path, {key: value for key, value in GPT_OSS.items() if key != "layer_types"})
        ).windowed_layers
        == 12
    )


@pytest.mark.parametrize(
    "key", sorted(set(DEEPSEEK) - {"num_nextn_predict_layers", "quantization_config"})
)
def test_deepseek_without_one_of_its_numbers_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError) as error:
        read_config(
            write(tmp_path, {name: value for name, value in DEEPSEEK.items() if name != key})
        )
    one_line(error, key)


def test_a_folder_is_searched_and_gives_the_name(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama-8B"
    folder.mkdir()
    write(folder, LLAMA)
    assert read_config(folder).name == "my-llama-8b"
    assert find_model(str(folder)).name == "my-llama-8b"
    assert find_model(str(folder / "config.json")).layers == 32
    for architecture, more, parallel in [
        ("GPTJForCausalLM", {}, True),
        ("GPTNeoXForCausalLM", {}, True),
        ("GPTNeoXForCausalLM", {"use_parallel_residual": False}, False),
        ("LlamaForCausalLM", {}, False),
    ]:
        assert (
            read_config(write(tmp_path, config_of(architecture) | more)).parallel_block is parallel
        )


def test_what_is_no_file_of_json_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "model.json"
    binary.write_bytes(b"\xff\xfe\x00weights")
    huge = write(tmp_path, " " * 5_000_000, "huge.json")
    for path in (tmp_path, tmp_path / "absent.json", binary, huge, Path("a\0b.json")):
        with pytest.raises(InputError) as error:
            read_config(path)
        one_line(error)
    with pytest.raises(InputError, match=r"no such file"):
        find_model(str(tmp_path / "absent.json"))


@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.text(max_size=40) | values.map(json.dumps))
def test_any_text_gives_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError) as error:
        read_config(file)
    assert "\n" not in str(error.value)
