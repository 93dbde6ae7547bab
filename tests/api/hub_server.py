"""A hub on 127.0.0.1 with the paths of Hugging Face: good repositories, and gated, missing, slow,
hostile ones and such that lead away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DEEP = "[" * 100_000 + "]" * 100_000


class Hub(ThreadingHTTPServer):
    """Repositories by name, each a file's bytes by its name; ``asked`` holds what came in."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, dict[str, bytes]], elsewhere: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.elsewhere = elsewhere  # address to which repositories of the owner "away" lead
        self.asked: list[tuple[str, str | None]] = []  # path and Authorization

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        parts = self.path.lstrip("/").removeprefix("api/resolve-cache/").split("/")
        owner, name, file = parts[0], "/".join(parts[:2]), parts[-1]
        token = self.headers.get("Authorization")
        if owner == "gated" and token != "Bearer hf_right":
            self._end(403 if token else 401)
        elif owner == "broken" and parts[-1] == "hf_quant_config.json":
            self._end(500)
        elif owner == "drip" or (owner == "late" and parts[-1] == "model.safetensors.index.json"):
            self._drip()
        elif owner == "moved" and not self.path.startswith("/api/"):
            self._end(307, Location=f"/api/resolve-cache{self.path}")
        elif owner == "away":
            self._end(307, Location=f"{self.server.elsewhere}/plain/{'/'.join(parts[1:])}")
        elif owner == "circle":
            self._end(307, Location=self.path)
        elif owner == "cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{")
        else:
            body = self.server.repositories.get(name, {}).get(file)
            self._end(404 if body is None else 200, body or b"")

    def _end(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in {
            "X-Repo-Commit": COMMIT,
            **headers,
            "Content-Length": str(len(body)),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            with suppress(ConnectionError):  # the client has left
                self.wfile.write(body)

    def _drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(600):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            return


@contextmanager
def hub(repositories: dict[str, dict[str, Any]], elsewhere: str = "") -> Iterator[Hub]:
    """A hub with these repositories, whose files are bytes or values that become JSON."""
    files = {
        name: {
            file: value if isinstance(value, bytes) else json.dumps(value).encode()
            for file, value in held.items()
        }
        for name, held in repositories.items()
    }
    with Hub(files, elsewhere) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
