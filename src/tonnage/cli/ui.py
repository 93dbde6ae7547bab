"""``tonnage ui``: the local page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def ui(
    folder: Path = Path("tonnage-page"),
    /,
    *,
    port: int = 8765,
    browser: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Serve a local page: size with sliders, compare plans, see batching at work, measure an endpoint and calibrate.

    The same answers are there for programs under /api/v1. The page listens on 127.0.0.1 alone, and reads and writes files of its folder
    alone.

    Parameters
    ----------
    folder
        Folder for traces, plans and runs of the page; made if it is not there.
    port
        Port to listen on; 0 takes a free one.
    browser
        Open the page in the browser of this machine.
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
