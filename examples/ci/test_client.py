"""Tests of a client against a simulated engine: pytest test_client.py, after pip install of
tonnage, openai and pytest."""

from collections.abc import Iterator

import openai
import pytest

from tonnage.testing import simulated_engine

ASKED = {"model": "llama-3.1-8b", "messages": [{"role": "user", "content": "How many GPUs?"}]}


@pytest.fixture(scope="session")
def client() -> Iterator[openai.OpenAI]:
    with simulated_engine(model="llama-3.1-8b", speed=10) as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_an_answer_is_streamed(client: openai.OpenAI) -> None:
    parts = list(
        client.chat.completions.create(
            **ASKED, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
    )
    assert parts[-1].usage.completion_tokens <= 20


def test_a_rate_limit_is_an_error_of_its_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(**ASKED, extra_headers={"x-fault": "429"})
