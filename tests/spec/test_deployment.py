"""Latency limits as people write them."""

import pytest

from tonnage.errors import InputError
from tonnage.spec.deployment import parse_limit


@pytest.mark.parametrize(
    ("text", "statistic", "seconds"),
    [
        ("p95<=3s", "p95", 3.0),
        ("P99 <= 500ms", "p99", 0.5),
        ("mean<300ms", "mean", 0.3),
        ("avg 300ms", "mean", 0.3),
        ("p50≤1.5s", "p50", 1.5),
        ("2s", "p95", 2.0),
        ("p90=0.25 s", "p90", 0.25),
        ("median<=1 second", "p50", 1.0),
    ],
)
def test_limit_is_read(text: str, statistic: str, seconds: float) -> None:
    limit = parse_limit("ttft", text)
    assert (limit.metric, limit.statistic) == ("ttft", statistic)
    assert limit.seconds == pytest.approx(seconds)


def test_a_pace_is_the_time_of_a_token() -> None:
    assert parse_limit("tpot", "mean 20 tokens/s") == parse_limit("tpot", "mean<=50ms")
    assert parse_limit("itl", "p99<=10 tok/s") == parse_limit("itl", "p99<=100ms")
    with pytest.raises(InputError, match="not a number with a unit"):
        parse_limit("ttft", "20 tokens/s")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p95",
        "p95<=",
        "p97<=3s",
        "p95<=3",
        "p95<=-3s",
        "p95<=0s",
        "3 parsecs",
        "p95>=3s",
        "nan s",
        "p95<=infs",
        "p99.9<=3s",
        "p95<=3s, mean<=1s",
    ],
)
def test_limit_that_is_none_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(InputError, match=r"^ttft: ") as error:
        parse_limit("ttft", text)
    assert "\n" not in str(error.value)
