"""Every text of plans, services, use cases and scenarios, changed, through every target: no canary
runs, no file is written elsewhere."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.deploy.plans import dense, experts
from tests.deploy.test_use_cases import cases
from tests.fuzz.drawn import changed, draws
from tonnage.cli.main import run
from tonnage.deploy.targets import TARGETS
from tonnage.errors import HIDDEN

pytestmark = pytest.mark.fuzz
ROOT = Path(__file__).parents[2]
SMALL = {
    "model": "llama-3.1-8b",
    "lengths": {"isl": 100, "osl": 10},
    "demand": {"peak_rps": 5},
    "limits": {"ttft": "p95<=1s"},
}
SEARCH = {"gpu": "h100", "precision": "fp8", "engine": "vllm", "tp": 1}
TABLES = sorted((ROOT / "examples").glob("*.csv"))  # that scenarios name
OWN = {"plan.json", "question.yaml", "out", "stubs", *(table.name for table in TABLES)}


def asked(command: list[str], label: str) -> tuple[int, str]:
    """Exit code and output of a command, which ends in one of the four ways that it may and prints
    nothing hidden."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command)
    assert code in (0, 1, 2, 3), (label, command, code)
    assert code == 0 or err.getvalue() or out.getvalue(), (label, command, code)
    assert not HIDDEN.search(out.getvalue() + err.getvalue()), (label, command)
    return code, out.getvalue()


class Sandbox:
    """A folder for one draw, below others that hold what must stay."""

    def __init__(self, folder: Path) -> None:
        self.top, self.here = folder, folder / "a" / "b" / "c"
        self.canary = folder / "canary"
        self.stubs = folder / "stubs"
        self.stubs.mkdir()
        for name in (
            "docker",
            "kubectl",
            "helm",
            "tonnage",
            "curl",
            "python3",
            "pip",
            "git",
            "huggingface-cli",
            "hf",
            "genai-perf",
            "sleep",
        ):
            (self.stubs / name).write_text("#!/bin/sh\n")
            (self.stubs / name).chmod(0o755)
        (self.stubs / "touch").symlink_to(shutil.which("touch") or "/bin/touch")
        self.here.mkdir(parents=True)
        for place in (folder, folder / "a", folder / "a" / "b"):
            (place / "victim").write_text("whole")
        os.chdir(self.here)
        self.before = self.tree()

    def tree(self) -> dict[str, bytes]:
        files = (
            path
            for path in self.top.rglob("*")
            if path.is_file() and not path.is_relative_to(self.here)
        )
        return {
            str(path): path.read_bytes() for path in files if not path.is_relative_to(self.stubs)
        }

    def check(self, label: str) -> None:
        """Read what was written and run its shell lines, where only stubs and the canary's command
        are found."""
        assert {path.name for path in self.here.iterdir()} <= OWN, (
            label,
            list(self.here.iterdir()),
        )
        for path in sorted((self.here / "out").rglob("*")) if (self.here / "out").exists() else ():
            if path.is_file() and path.suffix not in (".gz", ".parquet"):
                self.read(path, path.read_text(encoding="utf-8"), label)
        assert self.tree() == self.before, label
        assert not self.canary.exists(), label
        shutil.rmtree(self.here / "out", ignore_errors=True)

    def read(self, path: Path, text: str, label: str) -> None:
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            list(yaml.safe_load_all(text))
        elif path.suffix == ".py":
            imported = [
                node
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Import) and node.names[0].name == "canary"
            ]
            assert not imported, (label, path)
        elif path.suffix == ".md":
            for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
                self.shell(block, label)

    def shell(self, text: str, label: str) -> None:
        begun = (
            f"cd {self.here / 'out'}; command_not_found_handle() {{ :; }}; wait() {{ :; }}\n{text}"
        )
        words = [str(shutil.which("bash")), "--norc", "-c", begun]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                words,
                env={"PATH": str(self.stubs), "HOME": str(self.here / "out")},
                capture_output=True,
                check=False,
                timeout=20,
            )
        assert not self.canary.exists(), (label, text)


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return Sandbox(tmp_path)


def text_of(document: Any) -> bytes:
    return json.dumps(document).encode("utf-8", "surrogatepass")


def test_plans_and_use_cases(sandbox: Sandbox) -> None:
    plans = [
        dense().to_json(),
        dense("sglang-0.5.9").to_json(),
        dense("tensorrt-llm-1.2").to_json(),
        experts().to_json(),
    ]
    plans.append(cases(names=("Chat", "Long answers")).to_json())
    written = 0
    for label, random in draws("plans and use cases"):
        document, what = changed(random.choice(plans), random, sandbox.canary)
        (sandbox.here / "plan.json").write_bytes(text_of(document))
        for target in random.sample(list(TARGETS), 3):
            code, _ = asked(
                ["deploy", "plan.json", "--target", target, "--output", "out"], f"{label}: {what}"
            )
            written += code == 0
            if code == 0:
                asked(["deploy", "verify", "out"], f"{label}: {what}")
            sandbox.check(f"{label}: {what}, {target}")
        for verb in (["report"], ["explain"], ["serve", "--engine", "vllm", "--dry-run", "--plan"]):
            code, out = asked([*verb, "plan.json"], f"{label}: {what}")
            if code == 0 and verb[0] == "serve":
                sandbox.shell(out, f"{label}: {what}")
    assert written > 0


def test_services(sandbox: Sandbox) -> None:
    services = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "examples" / "services").glob("*.yaml"))
    ]
    for label, random in draws("services"):
        document, what = changed(random.choice(services), random, sandbox.canary)
        (sandbox.here / "question.yaml").write_bytes(text_of(document))
        target = random.choice(["triton", "kserve"])
        asked(
            ["deploy", "question.yaml", "--target", target, "--output", "out"], f"{label}: {what}"
        )
        sandbox.check(f"{label}: {what}, {target}")


def test_scenarios(sandbox: Sandbox) -> None:
    names = sorted((ROOT / "examples").glob("*.yaml"))
    scenarios = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in names
        if path.name not in ("existing-fleet.yaml",)
    ]
    for table in TABLES:
        shutil.copy(table, sandbox.here)
    for label, random in draws("scenarios"):
        document, what = changed(
            {**random.choice(scenarios), "search": SEARCH}, random, sandbox.canary
        )
        if random.random() < 0.5:
            document, what = changed(
                {**SMALL, "title": "Chat", "search": SEARCH}, random, sandbox.canary
            )
        (sandbox.here / "question.yaml").write_bytes(text_of(document))
        if (
            asked(
                ["size", "question.yaml", "--output", "plan.json", "--quiet"], f"{label}: {what}"
            )[0]
            == 0
        ):
            target = Random(label).choice(list(TARGETS))
            asked(
                ["deploy", "plan.json", "--target", target, "--output", "out"], f"{label}: {what}"
            )
        sandbox.check(f"{label}: {what}")
        (sandbox.here / "plan.json").unlink(missing_ok=True)


def test_a_canary_that_runs_is_seen(sandbox: Sandbox) -> None:
    with pytest.raises(AssertionError, match="a line"):
        sandbox.shell(f'docker run "$(touch {sandbox.canary})"', "a line")
    sandbox.canary.unlink()
    (sandbox.here.parent / "victim").write_text("replaced")
    with pytest.raises(AssertionError):
        sandbox.check("a file")
