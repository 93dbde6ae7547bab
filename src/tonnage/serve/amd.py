"""AMD's GPUs by ``amdsmi``, asked in a child process: the library may end the process that loads it
where no driver is.

    python amd.py        prints one JSON list of GPUs

This file is run by its path and imports nothing of Tonnage.
"""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Print what there is; the exit code says whether the library and a driver are there."""
    try:
        import amdsmi  # type: ignore[import-not-found]
    except Exception as fault:  # it raises whatever its loader does
        print(fault, file=sys.stderr)
        return 1
    amdsmi.amdsmi_init()
    try:
        devices = []
        for place, handle in enumerate(amdsmi.amdsmi_get_processor_handles()):
            asic, vram = (
                amdsmi.amdsmi_get_gpu_asic_info(handle),
                amdsmi.amdsmi_get_gpu_vram_usage(handle),
            )
            device = {
                "index": place,
                "name": asic["market_name"],
                "memory_bytes": vram["vram_total"] * 2**20,
            }
            devices.append({**device, "used_bytes": vram["vram_used"] * 2**20})
        json.dump(
            {
                "devices": devices,
                "driver": amdsmi.amdsmi_get_gpu_driver_info(handle)["driver_version"]
                if devices
                else "",
            },
            sys.stdout,
        )
    finally:
        amdsmi.amdsmi_shut_down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
