import json

import pytest

from tonnage import perf
from tonnage.errors import DataError
from tonnage.perf.terms_file import shipped


def test_damaged_coefficients_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> object:
        raise json.JSONDecodeError("Expecting value", text, 0)

    monkeypatch.setattr(perf.json, "loads", broken)
    shipped.cache_clear()
    try:
        with pytest.raises(DataError, match=r"terms\.json: Expecting value.*/fit"):
            shipped()
    finally:
        shipped.cache_clear()
