"""Our exports, opened by the readers of the tools whose files they are.

    ./benchmark opened_by_peers AIPERF_PYTHON VLLM_PYTHON

A short run against the exact server is exported; AIPerf's own models read report and records and
check them, and the reader of ``vllm bench sweep`` takes the result file. Prints what each of them
read, beside what the run folder says.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tonnage.api.bench import bench
from tonnage.bench.exact_server import Schedule, exact_server

AIPERF = """
import json, sys
from pathlib import Path
from aiperf.common.models.export_models import JsonExportData
from aiperf.common.models import MetricRecordInfo
folder = Path(sys.argv[1])
report = JsonExportData.model_validate_json((folder / "profile_export_aiperf.json").read_text())
records = [MetricRecordInfo.model_validate_json(line) for line in (folder / "profile_export.jsonl").read_text().splitlines()]
mean = sum(record.metrics["time_to_first_token"].value for record in records) / len(records)
said = report.time_to_first_token.avg
print(f"AIPerf: {report.request_count.avg:.0f} requests, TTFT {said:.3f} ms; of {len(records)} records {mean:.3f} ms")
"""

VLLM = """
import sys
from pathlib import Path
from vllm.benchmarks.sweep.plot import _json_load_bytes
from vllm.benchmarks.sweep.plot_pareto import _get_throughput, _infer_user_count
read = _json_load_bytes(Path(sys.argv[1]))
print(f"vLLM: {read['completed']} requests, TTFT {read['mean_ttft_ms']:.3f} ms, {_infer_user_count(read, None):.0f} users, "
      f"{_get_throughput(read, 'output_throughput'):.0f} tokens/s")
"""


def main(aiperf: str, vllm: str) -> None:
    """Print what each reader read."""
    with tempfile.TemporaryDirectory() as name, exact_server(Schedule()) as url:
        folder = Path(name) / "run"
        (run,) = bench(
            url=url,
            model="m",
            isl=100,
            osl=16,
            concurrency=8,
            request_count=80,
            output=folder,
            selftest=False,
            export=("aiperf", "vllm"),
        )
        print(
            f"run folder: {run.summary.counted} requests, TTFT"
            f" {run.summary.ttft_from_send_ms.mean:.3f} ms"
        )
        for python, script, path in (
            (aiperf, AIPERF, folder / "export-aiperf"),
            (vllm, VLLM, folder / "export-vllm" / "vllm.json"),
        ):
            end = subprocess.run(
                [python, "-c", script, str(path)], capture_output=True, text=True, check=False
            )
            print(end.stdout.strip() or end.stderr.strip()[-1500:])


if __name__ == "__main__":
    main(*sys.argv[1:3])
