"""A chat in the browser with a server that speaks OpenAI's API.

    python chat.py http://127.0.0.1:8000    then open http://127.0.0.1:8080

NIM, vLLM, SGLang, Triton's front end, or a simulated one. The page asks this
program, and this program asks the server, which needs to know no browser.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

LONGEST = 1_000_000  # bytes of a conversation that are read


def chat_server(
    url: str, *, port: int = 8080, max_tokens: int = 200
) -> ThreadingHTTPServer:
    """The page on 127.0.0.1, ready for ``serve_forever``.

    Args:
        url: address of the server; the page asks for the first model it names.
        port: port of the page; 0 takes a free one.
        max_tokens: most tokens of an answer.

    Raises:
        OSError: the server does not answer, or the port is taken.
    """
    with urlopen(f"{url}/v1/models") as answer:
        model = json.load(answer)["data"][0]["id"]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._head(200, "text/html")
            self.wfile.write(Path(__file__).with_name("chat.html").read_bytes())

        def do_POST(self) -> None:
            length = min(int(self.headers["Content-Length"]), LONGEST)
            body = {
                "model": model,
                "messages": json.loads(self.rfile.read(length)),
                "stream": True,
                "max_tokens": max_tokens,
            }
            request = Request(
                f"{url}/v1/chat/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                with urlopen(request) as events:
                    self._head(200, "text/event-stream")
                    for line in events:
                        self.wfile.write(line)
                        self.wfile.flush()
            except HTTPError as refused:
                self._head(refused.code, "text/plain")
                self.wfile.write(refused.read())
            except URLError as error:
                self._head(502, "text/plain")
                self.wfile.write(f"{url}: {error.reason}".encode())

        def _head(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print no line for each request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    server = chat_server(sys.argv[1])
    print(f"http://127.0.0.1:{server.server_port}")
    server.serve_forever()
