"""Schemathesis against simulated instances and the gateway before them: whatever comes, no error is
of our own making.

Read where its plugin is loaded (``pytest -p schemathesis -m engines``, as in ./check --engines);
tests/conftest.py says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tonnage.api.running.processes import gateway_before, processes, served_instances
from tonnage.bench.scrape import fetch

pytestmark = pytest.mark.engines
MODEL = "llama-3.1-8b"
TEXTS: dict[str, Any] = {
    "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}
COMMON: dict[str, Any] = {
    "model": {"enum": [MODEL, "another"]},
    "max_tokens": {"type": "integer", "minimum": -1, "maximum": 40},
    "n": {"type": "integer", "minimum": 0, "maximum": 3},
    "stream": {"type": "boolean"},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "stop": TEXTS,
    "seed": {"type": "integer"},
    "temperature": {"type": "number"},
    "user": {"type": "string"},
}
PROMPT = {"oneOf": [*TEXTS["oneOf"], {"type": "array", "items": {"type": "integer"}}]}
MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"enum": ["system", "user", "assistant"]},
        "content": {"type": ["string", "null", "array"]},
    },
    "required": ["role"],
}


def operation(properties: dict[str, Any], required: str) -> dict[str, Any]:
    body = {"type": "object", "properties": {**COMMON, **properties}, "required": [required]}
    return {
        "post": {
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": {"description": "an answer"}, "400": {"description": "refused"}},
        }
    }


SCHEMA = schemathesis.openapi.from_dict(
    {
        "openapi": "3.0.2",
        "info": {"title": "the part of the OpenAI API that is served", "version": "1"},
        "paths": {
            "/v1/completions": operation({"prompt": PROMPT}, "prompt"),
            "/v1/chat/completions": operation(
                {"messages": {"type": "array", "items": MESSAGE}}, "messages"
            ),
            "/v1/models": {"get": {"responses": {"200": {"description": "models"}}}},
        },
    }
)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of an instance and of the gateway before it."""
    instances = served_instances(["--engine", "simulated", "--model", MODEL, "--speed", "50"], 1)
    gateway = gateway_before(instances, policy="prefix-aware")
    logs = tmp_path_factory.mktemp("logs")
    with processes(
        instances,
        gateway,
        logs,
        ready_s=60,
        grace_s=3,
        announce=lambda line: None,
        on_ready=lambda ready, of: None,
    ) as up:
        yield instances[0].url, up.url
        assert up.supervisor.children[0].starts == 1, "the instance died"
        assert (
            "Traceback"
            not in up.supervisor.children[0].log.read_text() + (logs / "gateway.log").read_text()
        )
        assert "tonnage_gateway_in_flight 0.0" in fetch(f"{up.url}/metrics")


@SCHEMA.parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_an_error_of_ours(case: Any, urls: tuple[str, str]) -> None:
    statuses = [case.call(base_url=url, timeout=20).status_code for url in urls]
    assert max(statuses) < 500
    # a model that nobody lists is 404 at the gateway, whatever else is wrong
    assert (statuses[0] < 400) == (statuses[1] < 400)
