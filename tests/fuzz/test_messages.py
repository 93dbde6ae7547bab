"""``tonnage mcp`` under damaged messages: every request is answered once, no file outside of the
root is quoted, memory stays flat."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz.drawn import GROWTH_MB, changed, draws, resident_mb

pytestmark = [pytest.mark.fuzz, pytest.mark.filterwarnings("default")]
ROOT = Path(__file__).parents[2]
BEGIN = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "fuzz", "version": "1"},
}
ANSWER_S = 300  # in which a busy machine answers anything; what takes longer is taken to hang
SMALL = {
    "model": "llama-3.1-8b",
    "lengths": {"isl": 100, "osl": 10},
    "demand": {"peak_rps": 5},
    "search": {"gpu": "h100", "precision": "fp8", "engine": "vllm", "tp": 1},
}
CALLS: list[dict[str, Any]] = [
    {"name": "size", "arguments": SMALL},
    {"name": "size", "arguments": {"model": "llama-3.1-8b", "demand": {"trace": "rows.csv"}}},
    {
        "name": "size",
        "arguments": {
            "model": "config.json",
            "lengths": {"isl": "notes.csv", "osl": 10},
            "demand": {"peak_rps": 1},
        },
    },
    {
        "name": "simulate",
        "arguments": {
            "model": "llama-3.1-8b",
            "isl": 50,
            "osl": 5,
            "request_rate": 4,
            "requests": 20,
        },
    },
    {
        "name": "memory",
        "arguments": {"model": "llama-3.1-8b", "gpu": "h100", "tp": 2, "precision": "fp8"},
    },
    {"name": "compare", "arguments": {"first": SMALL, "second": SMALL}},
    {"name": "catalog", "arguments": {"text": "l40s"}},
]
SECRET = "hunter2-the-canary"


class Server:
    """One ``tonnage mcp``."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-m", "tonnage", "mcp", "--root", str(folder)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": BEGIN})
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def send(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self, message: Any, label: str = "") -> dict[str, Any]:
        """The answer to a message, or to a line of bytes."""
        assert self.process.stdout
        self.send(
            message
            if isinstance(message, bytes)
            else json.dumps(message).encode("utf-8", "surrogatepass")
        )
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        assert ready, f"{label}: no answer in {ANSWER_S} s"
        line = self.process.stdout.readline()
        assert line, f"{label}: the server ended, code {self.process.wait(ANSWER_S)}"
        assert SECRET.encode() not in line, label
        assert b"root:x:" not in line, label
        answer: dict[str, Any] = json.loads(line)
        return answer


def broken(line: bytes, random: Random) -> bytes:
    """A message with some of its bytes changed; it is still one line."""
    for _ in range(random.choice((0, 0, 1, 3))):
        place = random.randrange(len(line))
        line = line[:place] + bytes([random.randrange(256)]) + line[place + random.choice((0, 1)) :]
    return line.replace(b"\n", b" ").replace(b"\r", b" ")


def is_notification(line: bytes) -> bool:
    """Whether a line is a message that asks for no answer, because its id was lost."""
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(message, dict)
        and "id" not in message
        and "method" in message
        and message.get("jsonrpc") == "2.0"
    )


def test_messages(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    (tmp_path / "secret").write_text(SECRET)
    root = tmp_path / "root"
    root.mkdir()
    (root / "rows.csv").write_text(f"timestamp,isl,osl\n0,{SECRET},5\n")
    (root / "notes.csv").write_text(SECRET)
    (root / "config.json").write_text(
        json.dumps({"architectures": [SECRET], "hidden_size": SECRET})
    )
    server, before = Server(root), 0.0
    for call in CALLS:  # the first answer of a kind loads its modules and compiles its loops
        server.answer({"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": call})
    for count, (label, random) in enumerate(draws("messages"), start=1):
        call, what = changed(random.choice(CALLS), random, tmp_path / "canary")
        if random.random() < 0.3:
            call = random.choice(CALLS)
            call = {
                **call,
                "arguments": {
                    **call["arguments"],
                    "model": random.choice(["../secret", "/etc/passwd", "rows.csv", "notes.csv"]),
                },
            }
        message = {"jsonrpc": "2.0", "id": count, "method": "tools/call", "params": call}
        line = broken(json.dumps(message).encode("utf-8", "surrogatepass"), random)
        if is_notification(line):
            server.send(line)
        elif line.strip():
            answer = server.answer(line, f"{label}: {what}")
            assert answer.get("id") in (count, None) or b'"id"' in line, (label, answer)
            assert "result" in answer or "error" in answer, (label, answer)
        if count == 100:
            before = resident_mb(server.process.pid)
    assert server.answer({"jsonrpc": "2.0", "id": "last", "method": "tools/list"})["id"] == "last"
    grown = resident_mb(server.process.pid) - before if before else 0.0
    print(f"tonnage mcp: {grown:+.0f} MB after its first hundred messages")
    assert grown < GROWTH_MB
    assert not (tmp_path / "canary").exists()
    assert server.process.stdin
    server.process.stdin.close()
    assert server.process.wait(ANSWER_S) == 0
