"""A folder that is written as a whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tonnage.errors import InputError, option


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write files into a folder that does not exist yet, or is empty.

    They are written next to it first and moved there when all of them stand, so that a failure leaves nothing behind.

    Args:
        folder: where to.
        files: the text of each by its path inside the folder.

    Raises:
        InputError: there is something at that place already, or it cannot be written.
    """
    where = option("output")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{where}: {folder} is there already and not an empty folder; name a new one")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as fault:
        raise InputError(f"{where}: {folder} cannot be written: {fault.strerror}") from fault
    try:
        for name, text in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        os.replace(beside, folder)
    except OSError as fault:
        raise InputError(f"{where}: {folder} cannot be written: {fault.strerror}") from fault
    finally:
        shutil.rmtree(beside, ignore_errors=True)
