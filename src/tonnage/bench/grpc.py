"""``infer`` over gRPC: the messages of KServe's open inference protocol, and HTTP/2 in place of HTTP/1.1 on a connection of the client.

``Http2`` takes the place of ``Secured``: it turns the request that the client writes into frames, and the frames that come into the reply
that the client reads, so that requests are sent, stamped and judged as all others are.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tonnage.errors import InputError, option

if TYPE_CHECKING:
    import asyncio

SERVICE = "/inference.GRPCInferenceService"
PIECE = 65_536
WAIT_S = 10.0

NOT_OURS = ("host", "accept", "accept-encoding", "content-type", "content-length", "user-agent", "connection")
"""Headers of HTTP/1.1 that gRPC has others for."""

STATUS = {"3": 400, "4": 504, "5": 404, "7": 403, "8": 429, "12": 501, "14": 503, "16": 401}
"""HTTP's status for one of gRPC's (google.rpc.Code); 500 for the others."""


# Messages: fields of protobuf, each a number, a kind and a value (protobuf.dev, "Encoding"). The numbers are those of KServe's
# grpc_predict_v2.proto.


def varint(number: int) -> bytes:
    """A number of at least 0 in groups of seven bits, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(found) + bytes([number])


def field(number: int, value: bytes | str) -> bytes:
    """A field of bytes, a text or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def number_at(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. Raises ValueError: there is none."""
    found = shift = 0
    while place < len(message) and shift <= 63:
        byte = message[place]
        found |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return found, place
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
        length, place = number_at(message, place) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), place)
        if length < 0 or place + length > len(message):
            raise ValueError("no field")
        yield key >> 3, message[place : place + length]
        place += length


def enveloped(message: bytes) -> bytes:
    """A message as gRPC sends it: uncompressed, behind its length."""
    return struct.pack(">BI", 0, len(message)) + message


def infer_message(model: str, inputs: Sequence[Mapping[str, Any]], values: Sequence[bytes]) -> bytes:
    """``ModelInferRequest`` in its envelope: inputs as the document over HTTP describes them, and the values of each in little-endian."""
    described = [
        field(1, str(one["name"])) + field(2, str(one["datatype"])) + field(3, b"".join(map(varint, one["shape"]))) for one in inputs
    ]
    return enveloped(field(1, model) + b"".join(field(5, one) for one in described) + b"".join(field(7, raw) for raw in values))


def outputs_of(message: bytes) -> dict[str, Any]:
    """``ModelInferResponse`` as its document over HTTP, without values. Raises ValueError: it is none."""
    found = [dict(fields(one)) for number, one in fields(message) if number == 5 and isinstance(one, bytes)]
    return {"outputs": [{"name": _text(one.get(1))} for one in found]}


def metadata_of(message: bytes) -> dict[str, Any]:
    """``ModelMetadataResponse`` as its document over HTTP. Raises ValueError: it is none."""
    found = []
    for number, one in fields(message):
        if number == 4 and isinstance(one, bytes):
            parts = list(fields(one))
            named = {key: _text(value) for key, value in parts if key in (1, 2)}
            shape = [length for key, value in parts if key == 3 for length in _lengths(value)]
            found.append({"name": named.get(1, ""), "datatype": named.get(2, ""), "shape": shape})
    return {"inputs": found}


def _text(value: bytes | int | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""


def _lengths(value: bytes | int) -> Iterator[int]:
    """Signed numbers, one or packed."""
    place = 0
    while isinstance(value, bytes) and place < len(value):
        one, place = number_at(value, place)
        yield one - 2**64 if one >= 2**63 else one
    if isinstance(value, int):
        yield value - 2**64 if value >= 2**63 else value


def model_metadata(host: str, port: int, model: str) -> str:
    """What the server says of a model, as its document over HTTP; "" where it does not answer or does not know it.

    Raises InputError: the package that speaks HTTP/2 is missing.
    """
    try:
        http = Http2(f"{host}:{port}", read=metadata_of)
    except ModuleNotFoundError:
        raise InputError(f"{option('url')}: gRPC needs h2; pip install 'tonnage[grpc]'") from None
    said, ended = b"", False
    try:
        with socket.create_connection((host, port), timeout=WAIT_S) as connected:
            connected.sendall(http.answers() + http.encrypted(request_line("ModelMetadata") + b"\r\n" + enveloped(field(1, model))))
            while not said and not ended:
                said, ended = http.decrypted(connected.recv(PIECE))
                connected.sendall(http.answers())
    except OSError:
        return ""
    head, _, body = said.partition(b"\r\n\r\n")
    return body.decode() if head.startswith(b"HTTP/1.1 200 ") else ""


def request_line(method: str) -> bytes:
    """The first line of a call as HTTP/1.1 would have it."""
    return f"POST {SERVICE}/{method} HTTP/1.1\r\n".encode()


class Http2:
    """One connection of HTTP/2 without encryption, with one call at a time.

    Args:
        authority: of the server.
        read: what a reply's message says.
    """

    def __init__(self, authority: str, read: Callable[[bytes], dict[str, Any]] = outputs_of) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self._authority, self._read = authority, read
        self._h2 = H2Connection(config=H2Configuration(client_side=True, header_encoding="utf-8"))
        self._h2.initiate_connection()
        self._stream, self._rest, self._body = 0, b"", b""
        self._headers: dict[str, str] = {}

    async def shake_hands(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        """Begin the connection. Raises OSError: it was lost."""
        await loop.sock_sendall(connected, self._h2.data_to_send())

    def encrypted(self, data: bytes) -> bytes:
        """What to send for a request of HTTP/1.1; what the peer's window does not take yet comes with ``answers``."""
        head, _, body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        given = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        headers = {":method": "POST", ":scheme": "http", ":path": first.split()[1], ":authority": self._authority, "te": "trailers"}
        headers |= {"content-type": "application/grpc", "user-agent": "tonnage-bench"}
        self._stream, self._rest, self._body, self._headers = self._h2.get_next_available_stream_id(), body, b"", {}
        self._h2.send_headers(self._stream, [*headers.items(), *(one for one in given if one[0] not in NOT_OURS)])
        return self.answers()

    def answers(self) -> bytes:
        """What the peer must hear of what came, and more of the request where its window allows."""
        while self._rest:
            size = min(self._h2.local_flow_control_window(self._stream), self._h2.max_outbound_frame_size, len(self._rest))
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
            found = self._h2.receive_data(data)
        except H2Error:
            return b"", True
        said, ended = b"", False
        for event in found:
            if isinstance(event, events.ResponseReceived | events.TrailersReceived):
                self._headers |= {str(name): str(value) for name, value in event.headers or ()}
            elif isinstance(event, events.DataReceived):
                self._body += event.data or b""
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
            elif isinstance(event, events.StreamEnded | events.StreamReset):
                said, self._rest = self._reply(reset=isinstance(event, events.StreamReset)), b""
            ended = ended or isinstance(event, events.ConnectionTerminated)
        return said, ended

    def _reply(self, *, reset: bool) -> bytes:
        code = self._headers.get("grpc-status", "none")
        status, document = STATUS.get(code, 500), {"error": unquote(self._headers.get("grpc-message", "")) or f"gRPC status {code}"}
        if code == "0" and not reset:
            status = 200
            try:
                document = self._read(self._body[5:])
            except ValueError:
                document = {"error": "the reply is no message of the inference protocol"}
        body = json.dumps(document).encode()
        return b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
