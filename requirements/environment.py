"""Make a virtual environment from pinned requirements; called by ./tonnage and ./check, never by
hand.

    python environment.py VENV SET…      SET is core, fit or dev: requirements/SET.txt

An environment is whole when it holds a copy of each SET.txt that it was made from: the copy is
written last, so that one that was interrupted, or made from older pins, is made again. A lock on
this folder lets two first uses at once do the work once; pip inherits it, so that it is held for
as long as anything still writes. Standard library only; all output goes to stderr.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
HASHED = {"core"}
OLDER_PYTHON = {"loadtools"}  # tried on Pythons that one of its packages does not state
QUIET = {
    "PIP_USER": "0",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_REQUIRE_VIRTUALENV": "0",
}


class SetUpFailed(Exception):
    """A program that was needed ended badly; the message holds its last lines."""


def main(venv: Path, sets: list[str]) -> int:
    """Bring ``venv`` up to date with ``sets``; the exit code."""
    try:
        with Lock(HERE) as lock:
            if is_whole(venv, sets):
                return 0  # somebody else made it while we waited
            started = time.monotonic()
            if not is_whole(venv, sets[:1]):
                say(f"making {venv.name} from pinned requirements, once, in about a minute …")
                make(venv, lock)
            for name in sets:
                if not is_whole(venv, [name]):
                    install(venv, name, lock)
            say(f"{venv.name} is ready after {time.monotonic() - started:.0f} s")
    except (SetUpFailed, OSError) as error:
        say(f"could not make {venv.name}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; {venv.name} will be made again next time")
        return 130
    return 0


def is_whole(venv: Path, sets: list[str]) -> bool:
    """Whether ``venv`` was finished from these very requirements, and its interpreter is still
    there.
    """
    if not os.access(venv / "bin" / "python", os.X_OK):
        return False
    return all(
        (venv / f"{name}.txt").is_file()
        and (venv / f"{name}.txt").read_bytes() == pins(name).read_bytes()
        for name in sets
    )


def pins(name: str) -> Path:
    """The requirements of a set."""
    return HERE / f"{name}.txt"


def make(venv: Path, lock: Lock) -> None:
    """An empty environment, in the place of whatever was there."""
    if venv.is_symlink() or venv.is_file():
        venv.unlink()
    elif venv.exists():
        shutil.rmtree(venv)
    for _ in run([sys.executable, "-m", "venv", str(venv)], lock):
        pass


def install(venv: Path, name: str, lock: Lock) -> None:
    """All packages of a set, and then the copy of its pins that says so."""
    wanted = pins(name).read_bytes()
    total = sum(1 for line in wanted.decode().splitlines() if "==" in line)
    command = [
        str(venv / "bin" / "python"),
        "-I",
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--only-binary=:all:",
        "--progress-bar=off",
    ]
    command += ["--require-hashes"] if name in HASHED else []
    command += ["--ignore-requires-python"] if name in OLDER_PYTHON else []
    seen = 0
    for line in run([*command, "-r", str(pins(name))], lock):
        if line.startswith(("Collecting ", "Processing ", "Requirement already")):
            seen += 1
            progress(f"{name}: {min(seen, total)} of {total} packages fetched")
        elif line.startswith("Installing "):
            progress(f"{name}: unpacking {total} packages")
    progress("")
    half = venv / f"{name}.txt.half"
    half.write_bytes(wanted)
    half.replace(venv / f"{name}.txt")


class Lock:
    """Held by one process at a time; the system lets it go when the holder and its children are
    gone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fd = -1

    def __enter__(self) -> Lock:
        """Wait for the lock, and say so."""
        self.fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is setting up here; waiting for it …")
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        os.close(self.fd)


def run(command: list[str], lock: Lock) -> Iterator[str]:
    """The lines that a program prints, as it prints them.

    Raises:
        SetUpFailed: it ended with anything but 0.
    """
    environment = {**os.environ, **QUIET}
    environment.pop("PYTHONHOME", None)
    last: deque[str] = deque(maxlen=6)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        pass_fds=(lock.fd,),
    ) as process:
        for line in process.stdout or ():
            last.append(line.strip())
            yield line
    if process.returncode:
        progress("")
        raise SetUpFailed(
            f"{Path(command[0]).name} ended with {process.returncode}: " + " | ".join(last)
        )


def progress(text: str) -> None:
    """One line that is written over, where there is a screen."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{'tonnage: ' + text if text else ''}")
        sys.stderr.flush()


def say(text: str) -> None:
    """A line for people; stdout belongs to the command that follows."""
    print(f"tonnage: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
