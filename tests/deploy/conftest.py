"""Kubernetes' schema is read once a process: to read it anew for every object takes twice as long
as to check the object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from kubernetes_validate import utils

from tests.deploy.plans import dense


@pytest.fixture(scope="session", autouse=True)
def schemas_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(dense().to_json()), encoding="utf-8")
    return path
