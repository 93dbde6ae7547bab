"""`bench --endpoint-type infer` against a small v2 server of the test's own, and the service file
that its runs make."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from contextlib import nullcontext
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from tests.answering import answering
from tonnage.api.question.bench import prepare_bench
from tonnage.bench.infer import (
    Http2,
    Tensors,
    enveloped,
    fields,
    infer_message,
    metadata_of,
    model_metadata,
    number_at,
    outputs_of,
    tagged,
    tensors,
    varint,
)
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.spec.service import Tensor

INPUTS = [
    {"name": "x", "datatype": "FP32", "shape": [-1, 3]},
    {"name": "words", "datatype": "BYTES", "shape": [-1, 1]},
]


class Server:
    """The v2 protocol, metadata and infer with values as JSON or as bytes, of a model that sums its
    numbers; keeps what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.inputs = INPUTS
        self.fails = False

    def reply(self, path: str, headers: Message, data: bytes) -> tuple[int, bytes]:
        if not data:
            known = path == "/v2/models/summing"
            return 200 if known else 404, json.dumps(
                {"name": "summing", "inputs": self.inputs} if known else {}
            ).encode()
        head = int(headers.get("Inference-Header-Content-Length", len(data)))
        asked, rest = json.loads(data[:head]), data[head:]
        for one in asked["inputs"]:
            if "data" not in one:
                size = one["parameters"]["binary_data_size"]
                one["bytes"], rest = rest[:size], rest[size:]
        self.asked.append({"path": path, "left": rest, **asked})
        time.sleep(0.002 + 0.001 * asked["inputs"][0]["shape"][0])
        return (
            200,
            json.dumps(
                {"error": "no memory"}
                if self.fails
                else {"outputs": [{"name": "y", "data": [0.0]}]}
            ).encode(),
        )


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with answering(made.reply) as made.url:
        yield made


def asked(server: Server, *words: str) -> list[str]:
    fixed = [
        "--model",
        "summing",
        "--endpoint-type",
        "infer",
        "--no-selftest",
        "--metrics-url",
        "none",
    ]
    return ["bench", "--url", server.url, *fixed, *words]


def test_runs_of_several_items_make_a_service_file(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, file = tmp_path / "runs", tmp_path / "service.yaml"
    load = [
        "--items",
        "1,4",
        "--concurrency",
        "1,2",
        "--request-count",
        "12",
        "--artifact-dir",
        str(runs),
    ]
    run(asked(server, *load))
    assert "inferences/s" in capsys.readouterr().out
    assert {path.name for path in runs.iterdir()} == {
        f"items-{n}-concurrency-{c}" for n in (1, 4) for c in (1, 2)
    }
    shapes = {tuple(one["shape"]) for sent in server.asked for one in sent["inputs"]}
    assert shapes == {(1, 3), (1, 1), (4, 3), (4, 1)}
    assert {sent["path"] for sent in server.asked} == {"/v2/models/summing/infer"}
    assert run(["calibrate", str(runs), "--include-invalid", "--output", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # it sleeps so long at least
    assert found["times_ms"]["summing"]["4"] >= found["times_ms"]["summing"]["1"] > 3
    assert len(found["loads"]) == 2
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert list(written["service"]["models"]["summing"]["time"]) == [1, 4]
    assert run(["size", str(file), "--requests", "300", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["servers"] == 1


def test_measured_times_take_the_place_of_those_of_a_file(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, old, new = tmp_path / "runs", tmp_path / "old.yaml", tmp_path / "new.yaml"
    run(asked(server, "--concurrency", "1", "--request-count", "6", "--artifact-dir", str(runs)))
    old.write_text(
        "service: {models: {summing: {time: {1: 9s}}}}\ntraffic: [{to: summing, rate: 5}]\nlatency:"
        " p99<=1s\n",
        encoding="utf-8",
    )
    assert run(["calibrate", str(old), str(runs), "--include-invalid", "--output", str(new)]) == 0
    written = yaml.safe_load(new.read_text(encoding="utf-8"))
    assert float(written["service"]["models"]["summing"]["time"][1].removesuffix("ms")) < 1000
    assert written["traffic"] == [{"to": "summing", "rate": 5}]
    old.write_text(old.read_text(encoding="utf-8").replace("summing", "other"), encoding="utf-8")
    capsys.readouterr()
    assert run(["calibrate", str(old), str(runs), "--include-invalid"]) == 2
    assert "has no 'summing', which was measured; it has other" in capsys.readouterr().err


def test_bytes_hold_the_values_that_json_holds(server: Server) -> None:
    for words in ((), ("--binary-tensors",)):
        run(asked(server, "--items", "2", "--concurrency", "1", "--request-count", "1", *words))
    plain, packed = server.asked
    assert packed["left"] == b""
    numbers = np.frombuffer(packed["inputs"][0]["bytes"], "<f4")
    assert numbers.tolist() == pytest.approx(plain["inputs"][0]["data"])
    texts = packed["inputs"][1]["bytes"]
    assert texts == 2 * (len(b"tonnage").to_bytes(4, "little") + b"tonnage")
    assert plain["inputs"][1]["data"] == ["tonnage", "tonnage"]


def test_an_error_in_the_reply_fails_the_request(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fails = True
    assert run(asked(server, "--concurrency", "1", "--request-count", "3", "--json")) == 3
    assert json.loads(capsys.readouterr().out)["errors_by_kind"] == {"error in the reply": 3}


def test_what_the_metadata_leaves_open_is_asked_for(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ("--concurrency", "1", "--request-count", "1")
    server.inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
    assert run(asked(server, *load)) == 2
    assert "'x' has an open length; write one, such as 'x=FP32[128]'" in capsys.readouterr().err
    assert run(asked(server, *load, "--tensor", "x=FP32[5]", "--json")) in (0, 3)
    assert server.asked[-1]["inputs"][0]["shape"] == [1, 5]
    capsys.readouterr()
    for words, said in (
        (("--tensor", "z=FP32[5]"), "'z' is no input of the model; it has x"),
        (("--tensor", "x=FP32"), "'x=FP32' is no tensor"),
        (("--isl", "5"), "--isl: an inference has no tokens; give --items"),
    ):
        assert run(asked(server, *load, *words)) == 2
        assert said in capsys.readouterr().err
    server.inputs = []
    assert run(asked(server, *load)) == 2
    assert "describes no inputs; write them" in capsys.readouterr().err


def test_items_belong_to_an_inference(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--isl",
        "5",
        "--osl",
        "5",
        "--concurrency",
        "1",
        "--request-count",
        "1",
        "--items",
        "2",
    ]
    assert run(["bench", "--url", "http://127.0.0.1:9", "--model", "m", *words]) == 2
    assert "--items: belongs to an inference; add --endpoint-type infer" in capsys.readouterr().err


# The messages of the inference protocol over gRPC; ``tests/engines/test_mlserver.py`` sends them to
# a server.

ASKED: dict[str, Any] = {"url": "grpc://127.0.0.1:9", "model": "m", "concurrency": 1}


def test_numbers_and_fields_are_written_as_protobuf_writes_them() -> None:
    assert varint(300) == b"\xac\x02"  # protobuf.dev, Encoding, "Base 128 Varints"
    assert tagged(2, "testing") == b"\x12\x07testing"  # the same, "Length-Delimited Records"
    message = (
        tagged(1, "m") + b"\x18" + varint(2**40) + b"\x2d\x00\x00\x00\x00" + b"\x31" + bytes(8)
    )
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
    assert outputs_of(tagged(1, "m") + tagged(5, tagged(1, "y") + tagged(2, "FP32"))) == {
        "outputs": [{"name": "y"}]
    }
    open_length = b"\xff" * 9 + b"\x01"
    one = tagged(1, "x") + tagged(2, "FP32") + tagged(3, open_length + b"\x04")
    unpacked = tagged(1, "k") + tagged(2, "INT64") + b"\x18\x05\x18\x07"
    assert metadata_of(tagged(1, "m") + tagged(4, one) + tagged(4, unpacked)) == {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "k", "datatype": "INT64", "shape": [5, 7]},
        ]
    }


def test_a_long_request_goes_in_frames_and_no_further_than_the_window() -> None:
    sent: list[tuple[int, bool]] = []
    peer = SimpleNamespace(
        window=25,
        max_outbound_frame_size=10,
        local_flow_control_window=lambda _: peer.window,
        data_to_send=bytes,
    )

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
    sent.clear()
    peer.window, peer.max_outbound_frame_size, http._rest = 9_000, 5_000, bytes(7_000)
    http.answers()
    assert sent == [(5_000, False), (2_000, True)]


def test_grpc_is_of_inferences_alone() -> None:
    for asked in ({}, {"endpoint_type": "infer", "extra_inputs": ("a:1",)}):
        with pytest.raises(
            InputError, match=r"url: gRPC has (endpoint_type infer|no extra_inputs)"
        ):
            prepare_bench(**ASKED, **asked)


def described(*rows: tuple[str, str, list[int]]) -> str:
    names = ("name", "datatype", "shape")
    return json.dumps({"inputs": [dict(zip(names, row, strict=True)) for row in rows]})


X = ("x", "FP32", [-1, 3])


@pytest.mark.parametrize(
    ("metadata", "written", "inputs", "batched"),
    [
        (described(X), (), [("x", "FP32", (3,))], True),
        (described(("x", "FP32", [2, 3])), (), [("x", "FP32", (2, 3))], False),
        # one without a first dimension of items: none has it
        (
            described(X, ("k", "INT8", [4])),
            ("x=FP32[1,3]",),
            [("x", "FP32", (1, 3)), ("k", "INT8", (4,))],
            True,
        ),
        (described(("x", "FP32", [])), (), [("x", "FP32", ())], False),
        (described(X), ("x=FP16[5]",), [("x", "FP16", (5,))], True),
        ("", ("x=FP16[5]", "y=INT8[1]"), [("x", "FP16", (5,)), ("y", "INT8", (1,))], True),
        ("no JSON", ("x=FP16[5]",), [("x", "FP16", (5,))], True),
        ('{"inputs": null}', ("x=FP16[5]",), [("x", "FP16", (5,))], True),
        ('{"inputs": [{"name": "z"}]}', ("x=FP16[5]",), [("x", "FP16", (5,))], True),
        ("[]", ("x=FP16[5]",), [("x", "FP16", (5,))], True),
        (described(("x", "FP32", [2, 3])), ("x=FP32[7]",), [("x", "FP32", (7,))], True),
    ],
)
def test_inputs_by_the_server_and_by_the_caller(
    metadata: str,
    written: tuple[str, ...],
    inputs: list[tuple[str, str, tuple[int, ...]]],
    batched: bool,
) -> None:
    made = tensors("page", metadata, written=written, binary=False, seed=4, called="m")
    assert [(tensor.name, tensor.data_type, tensor.dims) for tensor in made.inputs] == inputs
    assert (made.batched, made.binary, made.called, made.seed) == (batched, False, "m", 4)
    assert (made.text(1, 2), made.counter, made.characters, made.exact) == ("", None, 1.0, True)
    assert tensors("page", metadata, written=written, binary=True, seed=4).called == ""


@pytest.mark.parametrize(
    ("metadata", "written", "words"),
    [
        ("", (), "page describes no inputs"),
        (described(X), ("y=FP32[1]",), "'y' is no input of the model; it has x"),
        (described(("x", "FP32", [-1, -1])), (), "'x' has an open length"),
        (described(("x", "FP8", [-1, 1])), (), "'x' is FP8, of which no values are made"),
        ("", ("=FP32[1]",), "'=FP32\\[1\\]' is no tensor"),
    ],
)
def test_inputs_that_are_not_known_are_refused(
    metadata: str, written: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        tensors("page", metadata, written=written, binary=False, seed=4)


def body(data_type: str, dims: tuple[int, ...] = (2,), items: int = 3, **further: Any) -> Any:
    made = Tensors(inputs=(Tensor(name="x", data_type=data_type, dims=dims),), **further)
    return made.body(items, {"id": "a"})


@pytest.mark.parametrize(
    ("data_type", "low", "high", "size"),
    [
        ("FP16", 0, 1, 2),
        ("FP32", 0, 1, 4),
        ("FP64", 0, 1, 8),
        ("INT8", 0, 99, 1),
        ("INT64", 0, 99, 8),
        ("UINT16", 0, 99, 2),
        ("BOOL", 0, 1, 1),
    ],
)
def test_values_of_each_type(data_type: str, low: float, high: float, size: int) -> None:
    """Two hundred values: numbers of three decimals from 0 to 1, whole ones to 99, or truths."""
    head, data = body(data_type, (100,), items=2, seed=5)
    document = json.loads(data)
    [only] = document["inputs"]
    assert (head, document["id"], only["shape"]) == (b"", "a", [2, 100])
    assert (only["name"], only["datatype"]) == ("x", data_type)
    values = only["data"]
    assert len(values) == 200
    assert low <= min(values) < max(values) <= high
    assert max(values) > 0.9 * high
    whole = data_type not in ("FP16", "FP32", "FP64")
    assert all(value == int(value) for value in values) == whole
    assert all(isinstance(value, bool) for value in values) == (data_type == "BOOL")
    head, data = body(data_type, (100,), items=2, seed=5, binary=True)
    length = int(head.removeprefix(b"Inference-Header-Content-Length: ").removesuffix(b"\r\n"))
    described = json.loads(data[:length])["inputs"][0]
    assert described == {
        "name": "x",
        "shape": [2, 100],
        "datatype": data_type,
        "parameters": {"binary_data_size": 200 * size},
    }
    kind = "<" + ("?" if data_type == "BOOL" else f"{data_type[0].lower().replace('b', '?')}{size}")
    assert np.frombuffer(data[length:], kind).tolist() == pytest.approx(values)
    assert (
        body(data_type, (100,), items=2, seed=6)[1] != body(data_type, (100,), items=2, seed=5)[1]
    )


def test_texts_travel_behind_their_lengths() -> None:
    _, data = body("BYTES", (2,), items=1)
    assert json.loads(data)["inputs"][0]["data"] == ["tonnage", "tonnage"]
    head, data = body("BYTES", (2,), items=1, binary=True)
    length = int(head.split(b":")[1])
    assert data[length:] == 2 * (b"\x07\0\0\0" + b"tonnage")


def test_a_model_without_batches_takes_one_item_and_no_request_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, data = body("INT8", (2, 2), items=1, batched=False)
    assert json.loads(data)["inputs"][0]["shape"] == [2, 2]
    with pytest.raises(InputError, match="2: the model takes no batches"):
        body("INT8", items=2, batched=False)
    monkeypatch.setattr("tonnage.bench.infer.MOST_BODY", 24)
    assert body("INT8", (2,), items=3)
    with pytest.raises(InputError, match="4 items of 'x' are more than 24 bytes"):
        body("INT8", (2,), items=4)


def test_equal_requests_are_made_once_and_a_message_holds_the_bytes() -> None:
    made = Tensors(inputs=(Tensor(name="x", data_type="INT8", dims=(2,)),), called="m")
    head, message = made.body(3, {})
    assert made.body(3, {})[1] is message
    assert made.body(2, {})[1] is not message
    parts = list(fields(message[5:]))
    assert (head, [number for number, _ in parts]) == (b"", [1, 5, 7])
    assert parts[0][1] == b"m"
    assert dict(fields(bytes(parts[1][1]))) == {1: b"x", 2: b"INT8", 3: b"\x03\x02"}  # type: ignore[arg-type]
    assert len(parts[2][1]) == 6  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (2**63, b"\x80" * 9 + b"\x01")],
)
def test_numbers_by_hand(number: int, written: bytes) -> None:
    assert varint(number) == written
    assert number_at(b"\x05" + written, 1) == (number, 1 + len(written))
    with pytest.raises(ValueError, match="no number"):
        number_at(b"\xff" * 10 + b"\x01", 0)


def test_a_message_that_is_a_text_or_half_of_one() -> None:
    assert tagged(1, "ä") == b"\x0a\x02\xc3\xa4"
    assert outputs_of(b"\x28\x07" + tagged(5, b"\x08\x03")) == {"outputs": [{"name": ""}]}
    assert metadata_of(b"\x20\x07" + tagged(4, tagged(2, "INT8"))) == {
        "inputs": [{"name": "", "datatype": "INT8", "shape": []}]
    }


def test_the_metadata_of_a_model_is_asked_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call carries the model's name in field 1, as ModelMetadataRequest has it."""
    sent: list[bytes] = []
    replies: list[tuple[bytes, bool]] = []

    class Http:
        def __init__(self, authority: str, read: Any) -> None:
            assert (authority, read) == ("h:1", metadata_of)

        def answers(self) -> bytes:
            return b"<answers>"

        def encrypted(self, data: bytes) -> bytes:
            return data

        def decrypted(self, data: bytes) -> tuple[bytes, bool]:
            assert data == b"frames"
            return replies.pop(0)

    wire = nullcontext(SimpleNamespace(sendall=sent.append, recv=lambda size: b"frames"))
    monkeypatch.setattr("tonnage.bench.infer.Http2", Http)
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: wire)
    for last, said in (
        ((b"HTTP/1.1 200 -\r\nA: b\r\n\r\n{}", False), "{}"),
        ((b"HTTP/1.1 404 -\r\n\r\n{}", False), ""),
        ((b"", True), ""),
    ):
        sent.clear()
        replies[:] = [(b"", False), last]
        assert model_metadata("h", 1, "m") == said
        assert sent == [
            b"<answers>POST /inference.GRPCInferenceService/ModelMetadata HTTP/1.1\r\n\r\n"
            b"\0\0\0\0\x03\x0a\x01m",
            b"<answers>",
            b"<answers>",
        ]

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    assert model_metadata("h", 1, "m") == ""


def replied(**fields: Any) -> tuple[int, Any]:
    """Status and document of a reply with these headers and this body."""
    http = object.__new__(Http2)
    http._read, http._body = outputs_of, fields.pop("body", b"")
    reset = fields.pop("reset", False)
    http._headers = {name.replace("_", "-"): value for name, value in fields.items()}
    head, _, data = http._reply(reset=reset).partition(b"\r\n\r\n")
    first, kind, length = head.split(b"\r\n")
    assert (kind, length) == (
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(data),
    )
    return int(first.removeprefix(b"HTTP/1.1 ").removesuffix(b" -")), json.loads(data)


def test_a_reply_of_grpc_becomes_one_of_http() -> None:
    good = enveloped(tagged(5, tagged(1, "y")))
    assert replied(grpc_status="0", body=good) == (200, {"outputs": [{"name": "y"}]})
    assert replied(grpc_status="0", body=good, reset=True) == (500, {"error": "gRPC status 0"})
    assert replied(grpc_status="0", body=b"\0\0\0\0\1\x0b") == (
        200,
        {"error": "the reply is no message of the inference protocol"},
    )
    assert replied(grpc_status="5", grpc_message="not%20here") == (404, {"error": "not here"})
    assert replied(grpc_status="2") == (500, {"error": "gRPC status 2"})
    assert replied() == (500, {"error": "gRPC status none"})
    codes = ("3", "4", "7", "8", "12", "14", "16")
    assert [replied(grpc_status=code)[0] for code in codes] == [400, 504, 403, 429, 501, 503, 401]


def test_a_length_that_is_left_open_is_below_zero_packed_or_not() -> None:
    """-1 and the least number that there is, as ten bytes; the largest that is not below zero."""
    for value, written in (
        (-1, b"\xff" * 9 + b"\x01"),
        (-(2**63), b"\x80" * 9 + b"\x01"),
        (2**63 - 1, b"\xff" * 8 + b"\x7f"),
    ):
        for shape in (b"\x18" + written, tagged(3, written)):
            [row] = metadata_of(tagged(4, tagged(1, "x") + shape))["inputs"]
            assert row == {"name": "x", "datatype": "", "shape": [value]}


def test_the_first_input_that_is_not_known_is_named_and_all_that_are() -> None:
    metadata = described(X, ("k", "INT8", [-1, 4]))
    for written in (("y=FP32[1]", "z=FP32[1]"), ("x=FP32[1]", "y=FP32[1]", "z=FP32[1]")):
        with pytest.raises(InputError, match=r"'y' is no input of the model; it has x, k$"):
            tensors("page", metadata, written=written, binary=False, seed=4)


def test_without_its_package_grpc_is_refused_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("h2")

    monkeypatch.setattr("tonnage.bench.infer.Http2", missing)
    with pytest.raises(InputError, match=r"url: gRPC needs h2; pip install 'tonnage\[grpc\]'"):
        model_metadata("h", 1, "m")
