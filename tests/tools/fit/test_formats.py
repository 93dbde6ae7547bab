"""The priors of formats: each with its source, and those of kernels as the tables of measured matrix products give them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_gpu, gpus
from tonnage.spec.precision import PRECISIONS
from tools.fit.formats import FORMATS, ORIGINS, kernel_shares
from tools.fit.solving import rounded
from tools.fit.terms import constants


def test_every_prior_names_a_format_and_its_source() -> None:
    assert set(FORMATS) == set(ORIGINS)
    assert all(ORIGINS.values())
    known = {*PRECISIONS, "2:4", "mxfp4 unpacked"}
    generations = {gpu.arch for gpu in gpus()}
    for name, shares in FORMATS.items():
        assert name in known or any(name == f"{one} {generation}" for one in known for generation in generations)
        assert set(shares) == {"compute", "memory"}
        assert all(0.3 < share <= (2.0 if name == "mxfp4 CDNA4" else 1.0) for share in shares.values())  # twice the rate of FP8


def test_the_fit_writes_them() -> None:
    assert constants()["formats"] == FORMATS
    terms = shipped()
    assert set(terms["formats"]) == set(FORMATS)
    for name in terms["origins"]["formats"]:  # what a fit has moved has no prior's origin any more
        assert terms["formats"][name] == rounded(FORMATS)[name]


def tables() -> Path | None:
    """The measured matrix products in the installed wheel aiconfigurator-core."""
    spec = find_spec("aiconfigurator_core")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return next((found for place in places if (found := Path(place) / "systems" / "data").is_dir()), None)


TABLES = tables()


@pytest.mark.accuracy
@pytest.mark.skipif(TABLES is None, reason="needs the wheel aiconfigurator-core")
@pytest.mark.parametrize(
    ("dtype", "name", "arithmetic", "weight_bytes"),
    [("int8_wo", "int8-wo", "fp16", 1.0), ("int4_wo", "int4-wo", "fp16", 0.5), ("sq", "int8-sq", "int8", 1.0)],
)
def test_shares_on_a100_are_those_of_measured_kernels(dtype: str, name: str, arithmetic: str, weight_bytes: float) -> None:
    gpu = find_gpu("a100-sxm-80gb")
    file = TABLES / "a100_sxm" / "gemm" / "trtllm" / "1.0.0" / "gemm_perf.parquet"
    bandwidth = gpu.memory_bandwidth_gb_s * 1e9
    rate, rate_16 = gpu.flops(arithmetic), gpu.flops("fp16")
    compute, memory = kernel_shares(file, dtype=dtype, rate=rate, weight_bytes=weight_bytes, rate_16=rate_16, bandwidth=bandwidth)
    assert compute == pytest.approx(FORMATS[name]["compute"], abs=0.01)
    if name == "int4-wo":  # the prior lies between this and Marlin's
        assert memory == pytest.approx(0.57, abs=0.01)
        assert memory < FORMATS[name]["memory"] < 0.9
    else:
        assert memory == pytest.approx(FORMATS[name]["memory"], abs=0.01)


def test_shares_are_found_again_in_a_made_table(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = []
    for m in (1, 8, 64, 512, 4096):
        for n in (4096, 8192, 16384):
            weights = n * 8192
            wide = ((2 * m * weights / (300e12 * 0.7)) ** 1.445 + (weights * 2 / (2e12 * 0.8)) ** 1.445) ** (1 / 1.445)
            narrow = ((2 * m * weights / (300e12 * 0.7 * 0.9)) ** 1.445 + (weights * 0.5 / (2e12 * 0.8 * 0.6)) ** 1.445) ** (1 / 1.445)
            rows += [("bfloat16", m, n, 8192, wide * 1e3), ("int4_wo", m, n, 8192, narrow * 1e3)]
    columns = zip(*rows, strict=True)
    file = tmp_path / "gemm_perf.parquet"
    pq.write_table(pa.table(dict(zip(("gemm_dtype", "m", "n", "k", "latency"), map(list, columns), strict=True))), file)
    shares = kernel_shares(file, dtype="int4_wo", rate=300e12, weight_bytes=0.5, rate_16=300e12, bandwidth=2e12)
    assert shares == pytest.approx((0.9, 0.6), rel=1e-4)
