"""What watch is told: servers that refuse, and answers that are too deep."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING

from tests.watch.prometheus_server import Stand
from tonnage.cli.main import run
from tonnage.watch import settings

if TYPE_CHECKING:
    import pytest


def test_what_the_server_refuses_and_no_server_are_one_line(
    server: Stand, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workload", "from-prometheus", server.url, "--select", 'pod="none"']) == 2
    assert "answers 400 to count by (__name__)" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", "http://127.0.0.1:9"]) == 1
    assert "no answer of a Prometheus" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", server.url, "--header", "nothing"]) == 2
    assert "is no header; write such as" in capsys.readouterr().err
    assert run(["workload", "from-prometheus", server.url, "--forecast", "6mo"]) == 2
    assert "needs the systems of a plan" in capsys.readouterr().err


class Deep(http.server.BaseHTTPRequestHandler):
    """A server whose answers are nested too deeply, or hold a number of thousands of digits."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            b"[" * 100_000
            if self.path != "/digits"
            else b'{"version": "' + b"9" * 5_000 + b'", "n": ' + b"9" * 5_000 + b"}"
        )

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_answers_that_are_too_deep_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Deep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run(["workload", "from-prometheus", url]) == 1
        assert "no answer of a Prometheus" in capsys.readouterr().err
        assert settings._json(f"{url}/deep") == settings._json(f"{url}/digits") == {}
        server.shutdown()
    assert settings._plain("9" * 5_000) == "9" * 5_000
