"""``tonnage ui``: the local page."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from tonnage.cli.flags import with_flags
from tonnage.errors import InputError


@with_flags()
def ui(folder: Path = Path("tonnage-page"), /, *, port: int = 8765, browser: bool = False) -> None:
    """Serve a local page: size with sliders, compare plans, see batching at work, measure an
    endpoint and calibrate.

    The same answers are there for programs under /api/v1. The page listens on 127.0.0.1 alone, and
    reads and writes files of its folder alone.

    Args:
        folder: Folder for traces, plans and runs of the page; made if it is not there.
        port: Port to listen on; 0 takes a free one.
        browser: Open the page in the browser of this machine.
    """
    from tonnage.cli.progress import compile_if_needed, without_collection

    with without_collection():
        from tonnage.page.server import serve

    compile_if_needed(fleet=True)
    serve(folder, port=port, ready=lambda address: _ready(address, browser=browser))


def _ready(address: str, *, browser: bool) -> None:
    print(f"Tonnage is at {address}", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(address)


@with_flags()
def learn(folder: Path = Path("tonnage-lessons"), /) -> None:
    """Copy the lessons to a folder: ten notebooks, from the first request to a chat with a deployed
    plan.

    Args:
        folder: A new folder for them, which is made.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder}: is there already, and may hold your work; name a new folder")
    try:
        with (
            as_file(files("tonnage") / "notebooks") as lessons,
            tempfile.TemporaryDirectory(dir=folder.absolute().parent) as aside,
        ):
            shutil.copytree(
                lessons,
                Path(aside) / "lessons",
                ignore=shutil.ignore_patterns("ruff.toml", "__pycache__"),
            ).replace(folder)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written ({error.strerror or error}); name a folder inside one"
            " that exists"
        ) from None
    for path in sorted(folder.iterdir()):
        print(path)
    print("\nOpen them with:")
    for line in _open_lessons(folder):
        print(f"  {line}")


def _open_lessons(folder: Path) -> Iterator[str]:
    """The lines that install JupyterLab next to this Python, trust the shipped outputs, and open
    the folder with Tonnage in reach.
    """
    python, lessons = shlex.quote(sys.executable), shlex.quote(str(folder))
    checkout = os.environ.get("PYTHONPATH")
    kernel = f"PYTHONPATH={shlex.quote(checkout)} " if checkout else ""
    allowed = " --allow-root" if os.geteuid() == 0 else ""
    yield (
        f"{python} -m pip install --quiet jupyterlab"
        if find_spec("pip")
        else f"uv pip install --python {python} jupyterlab"
    )
    yield f"{python} -m jupyter trust {lessons}/*.ipynb"
    yield f"{kernel}{python} -m jupyter lab{allowed} {lessons}"


@with_flags()
def mcp(*, root: Path = Path()) -> None:
    """Offer size, simulate, memory, compare and catalog to an agent, over standard input and output
    (docs/python.md).

    Args:
        root: Folder whose files a question may name, and no others (default: the current folder).
    """
    from tonnage.api.running.agents import serve_agents
    from tonnage.cli.progress import compile_if_needed

    compile_if_needed()
    serve_agents(root)
