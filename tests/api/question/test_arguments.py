"""Arguments as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.api.question.arguments import confidence_asked
from tonnage.errors import InputError


@pytest.mark.parametrize(
    ("text", "share"),
    [(None, 0.8), (95, 0.95), ("95%", 0.95), (" 87.5 % ", 0.875), (0.9, 0.9), ("50", 0.5)],
)
def test_a_confidence_is_read_in_percent_or_as_a_share(text: Any, share: float) -> None:
    assert confidence_asked(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["sure", 100, 49, "0.3", 1, "nan", "1e400", "0.9%"])
def test_what_is_no_confidence_is_refused(text: Any) -> None:
    with pytest.raises(InputError, match="is not a confidence; write 50 to 99, in percent"):
        confidence_asked(text)
