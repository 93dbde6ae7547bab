"""Two pools as a deployment: no other split carries more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sizing.pooled import contender, pooled
from tonnage.sizing.loads.instance import QUICK
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Pools
from tonnage.sizing.search.disaggregated import PooledContender


@pytest.mark.parametrize(
    ("split", "prefill"),
    [((1, 1), 4), ((1, 3), 2), ((3, 1), 6), ((7, 1), 7), ((1, 9), 1), ((99, 1), 7)],
)
def test_each_pool_has_an_instance_whatever_the_split(split: tuple[int, int], prefill: int) -> None:
    asked = contender(pooled(), Runs())
    divided = replace(asked, split=split)
    assert divided._prefill(8) == prefill
    assert divided._prefill(2) == 1


def test_no_other_split_carries_more() -> None:
    runs = Runs()
    one = contender(pooled(), runs)
    found = one.settled_on(1, one.as_asked)
    assert isinstance(found, PooledContender)
    assert sum(found.split) == 8
    carried = {
        prefill: replace(one, split=(prefill, 8 - prefill), whole=8).capacity(8, care=QUICK).rate
        for prefill in range(1, 8)
    }
    assert carried[found.split[0]] >= 0.97 * max(carried.values())


def test_a_slower_link_carries_no_more_and_comes_later() -> None:
    runs = Runs()
    fast, slow = (
        contender(replace(pooled(), pools=Pools(link_bytes_s=bytes_s)), runs)
        for bytes_s in (1e11, 4e9)
    )
    assert slow.alone().ttft_ms.mean > fast.alone().ttft_ms.mean
    assert slow.capacity(4, care=QUICK).rate <= fast.capacity(4, care=QUICK).rate * 1.01
    overlapped = contender(replace(pooled(), pools=Pools(link_bytes_s=4e9, overlap=True)), runs)
    assert overlapped.alone().ttft_ms.mean < slow.alone().ttft_ms.mean
