import numpy as np
import pytest

from tonnage import api
from tonnage.perf.prediction_error import run_noise


def test_the_noise_of_a_run_is_the_scatter_between_seeds_and_shrinks_with_its_length() -> None:
    asked = {"model": "llama-3-8b", "isl": 500, "osl": 50, "engine": "nim-2024", "request_rate": 8}
    runs = [api.simulate(**asked, seed=seed, requests=2000) for seed in range(12)]
    means = np.array([run.summary.ttft_ms.mean for run in runs])
    told = np.mean([run_noise(run.requests)["ttft_ms"] for run in runs])
    assert told == pytest.approx(means.std(ddof=1) / means.mean(), rel=0.6)
    long = api.simulate(**asked, seed=3, requests=20_000)
    assert run_noise(long.requests)["ttft_ms"] < 0.6 * told
    assert run_noise(api.simulate(**asked, requests=20).requests) == {}
