from pathlib import Path

import pytest

from tonnage.errors import InputError, InputErrors, UnknownName
from tonnage.spec.catalog import find_gpu, system_of

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
