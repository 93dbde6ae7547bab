"""What the tests of cli share with others."""

from __future__ import annotations

ASKED = ["bench", "--model", "m", "--isl", "20", "--osl", "5", "--no-selftest"]
