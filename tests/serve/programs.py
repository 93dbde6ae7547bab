"""Programs of the tests' own, supervised."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tonnage.serve.supervisor import Program, free_ports

SERVER = """
import http.server, signal, subprocess, sys
port, stubborn = int(sys.argv[1]), sys.argv[2] == "stubborn"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("grandchild", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


def program(name: str = "engine", *, kind: str = "plain", port: int | None = None) -> Program:
    """A small server that answers 200."""
    port = free_ports(1)[0] if port is None else port
    return Program(
        name=name, argv=(sys.executable, "-c", SERVER, str(port), kind), address=f"127.0.0.1:{port}"
    )


def runs(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: object, seconds: float = 15.0) -> bool:
    """Wait until a function says yes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False
