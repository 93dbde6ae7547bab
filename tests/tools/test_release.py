"""The release: the same bytes from the same commit, whatever the umask, and what is in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tonnage.version import VERSION
from tools.release import ROOT


def built(output: Path, umask: int) -> dict[str, bytes]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tools.release", str(output)]
    subprocess.run(command, cwd=ROOT, env=env, umask=umask, capture_output=True, text=True, timeout=500, check=True)
    return {path.name: path.read_bytes() for path in output.iterdir()}


@pytest.mark.install
def test_twice_the_same_bytes_and_every_dependency_listed(tmp_path: Path) -> None:
    first, second = built(tmp_path / "first", 0o022), built(tmp_path / "second", 0o077)
    names = {f"tonnage-{VERSION}-py3-none-any.whl", f"tonnage-{VERSION}.tar.gz", f"tonnage-{VERSION}.cdx.json"}
    assert set(first) == names
    assert {name for name in names if first[name] != second[name]} == set()
    listed = json.loads(first[f"tonnage-{VERSION}.cdx.json"])
    pins = re.findall(r"^([\w.\-]+)==([\w.]+)", (ROOT / "requirements" / "core.txt").read_text(), re.MULTILINE)
    assert {(one["name"].lower(), one["version"]) for one in listed["components"]} >= {(name.lower(), version) for name, version in pins}
    assert (listed["metadata"]["component"]["name"], listed["bomFormat"]) == ("tonnage", "CycloneDX")
