"""A request is read the same however the network cuts it, and nothing but ``Refused`` comes of wrong bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.fakes import get, post
from tonnage.gateway.request import Refused, Request, RequestReader
from tonnage.gateway.settings import Limits

CHUNKED = b"POST /v1/c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nT: x\r\n\r\n"
WHOLE = (
    post(b'{"a": 1}', "/v1/x?y=1", "X-One: 1"),
    get("/v1/models"),
    CHUNKED,
    get("/v1/x", "Connection: close"),
    post(b"abc", "/v1/up", "Connection: Upgrade", "Upgrade: h2c"),
    b"GET /v1/old HTTP/1.0\r\n\r\n",
)


def read(data: bytes, cuts: list[int]) -> tuple[list[Request], int]:
    """The requests in these bytes, and the status with which the rest was refused (0 for none)."""
    reader = RequestReader(Limits(body=64))
    places = sorted({min(cut, len(data)) for cut in cuts})
    for start, stop in zip([0, *places], [*places, len(data)], strict=True):
        try:
            reader.feed(data[start:stop])
        except Refused as refused:
            return list(reader.ready), refused.status
    return list(reader.ready), 0


cuts = st.lists(st.integers(0, 400), max_size=12)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=4), cuts)
def test_requests_are_read_the_same_however_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    kept = next((i for i, part in enumerate(parts) if b"lose\r\n" in part or b"Upgrade" in part or b"1.0" in part), len(parts) - 1) + 1
    found, status = read(data, cuts)
    assert found[:kept] == [request for part in parts[:kept] for request in read(part, [])[0]]
    assert len(found) >= kept
    assert status in (0, 400)  # 400 for what comes after the last request of a connection


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4), cuts)
def test_wrong_bytes_are_refused_or_read_and_never_anything_else(part: bytes, wrong: list[tuple[int, int]], cuts: list[int]) -> None:
    data = bytearray(part)
    for place, byte in wrong:
        data[place % len(data)] = byte
    whole, cut = read(bytes(data), []), read(bytes(data), cuts)
    assert cut[0] == whole[0]
    for request in cut[0]:
        assert request.target.startswith(b"/")
        assert len(request.body) <= 64
        assert b"\r" not in request.wire(b"b").partition(b"\r\n\r\n")[0].replace(b"\r\n", b"")
