from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.errors import InputError, InputErrors, UnknownName
from tonnage.spec.catalog import find_gpu, search, system_of
from tonnage.spec.hardware import capped, clocked

LEAST = "name: One Core\nfp16_tflops: 0.2\nmemory_gb: 8\nmemory_bandwidth_gb_s: 20\n"


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_four_keys_describe_hardware_of_ones_own(tmp_path: Path) -> None:
    gpu = find_gpu(written(tmp_path, LEAST))
    assert (gpu.name, gpu.fp16_tflops, gpu.memory_bytes, gpu.memory_bandwidth_gb_s) == (
        "one-core",
        0.2,
        8_000_000_000,
        20,
    )
    assert gpu.fp8_tflops is None
    assert gpu.link == "pcie"
    assert gpu.source.endswith("mine.yaml")
    assert system_of(gpu).gpus == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\n", "fp16_tflops: is missing"),
        (LEAST + "fp16_tflop: 3\n", "did you mean fp16_tflops"),
        (LEAST.replace("0.2", "0"), "fp16_tflops: 0 is not possible; write a number above 0"),
        (LEAST + "link: carrier pigeon\n", "link"),
        ("name: [", "mine.yaml"),
    ],
)
def test_what_cannot_be_hardware_is_refused_with_the_key(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises((InputError, InputErrors), match=says):
        find_gpu(written(tmp_path, text))


def test_a_mig_slice_has_its_shares_of_the_gpu() -> None:
    for name, compute, memory in [
        ("h100-mig-1g.10gb", 1 / 7, 1 / 8),
        ("H100 SXM 80GB MIG 1g.20gb", 1 / 7, 2 / 8),
        ("h200-mig-3g.71gb", 3 / 7, 4 / 8),
        ("b200-mig-1g.23gb", 1 / 7, 1 / 8),
        ("a100-40gb-mig-4g.20gb", 4 / 7, 4 / 8),
        ("a30-mig-2g.12gb", 2 / 4, 2 / 4),
    ]:
        piece = find_gpu(name)
        whole = find_gpu(piece.name.partition("-mig-")[0])
        assert find_gpu(piece.name) == piece
        assert piece.fp16_tflops == pytest.approx(compute * whole.fp16_tflops)
        assert piece.memory_bytes == pytest.approx(memory * whole.memory_bytes)
        assert piece.memory_bandwidth_gb_s == pytest.approx(memory * whole.memory_bandwidth_gb_s)
        assert (piece.link, piece.verified) == ("pcie", "")
        assert system_of(piece).gpu == piece.name
        assert search(piece.name) == (piece,)
    for name in [
        "h100-mig-5g.10gb",
        "h100-mig-1g.40gb",
        "a30-mig-3g.12gb",
        "l40s-mig-1g.6gb",
        "mig-1g.10gb",
    ]:
        with pytest.raises(UnknownName):
            find_gpu(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("much", "not a power"),
        ("300W", "too low"),
        ("0W", "too low"),
        ("59%", "too low"),
        ("-5W", "not a power"),
    ],
)
def test_limits_that_cannot_be(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        capped(find_gpu("h100"), text)


def test_a_limit_above_the_board_power_is_none_and_one_of_an_unknown_board_is_refused() -> None:
    assert capped(find_gpu("l40s"), "500W") == find_gpu("l40s")
    with pytest.raises(InputError, match="is not known"):
        capped(replace(find_gpu("l40s"), tdp_w=None), "300W")
    with pytest.raises(InputError, match="is a slice"):
        capped(find_gpu("h100-mig-3g.40gb"), "80%")
    with pytest.raises(InputError, match="50% to 100%"):
        clocked(find_gpu("l40s"), 0.3)
