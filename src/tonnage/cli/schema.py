"""``tonnage schema``: the JSON Schema of a scenario, for editors and for other programs."""

from __future__ import annotations

import sys


def schema() -> int:
    """Print the JSON Schema of a scenario file: every key, the values it takes, and what it means."""
    from tonnage.results.store import json_text
    from tonnage.spec.scenario_file import json_schema

    sys.stdout.write(json_text(json_schema()))
    return 0
