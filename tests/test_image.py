"""The Containerfile's steps, carried out without a container engine: the simulated engine starts from what they leave, and answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.deploy.plans import dense
from tonnage.deploy.targets import deployed, target_files

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[1]
LARGEST = 110e6
"""Bytes of the packages in the image. Python's slim image comes below them; it cannot be fetched and counted here."""


def steps() -> list[str]:
    between = (ROOT / "Containerfile").read_text(encoding="utf-8").partition("# begin\n")[2].partition("# end\n")[0]
    return [line.removeprefix("RUN ") for line in between.splitlines()]


def fetched(url: str, asked: dict[str, object] | None = None) -> str:
    to = urllib.request.Request(url, json.dumps(asked).encode() if asked else None, {"content-type": "application/json"})
    with urllib.request.urlopen(to, timeout=120) as answer:
        return str(answer.read(), "utf-8")


def test_the_engine_of_the_image_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = tmp_path / "engine"
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    for step in steps():
        subprocess.run(step.replace("/engine", str(engine)), shell=True, check=True, cwd=ROOT, timeout=600, env=plain)
    size = sum(file.lstat().st_size for file in engine.rglob("*"))
    with capsys.disabled():
        print(f"packages of the image: {size / 1e6:.0f} MB")
    assert size < LARGEST
    files = target_files(deployed(dense("vllm-0.32"), "compose", simulated=True), "compose")
    (tmp_path / "plan.json").write_text(files["plan.json"], encoding="utf-8")
    kept = {"PATH": f"{engine}/bin", "HOME": str(tmp_path)}
    words = [str(engine / "bin/python"), str(engine / "bin/tonnage"), "serve", "--plan", "plan.json", "--instances", "1", "--port", "0"]
    with subprocess.Popen(words, env=kept, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = ""
            while not (found := re.search(r"http://127.0.0.1:\d+", said)) and (line := server.stderr.readline()):
                said += line
            assert found, said
            to = f"{found[0]}/v1/chat/completions"
            asked = {"model": "llama-3.1-8b", "messages": [{"role": "user", "content": "x"}]}
            assert json.loads(fetched(to, {**asked, "max_tokens": 5}))["usage"]["completion_tokens"] == 5
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
            shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
            answer = json.loads(fetched(to, {**asked, "max_tokens": 200, "response_format": shape}))
            assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["n"], int)
            assert "vllm:request_success_total{" in fetched(f"{found[0]}/metrics")
        finally:
            server.terminate()
