"""What closed forms leave out, held against the simulation that they save."""

import pytest

from tests.questions import question
from tonnage.report.wording.reasons import reason_text
from tonnage.sizing.loads.bounds import MARGIN, Carried, beaten, bound_per_gpu, exceeded, far_behind
from tonnage.sizing.loads.capacity import find_capacity, saturation
from tonnage.sizing.loads.instance import Instance
from tonnage.sizing.loads.ready import Ready
from tonnage.sizing.search.search_space import prepare


def ready(**changed: object) -> list[Ready]:
    return [found for found in prepare(question(**changed)) if isinstance(found, Ready)]


def carried(one: Ready) -> Carried:
    return Carried(ready=one, capacity=find_capacity(one.instance))


@pytest.mark.parametrize("lengths", [(1000, 100), (200, 400), ("lognormal:2000,1500", "lognormal:200,200")])
@pytest.mark.parametrize("engine", ["tensorrt-llm-0.15", "vllm"])
def test_no_deployment_completes_more_than_its_closed_form_allows(engine: str, lengths: tuple[object, object]) -> None:
    for one in ready(isl=lengths[0], osl=lengths[1], engine=engine, tp="1,4", gpu="h100,l40s", ttft=None):
        estimate = one.instance.saturation_estimate()
        assert saturation(one.instance) / estimate < MARGIN  # with a front end, which may limit
        bare = Instance(one.instance.deployment, one.instance.asked)
        bare.step = bare.step.in_process
        assert 0.85 < saturation(bare) / bare.saturation_estimate() < MARGIN


def test_a_beaten_deployment_carries_less_when_it_is_simulated_after_all() -> None:
    several = ready(precision="fp16,fp8", tp="1", ttft="p95<=5s", tune=None)
    fast, slow = sorted(several, key=bound_per_gpu, reverse=True)
    best = carried(fast)
    reason = beaten(slow, [best])
    assert reason is not None
    assert reason_text(reason).startswith(
        f"at most {bound_per_gpu(slow):.3g} requests/s per GPU by closed form, below the {best.rate_per_gpu:.3g} of "
    )
    assert carried(slow).rate_per_gpu < bound_per_gpu(slow) < best.rate_per_gpu


def test_a_deployment_that_may_be_faster_is_not_left_out() -> None:
    one, four = ready(tp="1,4", ttft="p95<=5s")
    assert one.instance.unloaded_tpot_s() > four.instance.unloaded_tpot_s()
    assert beaten(four, [carried(one)]) is None


def test_far_behind_names_the_limit_and_both_rates() -> None:
    one, other = ready(tp="1,2", ttft="p95<=300ms")
    strict = ready(tp="2", ttft="p95<=32ms")[0]
    best = carried(one)
    assert far_behind(other, [best], find_capacity(other.instance, exceeded(other, [best]))) is None
    reason = far_behind(strict, [best], find_capacity(strict.instance, exceeded(strict, [best])))
    assert reason is not None
    assert "TTFT p95" in reason_text(reason)
    assert f"carries {best.rate_per_gpu:.3g} per GPU" in reason_text(reason)
    assert exceeded(strict, []) == 0


def test_a_search_that_must_exceed_a_load_ends_early_only_where_it_would_not() -> None:
    """The same deployment is searched whole, and with loads to exceed on either side of what it carries."""
    for one in ready(tp="1,2", engine="tensorrt-llm,vllm", ttft="p95<=200ms", itl="p99<=40ms"):
        whole = find_capacity(one.instance)
        for share in (0.5, 0.9, 0.99):
            assert find_capacity(one.instance, share * whole.rate) == whole
        for share in (1.03, 1.3, 3.0):
            ended = find_capacity(one.instance, share * whole.rate)
            assert ended.reason is not None or ended.rate <= share * whole.rate
