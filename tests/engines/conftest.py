"""One vLLM server for all tests of this folder that measure nothing: it takes half a minute to
start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.vllm_server import python, tiny_model, vllm


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    """The folder of a tiny model."""
    return tiny_model(python(), folder / "tiny")


@pytest.fixture(scope="session")
def server(folder: Path, model: Path) -> Iterator[str]:
    """The address of a server of that model, which is called "tiny"."""
    with vllm(
        python(), model, folder, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"
    ) as url:
        yield url
