"""Plans that are saved."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


CHAT = str(ROOT / "examples" / "fleet" / "chat.yaml")
