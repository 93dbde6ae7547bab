"""The Helm chart of a simulated pool: linted and rendered by Helm 4's own code, and what comes of
it read as Kubernetes would."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.plans import dense
from tests.deploy.written import Objects, objects_of
from tonnage.deploy.references import read_against
from tonnage.deploy.service import SIMULATED
from tonnage.deploy.targets import deployed, target_files

pytestmark = pytest.mark.install
CHART = Path(__file__).parents[2] / "charts" / "tonnage-simulated"
HELM = """
import helm_python, json, sys
values, chart = json.load(sys.stdin), sys.argv[1]
with helm_python.Chart.load(chart) as made:
    files = made.render(values, name="pool", namespace="trial")
print(json.dumps([helm_python.lint(chart, values, strict=True), files, helm_python.helm_sdk_version()]))
"""


def asked(**values: Any) -> subprocess.CompletedProcess[str]:
    """The chart linted and rendered with these values."""
    python = os.environ.get("TONNAGE_HELM")
    assert python, "TONNAGE_HELM names no Python with helm-python-sdk; run ./check --install"
    return subprocess.run(
        [python, "-c", HELM, str(CHART)],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@cache
def plan() -> str:
    return json.dumps(dense("vllm-0.32").to_json())


VALUES: list[dict[str, Any]] = [
    {},
    {
        "replicas": 3,
        "policy": "prefix-aware",
        "args": ["--fault", "slow factor=3 from=60s", "--osl", "200"],
    },
    {"gateway": "llm-d", "emulate": "vllm"},
    {
        "gateway": "none",
        "emulate": "sglang",
        "image": {"repository": "registry.example/engine", "tag": "2"},
    },
    {"plan": "of the test", "replicas": 8},
]


def rendered(values: dict[str, Any]) -> Objects:
    done = asked(**values | ({"plan": plan()} if "plan" in values else {}))
    assert done.returncode == 0, done.stderr
    report, files, version = json.loads(done.stdout)
    assert report["errors"] == []
    assert version.startswith("v4.")
    return objects_of(
        {name: text for name, text in files.items() if name.endswith(".yaml") and text.strip()}
    )


@pytest.mark.parametrize("values", VALUES, ids=["default", "prefix-aware", "llm-d", "none", "plan"])
def test_helm_and_kubernetes_read_it(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = rendered(values)
    for (kind, name), one in objects.items():
        against, faults = read_against(one)
        assert not against.startswith("not read:"), kind
        assert faults == [], (kind, name)
    engines = objects["StatefulSet", "pool"]["spec"]
    (container,) = engines["template"]["spec"]["containers"]
    assert engines["replicas"] == values.get("replicas", 2)
    assert container["image"] == (
        SIMULATED if "image" not in values else "registry.example/engine:2"
    )
    words = container["args"]
    if "plan" in values:
        (tmp_path / "plan.json").write_text(
            objects["ConfigMap", "pool-plan"]["data"]["plan.json"], encoding="utf-8"
        )
        words = [word.replace("/etc/engine", str(tmp_path)) for word in words]
    assert served(words, monkeypatch).model == "llama-3.1-8b"
    labels = engines["template"]["metadata"]["labels"].items()
    pools = [
        objects["Service", "pool-engines"]["spec"]["selector"],
        engines["selector"]["matchLabels"],
    ]
    pools += [
        one["spec"]["selector"]["matchLabels"]
        for (kind, _), one in objects.items()
        if kind == "InferencePool"
    ]
    assert all(pool.items() <= labels for pool in pools)
    assert (("Service", "pool") in objects) == (values.get("gateway") != "llm-d")
    if values.get("gateway", "plain") == "plain":
        settings = yaml.safe_load(objects["ConfigMap", "pool-gateway"]["data"]["gateway.yaml"])
        assert settings["backends"] == [
            f"http://pool-{i}.pool-engines:8000" for i in range(engines["replicas"])
        ]
        assert settings["policy"] == values.get("policy", "least-outstanding")


def served(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the command of a pod serves, by the command line itself."""
    from tonnage.cli.main import run

    found: list[Any] = []
    monkeypatch.setattr("tonnage.serve.server.serve", lambda one, ready: found.append(one))
    assert run(words) == 0
    return found[0]


def test_llm_ds_objects_are_those_of_deploy() -> None:
    made = rendered({"gateway": "llm-d"})
    written = objects_of(
        target_files(deployed(dense("vllm-0.32"), "llm-d", simulated=True), "llm-d")
    )
    for kind in ("InferencePool", "HTTPRoute", "Role", "RoleBinding"):
        (mine,), (theirs,) = (
            [(name, one) for (of, name), one in objects.items() if of == kind]
            for objects in (made, written)
        )
        plain = json.loads(json.dumps(theirs[1]).replace(theirs[0].removesuffix("-picker"), "pool"))
        for part in (mine[1], plain):
            del part["metadata"]
            part.get("spec", {}).pop("selector", None)
        assert mine[1] == plain
    pickers = [
        next(
            one
            for (kind, name), one in objects.items()
            if (kind, name.endswith("-picker")) == ("Deployment", True)
        )
        for objects in (made, written)
    ]
    mine, theirs = (one["spec"]["template"]["spec"]["containers"][0] for one in pickers)
    assert [mine[key] for key in ("image", "ports", "env")] == [
        theirs[key] for key in ("image", "ports", "env")
    ]
    assert [word for word in mine["args"] if word != "pool"] == [
        word for word in theirs["args"] if not word.startswith("llama")
    ]
    settings = [
        next(
            one
            for (kind, name), one in objects.items()
            if (kind, "picker" in name) == ("ConfigMap", True)
        )
        for objects in (made, written)
    ]
    assert yaml.safe_load(settings[0]["data"]["picker.yaml"]) == yaml.safe_load(
        settings[1]["data"]["picker.yaml"]
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gateway": "istio"}, "/gateway"),
        ({"replicas": 0}, "/replicas"),
        ({"modell": "x"}, "modell"),
        ({"args": "--osl 5"}, "/args"),
    ],
)
def test_values_that_cannot_be_are_refused(values: dict[str, Any], said: str) -> None:
    done = asked(**values)
    assert done.returncode != 0
    assert said in done.stderr
