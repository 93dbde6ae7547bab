"""Requests go to the backends that list their model, and a client's key goes with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.fakes import asked, before, bounded, fine, post, until
from tonnage.gateway.request import Request

A = "Authorization: Bearer key-a"


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def request(data: bytes) -> Request:
    return Request(method=b"POST", target=b"/v1/completions", headers=[], body=data, version="1.1", keep=True)


def test_the_client_s_key_is_passed_on() -> None:
    async def test() -> None:
        async with before(fine) as (running, [fake]):
            assert (await asked(running, post(b"{}", "/v1/completions", A)))[0] == 200
            assert fake.got[0].headers[b"authorization"] == b"Bearer key-a"

    bounded(test())


def test_a_model_is_sent_to_the_backends_that_list_it() -> None:
    async def test() -> None:
        async with before(fine, fine, fine, models=(("small",), ("large", "lora"), None)) as (running, fakes):
            for model in ("small", "large", "lora", "large"):
                assert (await asked(running, post(body(model=model, prompt="x"))))[0] == 200
            # The third lists none, so that it may serve any: an engine without that path must not be shut out.
            served = [[json.loads(got.body)["model"] for got in fake.got] for fake in fakes]
            assert set(served[0]) <= {"small"}
            assert set(served[1]) <= {"large", "lora"}
            assert sum(map(len, served)) == 4

    bounded(test())


def test_a_model_that_nobody_serves_is_404_and_one_whose_backends_are_down_is_503() -> None:
    async def test() -> None:
        async with before(fine, fine, models=(("small",), ("large",))) as (running, fakes):
            status, text = await asked(running, post(body(model="other", prompt="x")))
            assert (status, json.loads(text)["error"]["message"]) == (404, "The model `other` does not exist.")
            await fakes[1].end()
            await until(lambda: not running.core.backends[1].up)
            assert (await asked(running, post(body(model="large", prompt="x"))))[0] == 503
            assert (await asked(running, post(body(model="small", prompt="x"))))[0] == 200
            assert (await asked(running, post(body(prompt="x"))))[0] == 200  # a body that names none goes anywhere

    bounded(test())


@given(model=st.text(max_size=20), prompt=st.text(max_size=60))
def test_the_model_of_any_body_is_read(model: str, prompt: str) -> None:
    for fields in ({"model": model, "prompt": prompt}, {"metadata": {"model": prompt}, "model": model, "prompt": prompt}):
        for ascii_only in (True, False):
            data = json.dumps(fields, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
            assert request(data).model == model


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"model": 3}', b'{"model": null}', b'["model", "model"]', b'{"model": "a\\', b'"model":"a" "model":"b"']
)
def test_a_body_that_names_no_model_goes_anywhere(data: bytes) -> None:
    assert request(data).model in ("", "a")
