"""What the tests of repositories share with others."""

from __future__ import annotations

from pathlib import Path

import pytest

FIELD = Path(__file__).resolve().parents[4] / "shared" / "field"


needs_field = pytest.mark.skipif(
    not FIELD.is_dir(), reason="the field's cases lie next to the repository, not in it"
)
