"""``infer`` of the v2 protocol (KServe's open inference protocol): what Triton, MLServer and
KServe's servers answer for any model.

A request holds tensors of so many items. The inputs' names, types and shapes are what the server's
metadata says, or what the caller says where it leaves lengths open. Tensors travel as JSON, as
bytes behind the JSON (the binary tensor extension), or in a message of gRPC. There ``Http2`` takes
the place of ``Secured``: it turns the request that the client writes into frames, and the frames
that come into the reply that the client reads, so that requests are sent, stamped and judged as all
others are.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tonnage.errors import InputError, option
from tonnage.spec.service import Tensor, read_tensor

if TYPE_CHECKING:
    import asyncio


SERVICE = "/inference.GRPCInferenceService"
PIECE = 65_536
WAIT_S = 10.0

NOT_OURS = (
    "host",
    "accept",
    "accept-encoding",
    "content-type",
    "content-length",
    "user-agent",
    "connection",
)
"""Headers of HTTP/1.1 that gRPC has others for."""

STATUS = {"3": 400, "4": 504, "5": 404, "7": 403, "8": 429, "12": 501, "14": 503, "16": 401}
"""HTTP's status for one of gRPC's (google.rpc.Code); 500 for the others."""


# Messages: fields of protobuf, each a number, a kind and a value (protobuf.dev, "Encoding"). The
# numbers are those of KServe's grpc_predict_v2.proto.


def varint(number: int) -> bytes:
    """A number of at least 0 in groups of seven bits, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(encoded) + bytes([number])


def tagged(number: int, value: bytes | str) -> bytes:
    """A field of bytes, a text or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def number_at(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. Raises ValueError: there is none."""
    number = shift = 0
    while place < len(message) and shift <= 63:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
    raise ValueError("no number")


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message. Raises ValueError: it is none."""
    place = 0
    while place < len(message):
        key, place = number_at(message, place)
        kind = key & 7
        if kind == 0:
            value, place = number_at(message, place)
            yield key >> 3, value
            continue
        length, place = (
            number_at(message, place) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), place)
        )
        if length < 0 or place + length > len(message):
            raise ValueError("no field")
        yield key >> 3, message[place : place + length]
        place += length


def enveloped(message: bytes) -> bytes:
    """A message as gRPC sends it: uncompressed, behind its length."""
    return struct.pack(">BI", 0, len(message)) + message


def infer_message(
    model: str, inputs: Sequence[Mapping[str, Any]], values: Sequence[bytes]
) -> bytes:
    """``ModelInferRequest`` in its envelope: inputs as the document over HTTP describes them, and
    the values of each in little-endian.
    """
    described = [
        tagged(1, str(tensor["name"]))
        + tagged(2, str(tensor["datatype"]))
        + tagged(3, b"".join(map(varint, tensor["shape"])))
        for tensor in inputs
    ]
    return enveloped(
        tagged(1, model)
        + b"".join(tagged(5, part) for part in described)
        + b"".join(tagged(7, raw) for raw in values)
    )


def outputs_of(message: bytes) -> dict[str, Any]:
    """``ModelInferResponse`` as its document over HTTP, without values. Raises ValueError: it is
    none.
    """
    outputs = [
        dict(fields(payload))
        for number, payload in fields(message)
        if number == 5 and isinstance(payload, bytes)
    ]
    return {"outputs": [{"name": _text(output.get(1))} for output in outputs]}


def metadata_of(message: bytes) -> dict[str, Any]:
    """``ModelMetadataResponse`` as its document over HTTP. Raises ValueError: it is none."""
    inputs = []
    for number, payload in fields(message):
        if number == 4 and isinstance(payload, bytes):
            parts = list(fields(payload))
            named = {key: _text(value) for key, value in parts if key in (1, 2)}
            shape = [length for key, value in parts if key == 3 for length in _lengths(value)]
            inputs.append({"name": named.get(1, ""), "datatype": named.get(2, ""), "shape": shape})
    return {"inputs": inputs}


def _text(value: bytes | int | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _lengths(value: bytes | int) -> Iterator[int]:
    """Signed numbers, one or packed."""
    place = 0
    while isinstance(value, bytes) and place < len(value):
        number, place = number_at(value, place)
        yield number - 2**64 if number >= 2**63 else number
    if isinstance(value, int):
        yield value - 2**64 if value >= 2**63 else value


def model_metadata(host: str, port: int, model: str) -> str:
    """What the server says of a model, as over HTTP; "" where it does not know it. Raises
    InputError: the package h2 is missing.
    """
    try:
        http = Http2(f"{host}:{port}", read=metadata_of)
    except ModuleNotFoundError:
        raise InputError(f"{option('url')}: gRPC needs h2; pip install 'tonnage[grpc]'") from None
    reply, ended = b"", False
    try:
        with socket.create_connection((host, port), timeout=WAIT_S) as connected:
            connected.sendall(
                http.answers()
                + http.encrypted(
                    f"POST {SERVICE}/ModelMetadata HTTP/1.1\r\n".encode()
                    + b"\r\n"
                    + enveloped(tagged(1, model))
                )
            )
            while not reply and not ended:
                reply, ended = http.decrypted(connected.recv(PIECE))
                connected.sendall(http.answers())
    except OSError:
        return ""
    head, _, body = reply.partition(b"\r\n\r\n")
    return body.decode() if head.startswith(b"HTTP/1.1 200 ") else ""


class Http2:
    """One connection of HTTP/2 without encryption, with one call at a time; ``read`` tells what a
    reply's message says.
    """

    def __init__(
        self, authority: str, read: Callable[[bytes], dict[str, Any]] = outputs_of
    ) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._authority, self._read = authority, read
        self._h2 = H2Connection(config=H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._stream, self._rest, self._body = 0, b"", b""
        self._headers: dict[str, str] = {}

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        """Open the HTTP/2 connection. Raises OSError: it was lost."""
        await loop.sock_sendall(connected, self._h2.data_to_send())

    def encrypted(self, data: bytes) -> bytes:
        """What to send for a request of HTTP/1.1; what the peer's window does not take yet comes
        with ``answers``.
        """
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        request_headers = [
            (name.strip().lower(), value.strip())
            for name, _, value in (line.partition(":") for line in lines)
        ]
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": first.split()[1],
            ":authority": self._authority,
            "te": "trailers",
        }
        headers |= {"content-type": "application/grpc", "user-agent": "tonnage-bench"}
        self._stream, self._rest, self._body, self._headers = (
            self._h2.get_next_available_stream_id(),
            body,
            b"",
            {},
        )
        self._h2.send_headers(
            self._stream,
            [
                *headers.items(),
                *(header for header in request_headers if header[0] not in NOT_OURS),
            ],
        )
        return self.answers()

    def answers(self) -> bytes:
        """The frames that answer what came, and more of the request where its window allows."""
        while self._rest:
            size = min(
                self._h2.local_flow_control_window(self._stream),
                self._h2.max_outbound_frame_size,
                len(self._rest),
            )
            if size <= 0:
                break
            self._h2.send_data(self._stream, self._rest[:size], end_stream=size == len(self._rest))
            self._rest = self._rest[size:]
        return bytes(self._h2.data_to_send())

    def decrypted(self, data: bytes) -> tuple[bytes, bool]:
        """The reply as one of HTTP/1.1 once it has ended, and whether the connection ends."""
        from h2 import events
        from h2.exceptions import H2Error

        try:
            received = self._h2.receive_data(data)
        except H2Error:
            return b"", True
        reply, ended = b"", False
        for event in received:
            if isinstance(event, events.ResponseReceived | events.TrailersReceived):
                self._headers |= {str(name): str(value) for name, value in event.headers or ()}
            elif isinstance(event, events.DataReceived):
                self._body += event.data or b""
                self._h2.acknowledge_received_data(
                    event.flow_controlled_length or 0, event.stream_id
                )
            elif isinstance(event, events.StreamEnded | events.StreamReset):
                reply, self._rest = self._reply(reset=isinstance(event, events.StreamReset)), b""
            ended = ended or isinstance(event, events.ConnectionTerminated)
        return reply, ended

    def _reply(self, *, reset: bool) -> bytes:
        code = self._headers.get("grpc-status", "none")
        status, document = (
            STATUS.get(code, 500),
            {"error": unquote(self._headers.get("grpc-message", "")) or f"gRPC status {code}"},
        )
        if code == "0" and not reset:
            status = 200
            try:
                document = self._read(self._body[5:])
            except ValueError:
                document = {"error": "the reply is no message of the inference protocol"}
        body = json.dumps(document).encode()
        return (
            b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (status, len(body), body)
        )


MOST_BODY = 256_000_000  # Bytes of a request

KINDS_OF_NUMPY = {
    "BOOL": "bool",
    **{
        f"{sign}INT{bits}": f"{sign.lower()}int{bits}"
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """Makes the bodies of inferences: random values, the same for requests of as many items."""

    inputs: tuple[Tensor, ...]  # of the model, with the dimensions of one item
    batched: bool = True  # whether items are the first dimension; a model without batches takes one
    binary: bool = False  # whether values travel as bytes
    called: str = ""  # the model's name where requests are messages of gRPC; "" over HTTP
    seed: int = 0  # of the values
    counter: None = None
    characters: float = 1.0
    exact: bool = True
    _made: dict[int, tuple[bytes, bytes]] = field(default_factory=dict, compare=False)

    def text(self, number: int, tokens: int) -> str:
        """Return no text, since a request consists of its tensors."""
        return ""

    def body(self, items: int, extra: dict[str, Any]) -> tuple[bytes, bytes]:
        """The header lines and body of a request with ``items`` items. Raises InputError: a model
        without batches, beyond ``MOST_BODY``.
        """
        if items not in self._made:
            if items > 1 and not self.batched:
                raise InputError(
                    f"{option('items')}: {items}: the model takes no batches; leave it out"
                )
            self._made[items] = self._body(items, extra)
        return self._made[items]

    def _body(self, items: int, extra: dict[str, Any]) -> tuple[bytes, bytes]:
        import numpy as np

        rng = np.random.default_rng(self.seed)
        parts, described = [], []
        for tensor in self.inputs:
            shape = [items, *tensor.dims] if self.batched else list(tensor.dims)
            if int(np.prod(shape)) * 4 > MOST_BODY:
                raise InputError(
                    f"{option('items')}: {items} items of '{tensor.name}' are more than"
                    f" {MOST_BODY:,} bytes; ask for fewer"
                )
            values = _values(tensor.data_type, shape, rng)
            description: dict[str, Any] = {
                "name": tensor.name,
                "shape": shape,
                "datatype": tensor.data_type,
            }
            if self.binary or self.called:
                parts.append(_bytes_of(values))
                description["parameters"] = {"binary_data_size": len(parts[-1])}
            else:
                description["data"] = values.ravel().tolist()
            described.append(description)
        if self.called:
            return b"", infer_message(self.called, described, parts)
        head = json.dumps({"inputs": described, **extra}, separators=(",", ":")).encode()
        if not self.binary:
            return b"", head
        return b"Inference-Header-Content-Length: %d\r\n" % len(head), head + b"".join(parts)


def _values(data_type: str, shape: list[int], rng: Any) -> Any:
    import numpy as np

    if data_type == "BYTES":
        return np.full(shape, "tonnage", dtype=object)
    kind = np.dtype(KINDS_OF_NUMPY[data_type])
    if kind.kind == "f":
        return np.round(rng.random(shape), 3).astype(kind)
    return rng.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)


def _bytes_of(values: Any) -> bytes:
    """Row by row in little-endian; texts each behind their length in four bytes."""
    if values.dtype != object:
        return bytes(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return b"".join(len(text).to_bytes(4, "little") + text.encode() for text in values.ravel())


def tensors(
    page: str, metadata: str, *, written: tuple[str, ...], binary: bool, seed: int, called: str = ""
) -> Tensors:
    """The inputs of a model: as ``written`` ("pixels=FP32[3,224,224]", the dimensions of one item),
    the rest as the server describes them.

    ``metadata`` is the text at the address ``page``, "" where there is none; the rest as in
    ``Tensors``. Raises InputError: no such model, no inputs known, or a length that neither says.
    """
    where = option("tensor")
    written_inputs = dict(_written(text) for text in written)
    described, batched = _described(metadata)
    unknown = [name for name in written_inputs if described and name not in described]
    if unknown:
        raise InputError(
            f"{where}: '{unknown[0]}' is no input of the model; it has {', '.join(described)}"
        )
    inputs = tuple((described | written_inputs).values())
    if not inputs:
        raise InputError(
            f"{where}: {page} describes no inputs; write them, such as {where}"
            " 'pixels=FP32[3,224,224]'"
        )
    for tensor in inputs:
        if any(length < 0 for length in tensor.dims):
            raise InputError(
                f"{where}: '{tensor.name}' has an open length; write one, such as"
                f" '{tensor.name}={tensor.data_type}[128]'"
            )
        if tensor.data_type not in KINDS_OF_NUMPY and tensor.data_type != "BYTES":
            raise InputError(
                f"{where}: '{tensor.name}' is {tensor.data_type}, of which no values are made; send"
                " another type"
            )
    return Tensors(
        inputs=inputs,
        batched=batched or bool(written_inputs),
        binary=binary,
        called=called,
        seed=seed,
    )


def _written(text: str) -> tuple[str, Tensor]:
    name, _, rest = text.partition("=")
    tensor = read_tensor(name, rest)
    if not name or tensor is None:
        raise InputError(
            f"{option('tensor')}: '{text}' is no tensor; write its name, type and the dimensions of"
            " one item: x=FP32[3,224,224]"
        )
    return name, tensor


def _described(metadata: str) -> tuple[dict[str, Tensor], bool]:
    """The inputs that the server's metadata has, and whether their first dimension is that of
    items.
    """
    try:
        document = json.loads(metadata or "{}")
        rows = [
            (
                str(input_row["name"]),
                str(input_row["datatype"]),
                tuple(map(int, input_row["shape"])),
            )
            for input_row in document.get("inputs") or ()
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}, True
    inputs = {name: Tensor(name=name, data_type=kind, dims=shape) for name, kind, shape in rows}
    batched = all(tensor.dims and tensor.dims[0] < 0 for tensor in inputs.values())
    return (
        {name: replace(tensor, dims=tensor.dims[1:]) for name, tensor in inputs.items()}
        if batched
        else inputs
    ), batched
