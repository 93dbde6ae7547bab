"""Applications of simulated engines, asked without a socket."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from tests.serve.engines import ask
from tonnage.serve.instance import Fleet

JSON = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server in a thread."""

    port: int
    fleet: Fleet

    def post(self, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        status, text = ask(self.port, "POST", path, body)
        return status, json.loads(text)

    def get(self, path: str) -> tuple[int, str]:
        return ask(self.port, "GET", path)

    def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        events = [
            line.removeprefix("data: ")
            for line in ask(self.port, "POST", path, {**body, "stream": True})[1].split("\n\n")
            if line
        ]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]


def idle(server: Server, within_s: float = 5.0) -> bool:
    """Whether the engines hold nothing, at the latest after some seconds."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if all(
            not one.member.live and one.member.engine.kv_blocks_used == 0
            for one in server.fleet.instances
        ):
            return True
        time.sleep(0.02)
    return False
