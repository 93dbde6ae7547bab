"""``tonnage learn``: the lessons, as notebooks in a folder of the user's."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from tonnage.errors import InputError


def learn(folder: Path = Path("tonnage-lessons"), /) -> None:
    """Copy the lessons to a folder: seven notebooks, from the first request to a calibrated plan.

    Parameters
    ----------
    folder
        A new folder for them, which is made.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder}: is there already, and may hold your work; name a new folder")
    try:
        with as_file(files("tonnage") / "notebooks") as lessons, tempfile.TemporaryDirectory(dir=folder.absolute().parent) as aside:
            shutil.copytree(lessons, Path(aside) / "lessons").replace(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error}); name a folder inside one that exists") from None
    for path in sorted(folder.iterdir()):
        print(path)
    print(f"\nOpen them with: pip install jupyterlab && jupyter lab {shlex.quote(str(folder))}")
