"""``python -m tools.fit``: fits the shipped terms, and scores the file that they were fitted on."""

from __future__ import annotations

import os
import sys

# read when numpy loads: small products gain nothing from threads that spin
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tools.fit.command import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
