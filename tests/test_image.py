"""The Containerfile's steps, carried out without a container engine: the simulated engine starts
from what they leave, and answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.deploy.plans import dense
from tonnage.deploy.targets import deployed, target_files

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[1]
LARGEST = 160e6
"""Bytes of all files of the image."""

DEBIAN = Path("/etc/os-release")


def steps() -> list[str]:
    between = (
        (ROOT / "Containerfile")
        .read_text(encoding="utf-8")
        .partition("# begin\n")[2]
        .partition("# end\n")[0]
    )
    return [line.removeprefix("RUN ") for line in between.splitlines()]


def fetched(url: str, asked: dict[str, object] | None = None) -> str:
    to = urllib.request.Request(
        url, json.dumps(asked).encode() if asked else None, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(to, timeout=120) as answer:
        return str(answer.read(), "utf-8")


def inside(image: Path, *words: str) -> list[str]:
    """A command in the image, as the container engine runs it."""
    return ["/usr/sbin/chroot", "--userspec=1000:1000", str(image), *words]


@pytest.mark.skipif(
    os.geteuid() != 0
    or not DEBIAN.is_file()
    or "bookworm" not in DEBIAN.read_text(encoding="utf-8"),
    reason=(
        "the image's packages are fetched by apt-get of Debian 12, and its root file system is"
        " entered by root"
    ),
)
def test_the_engine_of_the_image_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, source = tmp_path / "image", tmp_path / "build"
    source.mkdir()
    for name in re.findall(
        r"COPY (?!--from)(.*) \S+\n", (ROOT / "Containerfile").read_text(encoding="utf-8")
    ):
        subprocess.run(["cp", "-r", *name.split(), str(source)], check=True, cwd=ROOT)
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")
    }
    for step in steps():
        subprocess.run(
            step.replace("/image", str(image)),
            shell=True,
            check=True,
            cwd=source,
            timeout=600,
            env=plain,
        )
    size = sum(file.lstat().st_size for file in image.rglob("*"))
    with capsys.disabled():
        print(f"root file system of the image: {size / 1e6:.0f} MB")
    assert size < LARGEST
    files = target_files(deployed(dense("vllm-0.32"), "compose", simulated=True), "compose")
    (image / "tmp/plan.json").write_text(files["plan.json"], encoding="utf-8")
    as_set = {"PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    for words in (
        ["sleep", "0"],
        ["sh", "-c", "ls /tmp"],
        ["python3", "-c", "import msgspec, tokenizers, zmq"],
    ):
        subprocess.run(
            inside(image, *words), env=as_set, check=True, capture_output=True, timeout=60
        )
    refused = subprocess.run(
        inside(image, "tonnage", "demo"),
        env=as_set,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (
        refused.stderr == "tonnage: this needs numba, which is not installed: pip install tonnage\n"
    )
    for more in ([], ["--no-prefix-caching"]):
        words = inside(
            image,
            "tonnage",
            "serve",
            "--plan",
            "/tmp/plan.json",
            "--instances",
            "1",
            "--port",
            "0",
            *more,
        )
        with subprocess.Popen(words, env=as_set, stderr=subprocess.PIPE, text=True) as server:
            try:
                assert server.stderr is not None
                said = ""
                while not (found := re.search(r"http://127.0.0.1:\d+", said)) and (
                    line := server.stderr.readline()
                ):
                    said += line
                assert found, said
                healthy = yaml.safe_load(files["compose.yaml"])["services"]["instance-1"][
                    "healthcheck"
                ]["test"]
                check = [word.replace("http://127.0.0.1:8000", found[0]) for word in healthy[1:]]
                subprocess.run(inside(image, *check), env=as_set, check=True, timeout=60)
                check_answers(found[0])
            finally:
                server.terminate()


def check_answers(url: str) -> None:
    to = f"{url}/v1/chat/completions"
    asked = {"model": "llama-3.1-8b", "messages": [{"role": "user", "content": "x"}]}
    assert json.loads(fetched(to, {**asked, "max_tokens": 5}))["usage"]["completion_tokens"] == 5
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    answer = json.loads(fetched(to, {**asked, "max_tokens": 200, "response_format": shape}))
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["n"], int)
    assert "vllm:request_success_total{" in fetched(f"{url}/metrics")
