"""The release: the same bytes from the same commit, whatever the umask, and what is in it."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tonnage.version import VERSION
from tools.release import ROOT, audited


def built(output: Path, umask: int) -> dict[str, bytes]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tools.release", str(output)]
    subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    return {path.name: path.read_bytes() for path in output.iterdir()}


@pytest.mark.install
def test_twice_the_same_bytes_and_every_dependency_listed(tmp_path: Path) -> None:
    first, second = built(tmp_path / "first", 0o022), built(tmp_path / "second", 0o077)
    names = {
        f"tonnage-{VERSION}-py3-none-any.whl",
        f"tonnage-{VERSION}.tar.gz",
        f"tonnage-{VERSION}.cdx.json",
    }
    assert set(first) == names
    assert {name for name in names if first[name] != second[name]} == set()
    listed = json.loads(first[f"tonnage-{VERSION}.cdx.json"])
    pins = re.findall(
        r"^([\w.\-]+)==([\w.]+)", (ROOT / "requirements" / "core.txt").read_text(), re.MULTILINE
    )
    assert {(one["name"].lower(), one["version"]) for one in listed["components"]} >= {
        (name.lower(), version) for name, version in pins
    }
    assert (listed["metadata"]["component"]["name"], listed["bomFormat"]) == (
        "tonnage",
        "CycloneDX",
    )


class Database(http.server.BaseHTTPRequestHandler):
    """OSV's batches: of two packages, one has a vulnerability."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
        found = [
            {"vulns": [{"id": "PYSEC-1"}, {"id": "CVE-2"}]}
            if one["package"]["name"] == "old"
            else {}
            for one in asked
        ]
        assert {one["package"]["ecosystem"] for one in asked} == {"PyPI"}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": found}).encode())

    def log_message(self, *_: object) -> None:
        pass


def test_dependencies_are_audited_where_the_database_can_be_reached(tmp_path: Path) -> None:
    sbom = tmp_path / "x.cdx.json"
    sbom.write_text(
        json.dumps(
            {"components": [{"name": "good", "version": "1.0"}, {"name": "old", "version": "0.1"}]}
        )
    )
    with http.server.HTTPServer(("127.0.0.1", 0), Database) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert audited(sbom, f"http://127.0.0.1:{server.server_port}") == [
            "old 0.1: PYSEC-1, CVE-2"
        ]
    assert audited(sbom, "http://127.0.0.1:9") is None
