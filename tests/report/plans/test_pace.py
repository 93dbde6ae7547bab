"""The gaps between tokens beside the speed of reading, in words."""

import pytest

from tonnage.report.plans.question import pace_text


@pytest.mark.parametrize(
    ("mean", "p99", "said"),
    [
        (0.03, 0.1, "faster than a fast reader (90 ms per token), and p99 is within the 250 ms that readers accept"),
        (0.12, 0.3, "faster than an average reader (200 ms per token), slower than a fast one (90 ms), and p99 is beyond the 250 ms"),
        (0.25, 0.25, "slower than an average reader (200 ms per token), and p99 is within the 250 ms that readers accept"),
    ],
)
def test_the_pace_beside_reading(mean: float, p99: float, said: str) -> None:
    assert pace_text(mean, p99).startswith(said)
