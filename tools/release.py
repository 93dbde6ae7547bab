"""Builds what is published: wheel, sdist, and the list of their dependencies (SBOM), the same bytes
from the same commit.

    ./release dist

It takes what the last commit holds, and no change that is not committed. Every file is as old as
that commit (or as SOURCE_DATE_EPOCH says), and `twine check` reads what a registry would.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

from tonnage.errors import TonnageError
from tonnage.version import VERSION

ROOT = Path(__file__).parents[1]


def main(arguments: list[str]) -> int:
    """Build into an empty folder; the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(
            "./release FOLDER builds the wheel, the sdist and the SBOM into an empty folder",
            file=sys.stderr,
        )
        return 2
    try:
        *built, sbom = release(Path(arguments[0]).absolute())
        for path in (*built, sbom):
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
        known = audited(sbom)
    except (TonnageError, subprocess.CalledProcessError) as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    if known is None:
        print(
            "dependencies are not audited: the OSV database cannot be reached; the SBOM lists them",
            file=sys.stderr,
        )
        return 0
    print("\n".join(known) or "dependencies audited: OSV has no vulnerability of these versions")
    return 1 if known else 0


OSV = "https://api.osv.dev"  # the database of google.github.io/osv.dev


def audited(sbom: Path, database: str = OSV) -> list[str] | None:
    """Known vulnerabilities of the versions in an SBOM, a line each; None where the database cannot
    be reached.
    """
    listed = json.loads(sbom.read_text(encoding="utf-8"))["components"]
    questions = [
        {"version": part["version"], "package": {"name": part["name"], "ecosystem": "PyPI"}}
        for part in listed
    ]
    asked = urllib.request.Request(
        f"{database}/v1/querybatch", json.dumps({"queries": questions}).encode()
    )
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            results = json.load(answer)["results"]
    except OSError:
        return None
    pairs = zip(listed, results, strict=True)
    return [
        f"{part['name']} {part['version']}: {', '.join(one['id'] for one in found['vulns'])}"
        for part, found in pairs
        if found.get("vulns")
    ]


def release(output: Path) -> list[Path]:
    """What was built, checked.

    Raises:
        TonnageError: the folder holds something.
        CalledProcessError: a program failed.
    """
    if output.exists() and any(output.iterdir()):
        raise TonnageError(f"{output}: is not empty; name a new folder")
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _run("git", "log", "-1", "--format=%ct").strip()
    os.umask(0o022)  # a wheel holds the modes of its files
    with tempfile.TemporaryDirectory(prefix="tonnage-release-") as folder:
        _run("git", "archive", "--format=tar", "--output", f"{folder}/commit.tar", "HEAD")
        with tarfile.open(f"{folder}/commit.tar") as committed:
            committed.extractall(f"{folder}/commit", filter="data")
        _run(
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(output),
            f"{folder}/commit",
            epoch=epoch,
        )
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    sdist.write_bytes(settled(sdist.read_bytes(), int(epoch)))
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    sbom = output / f"tonnage-{VERSION}.cdx.json"
    listed = (
        "requirements",
        "requirements/core.txt",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "--of",
        "JSON",
    )
    _run(sys.executable, "-m", "cyclonedx_py", *listed, "-o", str(sbom))
    return [wheel, sdist, sbom]


def settled(archive: bytes, epoch: int) -> bytes:
    """A .tar.gz whose members are sorted, as old as ``epoch``, and of nobody; setuptools leaves the
    moment of building in it.
    """
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        gzip.GzipFile(fileobj=made, mode="wb", filename="", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname, member.pax_headers = (
                epoch,
                0,
                0,
                "",
                "",
                {},
            )
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return made.getvalue()


def _run(*command: str, epoch: str = "") -> str:
    """The output of a program in the checkout, which is shown where it fails."""
    known = {**os.environ, **({"SOURCE_DATE_EPOCH": epoch} if epoch else {})}
    done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
