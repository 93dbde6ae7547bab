"""Schemathesis over ``/api/v1``: whatever comes, no error is of our own making.

Read where its plugin is loaded (``pytest -p schemathesis -m engines``, as in ./check --engines);
tests/conftest.py says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.page.served import base_of, served_page
from tonnage.page.http_api import openapi

pytestmark = pytest.mark.engines
SCHEMA = schemathesis.openapi.from_dict(openapi())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_page(tmp_path_factory.mktemp("folder") / "page") as address:
        yield base_of(address)


@SCHEMA.parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_an_error_of_ours(case: Any, base: str) -> None:
    assert case.call(base_url=base, timeout=60).status_code < 500
