"""What the process that started a gateway's workers hands over to them, when they start and whenever the settings change."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from tonnage.gateway.counts import Place
from tonnage.gateway.settings import Settings

CURRENT = "settings"


def hand_over(folder: Path, settings: Settings, generation: int) -> None:
    """Put settings where the workers read them, all at once; every generation counts from 0 on a board of its own.

    Args:
        folder: that this user alone may enter: what is read from it is trusted.
        settings: of the gateway.
        generation: one more than that of the settings before.
    """
    new = folder / f"{CURRENT}.new"
    new.write_bytes(pickle.dumps((settings, generation)))
    os.replace(new, folder / CURRENT)


def handed_over(folder: Path, worker: int) -> tuple[Settings, Place]:
    """The settings of a worker, and its place among the others.

    Args:
        folder: as above.
        worker: its number.
    """
    settings, generation = pickle.loads((folder / CURRENT).read_bytes())
    return settings, Place(worker=worker, workers=settings.workers, board=folder / f"board-{generation}")
