"""Servers of any shape, of one's own and of clouds, by name; and what they carry as a working
day."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.questions import plans_with, question
from tonnage.api.sizing import size, size_measured
from tonnage.errors import InputError
from tonnage.spec.catalog import find_system, gpu_of
from tonnage.spec.catalog.price_list import catalog_prices

few_parts = plans_with()


ROOT = Path(__file__).parents[2]


MEASURED = ROOT / "examples" / "nim-llama-3-8b-h100-fp8.csv"


CARD = (
    "name: my-card-48\nfp16_tflops: 180\nfp8_tflops: 360\nmemory_gb: 48\nmemory_bandwidth_gb_s:"
    " 900\ntdp_w: 300\n"
)


def test_a_server_and_its_gpu_from_files(tmp_path: Path) -> None:
    (tmp_path / "card.yaml").write_text(CARD, encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text("gpu: card.yaml\ngpus: 2\nmax_power_w: 1800\nusd: 21000\n", encoding="utf-8")
    system = find_system(str(mine))
    assert (system.gpus, system.max_power_w, gpu_of(system).memory_gb) == (2, 1800, 48)
    price = catalog_prices().system_usd(str(mine))
    assert (price.value, price.given) == (21_000, True)
    asked = question(gpu=None, tp="1", engine="vllm", peak_rps=10, ttft="p95<=1s", system=str(mine))
    assert [gpu.name for gpu in asked.gpus] == ["my-card-48"]
    mine.write_text("gpu: h100\ngpus: 0\nwatts: 3\n", encoding="utf-8")
    with pytest.raises(InputError, match="watts"):
        find_system(str(mine))


def test_servers_of_one_gpu_are_bought_one_by_one() -> None:
    plan = size(model="llama-3.1-8b", gpu="h100", precision="fp8", tp="1", engine="tensorrt-llm-0.15", isl=1000, osl=100, peak_rps=120,
                ttft="p95<=300ms", system="1xh100")  # fmt: skip
    assert (plan.choice.gpus_per_system, plan.choice.systems) == (1, plan.choice.instances)
    assert 1 < plan.choice.gpus < 8


def test_a_measured_system_as_people() -> None:
    """One DGX at 70.7 requests/s: 2.04 million requests in eight hours, 679 thousand users at three
    a day."""
    plan = size_measured(
        benchmarks=MEASURED, ttft="mean<=500ms", have="1xdgx-h100", requests_per_user_day=3
    )
    day = plan.existing.a_day
    assert plan.existing.requests_per_second == pytest.approx(70.75, abs=0.01)
    assert day.requests == pytest.approx(2.04e6, rel=0.002)
    assert day.users == pytest.approx(679e3, rel=0.001)
    assert (day.input_tokens, day.output_tokens) == (day.requests * 2000, day.requests * 200)
    assert plan.choice.systems == 1
    more = size_measured(benchmarks=MEASURED, ttft="mean<=500ms", have="3xdgx-h100", peak_rps=100.0)
    assert more.existing.headroom == pytest.approx(3 * 70.747 / 100 - 1, abs=0.001)
