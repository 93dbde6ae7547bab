"""One worker of a gateway, as a process: ``python -m tonnage.gateway.worker FOLDER NUMBER PORT``.

It is started by ``workers.py``, takes its settings from the folder, and says on the port, of 127.0.0.1, that it lives.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tonnage.errors import TonnageError, spelled
from tonnage.gateway.handover import handed_over
from tonnage.gateway.server import serve


def main(folder: Path, worker: int, alive: int) -> int:
    """Serve until told to end; the exit code."""
    settings, place = handed_over(folder, worker)
    try:
        serve(settings, place, lambda port, faults: None, lambda: handed_over(folder, worker), alive=alive)
    except TonnageError as error:
        print(f"tonnage: {spelled(error.marked, '.'.join)}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
