"""AMD's library, asked in a child that may end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.serve.machine import amd_devices, detect

if TYPE_CHECKING:
    import pytest


def test_amds_gpus_are_read_off_the_child() -> None:
    rows = [
        {
            "index": n,
            "name": "AMD Instinct MI300X",
            "memory_bytes": 196_592 * 2**20,
            "used_bytes": 0,
        }
        for n in range(2)
    ]
    devices, driver, _ = amd_devices(json.dumps({"devices": rows, "driver": "6.12.12"}))
    assert [(one.vendor, one.gpu, one.linked) for one in devices] == [
        ("AMD", "mi300x", (1,)),
        ("AMD", "mi300x", (0,)),
    ]
    assert driver == "6.12.12"


def test_amds_library_is_asked_in_a_child_that_may_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("tonnage.serve.machine.AMD_DRIVER", tmp_path)
    # amdsmi is not installed here
    assert detect().notes == ("AMD's driver is there, and amdsmi cannot ask it",)
