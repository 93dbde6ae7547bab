from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.serve.launch.machines import of
from tonnage.errors import InputError
from tonnage.serve.machine import catalog_gpu, detect, groups, joined, nvidia_devices, read_machine

BUSES = ["00000000:9B:00.0", "00000000:1B:00.0", "00000000:5D:00.0"]
"""Not in PCI order, as CUDA's own order need not be."""


class Library(ModuleType):
    """What of ``pynvml`` is used: three GPUs, of which the last two of the bus order are joined by
    NVLink."""

    class NVMLError(Exception):
        """As there."""

    def __init__(self, *, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.driver, self.open = driver, 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(BUSES)

    def nvmlDeviceGetHandleByIndex(self, place: int) -> int:
        return place

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=BUSES[handle].encode())

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=81_559 * 2**20, used=(600 if handle else 40_000) * 2**20)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 9, 0

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 4:
            raise self.NVMLError("Invalid Argument")
        return int(handle in (0, 2))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        return SimpleNamespace(busId=BUSES[2 - handle].encode())


def test_nvidias_gpus_are_counted_in_bus_order() -> None:
    library = Library()
    devices, driver = nvidia_devices(library)
    assert [one.index for one in devices] == [0, 1, 2]
    # the one of bus 9B, which comes last, is used
    assert [one.free for one in devices] == [True, True, False]
    assert [one.linked for one in devices] == [(), (2,), (1,)]
    assert {(one.gpu, one.capability) for one in devices} == {("h100-sxm-80gb", "9.0")}
    assert (driver, library.open) == ("580.65.06", 0)


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Library(driver=False))
    found = detect()
    assert found.devices == ()
    assert found.cpus >= 1
    assert found.memory_bytes > 2**30
    assert found.notes == ("NVIDIA's driver cannot be asked (Driver Not Loaded)",)
    monkeypatch.setitem(sys.modules, "pynvml", Library())
    assert len(detect().devices) == 3


@pytest.mark.parametrize(
    ("name", "mib", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", 81_559, "h100-sxm-80gb"),
        ("NVIDIA H200", 143_771, "h200-sxm-141gb"),
        ("NVIDIA A100-SXM4-40GB", 40_960, "a100-sxm-40gb"),
        ("NVIDIA L40S", 46_068, "l40s"),
        ("NVIDIA GeForce RTX 4090", 24_564, "rtx-4090"),
        ("Quadro RTX 4000", 8_192, ""),
    ],
)
def test_a_drivers_name_is_found_in_the_catalog(name: str, mib: int, gpu: str) -> None:
    assert catalog_gpu(name, mib * 2**20) == gpu


def test_instances_stay_on_their_node_and_their_island() -> None:
    whole = of().devices
    assert [[one.index for one in group] for group in groups(whole, 2)] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
    ]
    # GPU 3 is left alone
    assert [[one.index for one in group] for group in groups(whole[1:], 2)] == [
        [1, 2],
        [4, 5],
        [6, 7],
    ]
    assert len(groups(whole, 8)) == 1
    pairs = tuple(replace(one, linked=(one.index ^ 1,)) for one in whole)
    assert all(joined(group) for group in groups(pairs, 2))
    assert not joined(groups(pairs, 4)[0])
    assert groups(whole, 16) == ()


def test_a_machine_may_be_described_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(of(count=2).to_json()))), encoding="utf-8")
    assert read_machine(path) == of(count=2)
    path.write_text("cpus: 2\nmemory_bytes: 1\ndevice: []\n", encoding="utf-8")
    with pytest.raises(InputError, match="device"):
        read_machine(path)
