"""The release: the same bytes from the same commit, whatever the umask, and what is in it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tonnage.version import VERSION
from tools.release import ROOT, main, settled


def archive(mtime: int, names: tuple[str, ...], mode: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as target:
        for name in names:
            member = tarfile.TarInfo(name)
            member.mtime, member.size, member.mode, member.uname = mtime, len(name), mode, "somebody"
            target.addfile(member, io.BytesIO(name.encode()))
    return made.getvalue()


def test_a_settled_archive_forgets_when_where_and_by_whom_it_was_made() -> None:
    one = settled(archive(1, ("a/b", "a/c"), 0o600), 1_700_000_000)
    assert one == settled(archive(2_000_000, ("a/c", "a/b"), 0o664), 1_700_000_000)
    assert one != settled(archive(1, ("a/b", "a/c"), 0o600), 1_700_000_001)
    with tarfile.open(fileobj=io.BytesIO(one)) as found:
        assert [(member.name, member.mtime, member.uname) for member in found] == [(name, 1_700_000_000, "") for name in ("a/b", "a/c")]
        assert found.extractfile("a/c").read() == b"a/c"  # type: ignore[union-attr]


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").write_text("")
    assert main([str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert main([]) == 2


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
