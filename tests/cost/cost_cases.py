"""The course's case, and strategies for loads, servers and prices that cost something."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.plan.candidates import candidate as any_candidate
from tonnage.plan.candidate import Candidate
from tonnage.plan.cost import SECONDS_PER_YEAR, Serving, Traffic
from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Prices

COURSE_REQUESTS = 900_000_000
"""30 million calls a year × 30 requests."""

COURSE_PEAK = 199.77
"""Requests/s: 7 × the mean, as the course rounds it."""

COURSE_PRICES = catalog_prices().with_overrides(
    {
        "systems": {"dgx-h100": {"value": 320_000, "source": "course", "date": "2024-11"}},
        "depreciation_years": 4,
        "hosting_usd_per_system_year": 3_000,
        "licence_usd_per_gpu_year": 4_500,
        "licence_usd_per_gpu_hour": 1,
        "api": {"course": {"usd_per_million_input_tokens": 1, "usd_per_million_output_tokens": 3}},
        "pue": 1.58,
        "output_to_input_price_ratio": 3,
    }
)
"""The prices of NVIDIA's course, with the clouds of the catalog."""

COURSE_SERVING = Serving(
    gpu="h100-sxm-80gb",
    system="dgx-h100",
    gpus_per_instance=1,
    gpus_per_system=8,
    requests_per_second_per_instance=5.195428,
    system_watts=10_200,
    watts_from="highest power of dgx-h100, 10,200 W",
)
COURSE_TRAFFIC = Traffic(
    peak_requests_per_second=COURSE_PEAK,
    mean_requests_per_second=COURSE_REQUESTS / SECONDS_PER_YEAR,
    input_tokens=2_000,
    output_tokens=200,
)

RATES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.7, 8.0, 20.0, 41.3])


@st.composite
def traffics(draw: st.DrawFn, longest: int = 24) -> Traffic:
    """A profile of some hours with quiet and equal ones among them, or none."""
    profile = tuple(draw(st.lists(RATES | st.floats(0.01, 50.0), min_size=1, max_size=longest)))
    if max(profile) == 0:
        profile = (*profile, 1.0)
    mean = sum(profile) / len(profile)
    room = draw(st.sampled_from([1.0, 1.3, 2.0]))
    return Traffic(
        peak_requests_per_second=max(profile) * room,
        mean_requests_per_second=mean,
        input_tokens=draw(st.sampled_from([100.0, 2_000.0])),
        output_tokens=draw(st.sampled_from([1.0, 200.0, 3_000.0])),
        profile=profile if draw(st.booleans()) else (),
    )


@st.composite
def servings(draw: st.DrawFn) -> Serving:
    """Instances that share a system, fill it, or stand on several."""
    return Serving(
        gpu="h100-sxm-80gb",
        system="dgx-h100",
        gpus_per_instance=draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16])),
        gpus_per_system=8,
        requests_per_second_per_instance=draw(st.sampled_from([0.5, 1.0, 2.5, 7.3])),
        system_watts=draw(st.sampled_from([None, 10_200.0])),
        watts_from="a test",
        spare=draw(st.sampled_from([0, 0, 1])),
    )


@st.composite
def price_lists(draw: st.DrawFn) -> Prices:
    """Cheap and dear clouds and APIs, with and without power and licences."""
    changes: dict[str, object] = {
        "systems": {"dgx-h100": draw(st.sampled_from([50_000, 320_000, 900_000]))},
        "cloud": {
            "h100": {
                f"offer {place}": {
                    "low": draw(st.sampled_from([0.3, 1.0, 2.0])),
                    "high": draw(st.sampled_from([2.0, 6.0])),
                    **draw(
                        st.sampled_from(
                            [{}, {"gpus": 1}, {"gpus": 4}, {"gpus": 8}, {"gpus": [2, 8]}]
                        )
                    ),
                }
                for place in range(draw(st.sampled_from([1, 1, 2, 3])))
            }
        },
        "api": {
            "usd_per_million_input_tokens": draw(st.sampled_from([0.01, 1.0])),
            "usd_per_million_output_tokens": 3,
        },
    }
    if draw(st.booleans()):
        changes["power_usd_per_kwh"] = 0.2
    if draw(st.booleans()):
        changes |= {"licence_usd_per_gpu_year": None, "licence_usd_per_gpu_hour": None}
    # a counter-example would be a page long
    without_offers = replace(COURSE_PRICES, cloud=(), gpus=(), systems=(), api=())
    return without_offers.with_overrides(changes)


def candidate(
    *,
    gpu: str = "h100-sxm-80gb",
    system: str = "dgx-h100",
    systems: int = 5,
    rate: float = 5.195428,
    tp: int = 1,
    pp: int = 1,
) -> Candidate:
    """A candidate of a plan, as far as a cost looks at it; the course's unless said."""
    exact = COURSE_PEAK / rate * tp * pp / 8
    return any_candidate(
        gpu=gpu,
        system=system,
        systems=systems,
        tp=tp,
        pp=pp,
        systems_exact=exact,
        requests_per_second_per_instance=rate,
    )
