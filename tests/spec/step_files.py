"""Files of steps."""

from __future__ import annotations

from pathlib import Path

HEADER = "prefill_tokens,decode_sequences,context_tokens,seconds"


def file(folder: Path, *lines: str, header: str = HEADER) -> str:
    path = folder / "steps.csv"
    path.write_text("\n".join([header, *lines, ""]))
    return str(path)
