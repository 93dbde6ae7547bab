"""Kubernetes' schema is read once a process: to read it anew for every object takes twice as long
as to check the object."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from kubernetes_validate import utils


@pytest.fixture(scope="session", autouse=True)
def schemas_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield
