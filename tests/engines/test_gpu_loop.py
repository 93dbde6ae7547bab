"""Transformers' continuous batching behind the least server: what ./benchmark gpu_loop measures is
an engine that gives what was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.engine_loop import measure
from benchmarks.gpu_loop import USED, device_of, hardware, served
from tests.engines.vllm_server import python
from tonnage.results.store import read_run

pytestmark = pytest.mark.engines


def test_each_request_gets_its_prompt_and_its_tokens(model: Path, tmp_path: Path) -> None:
    point = USED[0]
    with served(python(), model, "cpu", tmp_path) as url:
        measure(url, model, tmp_path / "run", point, seed=1)
    requests = read_run(tmp_path / "run").requests
    (shortest, longest), (least, most) = (
        map(int, text.partition(":")[2].split("-")) for text in (point.isl, point.osl)
    )
    assert len(requests) == point.requests
    assert ((shortest <= requests.isl) & (requests.isl <= longest)).all()
    assert ((least <= requests.osl) & (requests.osl <= most)).all()
    assert (requests.last_token_ns > requests.first_token_ns).all()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["validity"]["verdict"] in (
        "VALID",
        "INVALID",
    )


def test_a_device_that_the_catalog_has_is_called_by_its_name(tmp_path: Path) -> None:
    assert hardware("NVIDIA H100 80GB HBM3", 80.0, tmp_path) == "h100-sxm-80gb"
    assert (
        Path(hardware(*device_of(python()), tmp_path))
        .read_text(encoding="utf-8")
        .startswith("name: this-device\n")
    )
