"""Nobody on the front is beaten on both; everybody else is."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tonnage.plan.former_candidate import Candidate
from tonnage.sizing.pareto import pareto

STATISTICS = {"mean": 1.0, "p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": 1.0}
ONE = Candidate(
    gpu="g",
    system="s",
    gpus_per_system=8,
    precision="fp8",
    tp=1,
    pp=1,
    engine="vllm",
    knobs=None,
    instances=8,
    systems=1,
    systems_exact=1.0,
    requests_per_second_per_instance=1.0,
    requests_per_second_per_gpu=1.0,
    requests_per_second_per_8_gpus=8.0,
    output_tokens_per_second_per_8_gpus=None,
    saturation_requests_per_second_per_instance=1.0,
    concurrency_per_instance=1.0,
    utilisation=1.0,
    headroom_to_saturation=0.0,
    ttft_ms=STATISTICS,
    itl_ms=STATISTICS,
    tpot_ms=STATISTICS,
    e2e_ms=STATISTICS,
    binds="",
    load="",
    marks=(),
    memory="",
)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=8))
def test_front_is_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    candidates = [replace(ONE, systems=systems, e2e_ms={**STATISTICS, "mean": float(late)}) for systems, late in points]
    found = pareto(candidates)
    front = [p for p, point in zip(points, found, strict=True) if point.front_gpus]
    assert len(set(front)) == len(front)
    for point in points:
        beaten = any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in points)
        assert (point in front) != beaten
    assert [p.chosen for p in found] == [True] + [False] * (len(points) - 1)


def test_cost_has_its_own_front_where_it_is_known() -> None:
    slow, fast = (replace(ONE, systems=n, e2e_ms={**STATISTICS, "mean": late}) for n, late in ((1, 9.0), (4, 2.0)))
    found = pareto([slow, fast], {1: 5.0, 0: 10.0})
    assert [p.front_gpus for p in found] == [True, True]
    assert [p.front_cost for p in found] == [False, True]
    assert not any(p.front_cost for p in pareto([slow, fast]))
