"""One load, from the question to the run folder: interrupted, or on a full disk."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from tests.bench.cli_cases import ASKED
from tests.bench.live import question, run
from tonnage.bench import measure
from tonnage.bench.exact_server import Schedule, exact_server
from tonnage.cli.main import run as command
from tonnage.spec.workload import ClosedLoop, OpenLoop


@pytest.mark.parametrize(
    "arrivals", [ClosedLoop(concurrency=2), OpenLoop(rate=50.0)], ids=["clients", "rate"]
)
def test_ctrl_c_in_the_warm_up_ends_the_run_before_its_first_request(
    arrivals: ClosedLoop | OpenLoop, fast: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> bool:
        return False

    monkeypatch.setattr(measure, "_warm_up", interrupted)
    assert len(run(fast, tmp_path / "run", question(arrivals), warmup=8).requests) == 0


def test_figures_are_kept_where_the_disk_is_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", full)
    load = [
        "--concurrency",
        "4",
        "--request-count",
        "20",
        "--artifact-dir",
        str(tmp_path / "run"),
        "--json",
    ]
    with exact_server(Schedule(ttft_s=0.01, itl_s=0.002), seconds=60) as url:
        code = command([*ASKED, "--url", url, *load])
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert code == 1
    assert (said["requests"]["completed"], said["errors"]) == (20, 0)
    assert said["ttft_ms"]["mean"] > 10
    assert (
        f"run: cannot be written ({os.strerror(errno.ENOSPC)}); its figures are those above" in err
    )
    assert not list(tmp_path.iterdir())
