"""Requests to a page."""

from __future__ import annotations

PORT = 8765
TOKEN = "the-token"
