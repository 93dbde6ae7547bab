"""The messages of the inference protocol over gRPC; ``tests/engines/test_mlserver.py`` sends them to a server."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.api.question.bench import prepare_bench
from tonnage.bench.infer import Http2, enveloped, fields, infer_message, metadata_of, outputs_of, tagged, varint
from tonnage.errors import InputError

ASKED: dict[str, Any] = {"url": "grpc://127.0.0.1:9", "model": "m", "concurrency": 1}


def test_numbers_and_fields_are_written_as_protobuf_writes_them() -> None:
    assert varint(300) == b"\xac\x02"  # protobuf.dev, Encoding, "Base 128 Varints"
    assert tagged(2, "testing") == b"\x12\x07testing"  # the same, "Length-Delimited Records"
    message = tagged(1, "m") + b"\x18" + varint(2**40) + b"\x2d\x00\x00\x00\x00" + b"\x31" + bytes(8)
    assert list(fields(message)) == [(1, b"m"), (3, 2**40), (5, bytes(4)), (6, bytes(8))]
    for broken in (b"\x12\x07test", b"\x08", b"\x0b", b"\x80"):
        with pytest.raises(ValueError, match="no "):
            list(fields(broken))


def test_a_request_has_a_description_and_values_of_each_input() -> None:
    raw = struct.pack("<4f", 1, 2, 3, 4)
    sent = infer_message("m", [{"name": "x", "datatype": "FP32", "shape": [1, 300]}], [raw])
    assert sent[:5] == struct.pack(">BI", 0, len(sent) - 5)
    parts = list(fields(sent[5:]))
    assert [number for number, _ in parts] == [1, 5, 7]
    assert dict(fields(bytes(parts[1][1]))) == {1: b"x", 2: b"FP32", 3: b"\x01\xac\x02"}  # type: ignore[arg-type]
    assert parts[2][1] == raw
    assert enveloped(b"") == bytes(5)


def test_answers_become_the_documents_of_http() -> None:
    assert outputs_of(tagged(1, "m") + tagged(5, tagged(1, "y") + tagged(2, "FP32"))) == {"outputs": [{"name": "y"}]}
    open_length = b"\xff" * 9 + b"\x01"
    one = tagged(1, "x") + tagged(2, "FP32") + tagged(3, open_length + b"\x04")
    unpacked = tagged(1, "k") + tagged(2, "INT64") + b"\x18\x05\x18\x07"
    assert metadata_of(tagged(1, "m") + tagged(4, one) + tagged(4, unpacked)) == {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}, {"name": "k", "datatype": "INT64", "shape": [5, 7]}]
    }


def test_a_long_request_goes_in_frames_and_no_further_than_the_window() -> None:
    sent: list[tuple[int, bool]] = []
    peer = SimpleNamespace(window=25, max_outbound_frame_size=10, local_flow_control_window=lambda _: peer.window, data_to_send=bytes)

    def send_data(_: int, data: bytes, *, end_stream: bool) -> None:
        sent.append((len(data), end_stream))
        peer.window -= len(data)

    peer.send_data = send_data
    http = object.__new__(Http2)
    http._h2, http._stream, http._rest = peer, 1, bytes(32)
    http.answers()
    assert sent == [(10, False), (10, False), (5, False)]
    peer.window = 100
    http.answers()
    assert sent[3:] == [(7, True)]


def test_grpc_is_of_inferences_alone() -> None:
    for asked in ({}, {"endpoint_type": "infer", "extra_inputs": ("a:1",)}):
        with pytest.raises(InputError, match=r"url: gRPC has (endpoint_type infer|no extra_inputs)"):
            prepare_bench(**ASKED, **asked)
