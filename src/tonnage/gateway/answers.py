"""The responses that the gateway makes itself, as bytes."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

JSON = "application/json"


def response(
    status: int, body: bytes, *, kind: str = JSON, close: bool = False, further: tuple[str, ...] = (), head: bool = False
) -> bytes:
    """A whole response.

    Args:
        status: its code.
        body: its body, which is left out of a response to HEAD.
        kind: content type.
        close: whether the connection ends with it.
        further: header lines.
        head: whether the request's method was HEAD.
    """
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *further]
    if close:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if head else body)


def document(status: int, value: Any, *, close: bool = False, head: bool = False) -> bytes:
    """A response with a JSON body."""
    return response(status, json.dumps(value).encode(), close=close, head=head)


KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def refusal(status: int, message: str, *, close: bool = False, head: bool = False, retry_s: float = 1.0) -> bytes:
    """An error in the form of the OpenAI API; 429 and 503 say when to come again, 401 how."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": status}}).encode()
    further = {401: ("WWW-Authenticate: Bearer",), 429: _later(retry_s), 503: _later(retry_s)}.get(status, ())
    return response(status, body, close=close, head=head, further=further)


def _later(seconds: float) -> tuple[str, ...]:
    return (f"Retry-After: {max(math.ceil(seconds), 1)}",)
