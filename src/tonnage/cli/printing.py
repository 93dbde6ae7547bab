"""What a verb prints: its answer as one JSON object, or as text for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tonnage.report.document import Document


def print_answer(document: Callable[[], Document], values: Callable[[], Any], *, json: bool) -> None:
    """Print one of the two; only the one that is wanted is made."""
    if json:
        from tonnage.results.store import json_text

        sys.stdout.write(json_text(values()))
        return
    from tonnage.report.terminal import terminal

    print(terminal(document()))
