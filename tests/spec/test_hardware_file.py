from pathlib import Path

import pytest

from tonnage.errors import InputError, InputErrors, UnknownName
from tonnage.spec.catalog import find_gpu, search, system_of

LEAST = "name: One Core\nfp16_tflops: 0.2\nmemory_gb: 8\nmemory_bandwidth_gb_s: 20\n"


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_four_keys_describe_hardware_of_ones_own(tmp_path: Path) -> None:
    gpu = find_gpu(written(tmp_path, LEAST))
    assert (gpu.name, gpu.fp16_tflops, gpu.memory_bytes, gpu.memory_bandwidth_gb_s) == ("one-core", 0.2, 8_000_000_000, 20)
    assert gpu.fp8_tflops is None
    assert gpu.link == "pcie"
    assert gpu.source.endswith("mine.yaml")
    assert system_of(gpu).gpus == 8


def test_further_keys_are_those_of_the_catalog(tmp_path: Path) -> None:
    gpu = find_gpu(written(tmp_path, LEAST + "vendor: NVIDIA\narch: Hopper\nfp8_tflops: 0.4\nmemory_bytes: 7900000000\nbf16: false\n"))
    assert (gpu.vendor, gpu.arch, gpu.fp8_tflops, gpu.memory_bytes, gpu.bf16) == ("NVIDIA", "Hopper", 0.4, 7_900_000_000, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: x\n", "fp16_tflops: is missing"),
        (LEAST + "fp16_tflop: 3\n", "did you mean fp16_tflops"),
        (LEAST.replace("0.2", "fast"), "fp16_tflops: 'fast' is not a number"),
        (LEAST.replace("0.2", "0"), "fp16_tflops: 0 is not possible; write a number above 0"),
        (LEAST.replace("0.2", "-1"), "fp16_tflops: -1 is not possible"),
        (LEAST + "link: carrier pigeon\n", "link"),
        ("- 3\n", "mine.yaml"),
        ("name: [", "mine.yaml"),
    ],
)
def test_what_cannot_be_hardware_is_refused_with_the_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises((InputError, InputErrors), match=says):
        find_gpu(written(tmp_path, text))


def test_no_such_file_and_no_such_name_say_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        find_gpu(str(tmp_path / "absent.yaml"))
    with pytest.raises(UnknownName, match="the path of a YAML file works too"):
        find_gpu("h1000")


@pytest.mark.parametrize(
    ("name", "compute", "memory"),
    [
        ("h100-mig-1g.10gb", 1 / 7, 1 / 8),
        ("H100 SXM 80GB MIG 1g.20gb", 1 / 7, 2 / 8),
        ("h200-mig-3g.71gb", 3 / 7, 4 / 8),
        ("b200-mig-1g.23gb", 1 / 7, 1 / 8),
        ("a100-40gb-mig-4g.20gb", 4 / 7, 4 / 8),
        ("a30-mig-2g.12gb", 2 / 4, 2 / 4),
    ],
)
def test_a_mig_slice_has_its_shares_of_the_gpu(name: str, compute: float, memory: float) -> None:
    piece = find_gpu(name)
    whole = find_gpu(piece.name.partition("-mig-")[0])
    assert find_gpu(piece.name) == piece
    assert piece.fp16_tflops == pytest.approx(compute * whole.fp16_tflops)
    assert piece.memory_bytes == pytest.approx(memory * whole.memory_bytes)
    assert piece.memory_bandwidth_gb_s == pytest.approx(memory * whole.memory_bandwidth_gb_s)
    assert (piece.link, piece.verified) == ("pcie", "")
    assert system_of(piece).gpu == piece.name
    assert search(piece.name) == (piece,)


@pytest.mark.parametrize("name", ["h100-mig-5g.10gb", "h100-mig-1g.40gb", "a30-mig-3g.12gb", "l40s-mig-1g.6gb", "mig-1g.10gb"])
def test_a_profile_that_no_gpu_has_is_unknown(name: str) -> None:
    with pytest.raises(UnknownName):
        find_gpu(name)
