"""Keys, their limits, models by name, aliases and the access log."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.fakes import Fake, Got, asked, before, bounded, fine, get, post, talk, until
from tonnage.gateway.keys import Allowance, Key
from tonnage.gateway.request import Request

A, B = "Authorization: Bearer key-a", "x-api-key: key-b"


def key(name: str, secret: str, **limits: int) -> Key:
    return Key(name=name, sha256=hashlib.sha256(secret.encode()).digest(), **limits)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def request(data: bytes) -> Request:
    return Request(method=b"POST", target=b"/v1/completions", headers=[], body=data, version="1.1", keep=True)


def test_without_a_key_only_health_and_metrics_answer() -> None:
    async def test() -> None:
        async with before(fine, further={"keys": (key("a", "key-a"), key("b", "key-b"))}) as (running, [fake]):
            for headers in ((), ("Authorization: Bearer key-c",), ("Authorization: Basic key-a",), ("Authorization: Bearer",)):
                async with talk(running) as client:
                    client.writer.write(post(b"{}", "/v1/completions", *headers))
                    head = await client.head()
                    assert b" 401 " in head
                    assert b"WWW-Authenticate: Bearer" in head
            assert (await asked(running, get("/v1/models")))[0] == 401
            assert fake.got == []
            for headers in ((A,), (B,), ("authorization: bearer key-a",)):
                assert (await asked(running, post(b"{}", "/v1/completions", *headers)))[0] == 200
            assert (await asked(running, get("/v1/health/ready")))[0] == 200
            assert (await asked(running, get("/metrics")))[0] == 200
            assert not any({b"authorization", b"x-api-key"} & set(got.headers) for got in fake.got)
            assert running.core.refused == {401: 5}

    bounded(test())


def test_without_keys_the_client_s_own_header_is_passed_on() -> None:
    async def test() -> None:
        async with before(fine) as (running, [fake]):
            assert (await asked(running, post(b"{}", "/v1/completions", A)))[0] == 200
            assert fake.got[0].headers[b"authorization"] == b"Bearer key-a"

    bounded(test())


def test_limits_are_those_of_the_key() -> None:
    async def test() -> None:
        keys = (key("a", "key-a", requests_per_minute=2), key("b", "key-b", tokens_per_minute=600))
        async with before(fine, further={"keys": keys}) as (running, _):
            assert [(await asked(running, post(b"{}", "/v1/x", A)))[0] for _ in range(3)] == [200, 200, 429]
            spent = body(prompt="x" * 380, max_tokens=200)  # a quarter of the body's bytes, and 200: about 300
            assert [(await asked(running, post(spent, "/v1/x", B)))[0] for _ in range(3)] == [200, 429, 429]
            async with talk(running) as client:
                client.writer.write(post(b"{}", "/v1/x", A))
                head = await client.head()
            assert 1 <= int(head.split(b"Retry-After: ")[1].split(b"\r\n")[0]) <= 31
            _, page = await asked(running, get("/metrics"))
            assert b'tonnage_gateway_key_requests_total{admitted="no",key="a"} 2.0' in page

    bounded(test())


def test_concurrency_of_a_key_is_counted_until_the_response_has_ended() -> None:
    go = asyncio.Event()

    async def waits(fake: Fake, got: Got, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await fine(fake, got, writer)

    async def test() -> None:
        keys = (key("a", "key-a", concurrency=1), key("b", "key-b", concurrency=1))
        async with before(waits, further={"keys": keys}) as (running, [fake]):
            first = asyncio.create_task(asked(running, post(b"{}", "/v1/x", A)))
            await until(lambda: len(fake.got) == 1)
            assert (await asked(running, post(b"{}", "/v1/x", A)))[0] == 429
            other = asyncio.create_task(asked(running, post(b"{}", "/v1/x", B)))
            await until(lambda: len(fake.got) == 2)
            go.set()
            assert ((await first)[0], (await other)[0]) == (200, 200)
            assert (await asked(running, post(b"{}", "/v1/x", A)))[0] == 200
            assert [account.running for account in running.core.keys.accounts] == [0, 0]

    bounded(test())


@given(
    per_minute=st.integers(1, 1000),
    asks=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 400)), max_size=60),
)
def test_no_minute_takes_more_than_a_bucket_and_its_refill(per_minute: int, asks: list[tuple[float, int]]) -> None:
    bucket, now, taken = Allowance(per_minute, [0.0], 0), 0.0, 0.0
    for gap, amount in asks:
        now += gap
        if bucket.wait_s(amount, now) == 0:
            bucket.take(amount, now)
            taken += min(amount, per_minute)
        else:
            later = now + bucket.wait_s(amount, now) + 1e-6
            assert bucket.wait_s(amount, later) < 1e-6
            now = later
    assert taken <= per_minute * (1 + now / 60) + 1e-6


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


def test_an_alias_changes_the_name_of_the_model_and_nothing_else() -> None:
    async def test() -> None:
        async with before(fine, models=(("large",),), further={"aliases": {"gpt-x": "large"}}) as (running, [fake]):
            data = b'{ "prompt":  "say \\"model\\": \\"gpt-x\\" \xc3\xa9",\n "model" : "gpt-x", "max_tokens":3 }'
            assert (await asked(running, post(data)))[0] == 200
            assert fake.got[0].body == data.replace(b'"model" : "gpt-x"', b'"model" : "large"')
            _, page = await asked(running, get("/v1/models"))
            assert [one["id"] for one in json.loads(page)["data"]] == ["large", "gpt-x"]

    bounded(test())


@given(model=st.text(max_size=20), prompt=st.text(max_size=60), new=st.text(max_size=20))
def test_the_model_of_any_body_is_read_and_renamed(model: str, prompt: str, new: str) -> None:
    for fields in ({"model": model, "prompt": prompt}, {"metadata": {"model": prompt}, "model": model, "prompt": prompt}):
        for ascii_only in (True, False):
            data = json.dumps(fields, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
            found = request(data)
            assert found.model == model
            renamed = found.renamed(new)
            assert json.loads(renamed.body) == {**fields, "model": new}


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"model": 3}', b'{"model": null}', b'["model", "model"]', b'{"model": "a\\', b'"model":"a" "model":"b"']
)
def test_a_body_that_names_no_model_goes_anywhere(data: bytes) -> None:
    assert request(data).model in ("", "a")


def test_the_access_log_has_a_line_for_each_request_and_nothing_of_its_text(tmp_path: Path) -> None:
    path = tmp_path / "access.log"

    async def test() -> None:
        further = {"keys": (key("team", "key-a"),), "access_log": path}
        async with before(fine, models=(("m",),), further=further) as (running, _):
            await asked(running, post(body(model="m", prompt="secret words"), "/v1/completions?secret=1", A))
            await asked(running, post(body(model="other", prompt="secret words"), "/v1/completions", A))

    bounded(test())
    text = path.read_text()
    assert "secret" not in text
    assert "key-a" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(one["key"], one["model"], one["path"], one["status"], one["outcome"]) for one in lines] == [
        ("team", "m", "/v1/completions", 200, "ok"),
        ("team", "other", "/v1/completions", 404, "refused"),
    ]
    assert lines[0]["backend"].startswith("127.0.0.1:")
    assert 0 <= lines[0]["seconds"] < 10
