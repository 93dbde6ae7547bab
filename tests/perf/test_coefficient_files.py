"""The files of constants and of held-out errors are read strictly: what is misspelt is named by its path. See also test_fitted_terms.py."""

from __future__ import annotations

import copy
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tonnage import perf
from tonnage.errors import DataError, DataErrors
from tonnage.perf import memory as reserves
from tonnage.perf import residuals, shipped_json
from tonnage.perf.memory import constants_of, memory_constants
from tonnage.perf.residuals import residuals_of, shipped_residuals

MEMORY, RESIDUALS = shipped_json("memory.json", ""), shipped_json("residuals.json", "")


def changed(document: dict[str, Any], *path: str, value: Any = 1.0) -> dict[str, Any]:
    """The document with one value at a path, which may be new."""
    found = copy.deepcopy(document)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return found


def renamed(document: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in document.items()}


def test_a_misspelt_constant_of_memory_is_refused() -> None:
    with pytest.raises(DataErrors) as caught:
        constants_of(renamed(MEMORY, "fp8_gb", "fp8_gib"), "memory.json")
    assert set(caught.value.lines) == {"memory.json: fp8_gb: is missing", "memory.json: fp8_gib: unknown key; did you mean fp8_gb?"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("activation_mlp", "fnn"), "activation_mlp.fnn: unknown key; did you mean ffn"),
        (("context_gb", "Hoper"), "context_gb.Hoper: no GPU is of this generation"),
        (("communication_gb", "nvlink Amper"), "communication_gb.nvlink Amper: no GPUs are joined so"),
    ],
)
def test_so_is_any_other_key_of_memory(path: tuple[str, ...], message: str) -> None:
    with pytest.raises(DataErrors, match=message):
        constants_of(changed(MEMORY, *path), "memory.json")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("quantile",), {}, "quantile: unknown key; did you mean quantiles"),
        (("quantiles", "itl"), {}, "quantiles.itl: unknown key"),
        (("quantiles", "itl_ms", "heavy, prompts"), [0.0] * 9, "quantiles.itl_ms.heavy, prompts: unknown key"),
        (("quantiles", "itl_ms", "heavy"), [0.0] * 8, "quantiles.itl_ms.heavy: holds no 9 quantiles"),
        (("stretch", "ttft_ms", "havy"), 1.0, "stretch.ttft_ms.havy: unknown key"),
        (("unseen_gpu", "ttft_ms", "static"), "1", "unseen_gpu.ttft_ms.static: '1' is not a number"),
        (("widths", "computes"), 0.1, "widths.computes: unknown key"),
    ],
)
def test_a_key_that_no_prediction_asks_for_is_refused(path: tuple[str, ...], value: object, message: str) -> None:
    with pytest.raises(DataErrors, match=message):
        residuals_of(changed(RESIDUALS, *path, value=value))


def test_what_is_read_is_what_is_written() -> None:
    table, memory = shipped_residuals(), memory_constants()
    assert {metric: {key: list(v) for key, v in by.items()} for metric, by in table.quantiles.items()} == RESIDUALS["quantiles"]
    assert table.stretch == RESIDUALS["stretch"]
    assert table.widths == RESIDUALS["widths"]
    assert memory.context_gb == MEMORY["context_gb"]
    assert memory.activation_mlp.ffn == MEMORY["activation_mlp"]["ffn"]


READERS = {"memory.json": reserves.memory_constants, "residuals.json": residuals.shipped_residuals}


@pytest.mark.parametrize(("text", "said"), [("{", "Expecting"), ("[1]", "is no object"), (None, "No such file")])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str | None, said: str) -> None:
    shutil.copytree(str(resources.files("tonnage.perf") / "coefficients"), tmp_path / "coefficients")
    (tmp_path / "coefficients" / name).unlink()
    if text is not None:
        (tmp_path / "coefficients" / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(perf.resources, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match=rf"perf/coefficients/{name}: .*{said}") as caught:
        READERS[name].__wrapped__()
    assert "\n" not in str(caught.value)
