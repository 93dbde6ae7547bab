import pytest

from tests.deployments import deployment
from tonnage.errors import DataError
from tonnage.perf.ranges import marks
from tonnage.perf.terms import resolve
from tonnage.perf.terms_file import shipped
from tonnage.spec.catalog import find_gpu


def test_a_preset_without_terms_is_named() -> None:
    d = deployment()
    with pytest.raises(DataError, match="no terms of the engine preset 'ghost'"):
        resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, "ghost")


def test_an_unmeasured_card_takes_after_its_measured_sibling() -> None:
    """H100 PCIe is slower than the SXM per datasheet FLOP, as the other H100 card of 400 W is."""
    shares = {}
    for gpu in ("h100-pcie-80gb", "h100-nvl-94gb", "h100-sxm-80gb"):
        d = deployment(gpu=gpu)
        shares[gpu] = resolve(shipped(), d.model, d.gpu, d.precision, d.parallelism, "nim-2024").matrices.compute
    assert shares["h100-pcie-80gb"] == pytest.approx(shares["h100-nvl-94gb"], rel=0.05)  # 0.46 and 0.48 W per TFLOP/s
    assert shares["h100-nvl-94gb"] < shares["h100-sxm-80gb"]
    assert marks(deployment(gpu="h100-pcie-80gb")) == ("h100-pcie-80gb: no measurements; efficiencies transferred from h100-nvl-94gb",)
    for sibling, measured in shipped()["siblings"].items():
        assert find_gpu(sibling).arch == find_gpu(measured).arch
        assert measured in shipped()["gpus"]
        assert sibling not in shipped()["gpus"]
