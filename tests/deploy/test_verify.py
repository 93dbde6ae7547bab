"""``deploy verify``: what is changed in a written folder is found, and named with its file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random

import pytest
import yaml

from tests.deploy.across import changed
from tests.deploy.plans import dense
from tests.in_turn import in_turn
from tonnage.cli.main import run
from tonnage.deploy.service import Service
from tonnage.deploy.targets import deployed, target_files
from tonnage.deploy.verify import read_files
from tonnage.spec.deployment import Parallelism

N = "llama-3-1-8b"


@cache
def written(target: str, engine: str = "vllm-0.32") -> tuple[Service, Mapping[str, str]]:
    """A folder as it is written, in which no fault is found."""
    plan = (
        changed(engine, split=Parallelism(tp=8, pp=2)) if target == "two systems" else dense(engine)
    )
    plan = dense(engine, systems=3, instances=20) if target == "three machines" else plan
    name = {"two systems": "kubernetes", "three machines": "compose"}.get(target, target)
    service = deployed(plan, name)
    files = target_files(service, name)
    assert read_files(files, service).faults == ()
    return service, files


@pytest.mark.parametrize(
    ("target", "file", "before", "after", "said"),
    [
        (
            "kubernetes",
            "deployment.yaml",
            "replicas: 8",
            "replicas: 7",
            "7 instances in place of the plan's 8",
        ),
        ("kubernetes", "deployment.yaml", "resources:", "resource:", "'resource'"),
        (
            "kubernetes",
            "deployment.yaml",
            "- --max-num-seqs",
            "- --max-num-seq",
            "has no flag --max-num-seq",
        ),
        (
            "kubernetes",
            "deployment.yaml",
            "dtype=fp8",
            "dtype=fp7",
            "--kv-cache-dtype of vllm-0.32 (0.32.0) is one of",
        ),
        (
            "kubernetes",
            "deployment.yaml",
            "vllm-openai:v0.32.0",
            "vllm-openai:v0.31.0",
            "that of vllm-0.32 is vllm/vllm-openai:v0.32.0",
        ),
        (
            "kubernetes",
            "deployment.yaml",
            "containerPort: 8000",
            "containerPort: 8001",
            "engine listens on 8000, and its ports are [8001]",
        ),
        (
            "kubernetes",
            "deployment.yaml",
            "- name: shared-memory\n",
            "- name: shm\n",
            "mounts the volume shm, which the pod does not have",
        ),
        (
            "kubernetes",
            "model-cache.yaml",
            "-model-cache",
            "-cache",
            f"is the PersistentVolumeClaim {N}-model-cache, which is not in this",
        ),
        (
            "kubernetes",
            "service.yaml",
            "targetPort: http",
            "targetPort: web",
            f"Deployment/{N} has no port web",
        ),
        (
            "kubernetes",
            "disruption-budget.yaml",
            "matchLabels:\n",
            "matchLabels:\n      a: b\n",
            "no pod of this folder has the labels",
        ),
        (
            "kubernetes",
            "autoscaling.yaml",
            "minReplicaCount",
            "minReplicas",
            "spec.minReplicas is no field; did you mean minReplicaCount",
        ),
        (
            "kubernetes",
            "autoscaling.yaml",
            "kind: Deployment",
            "kind: StatefulSet",
            f"it scales StatefulSet {N}, which is not",
        ),
        (
            "kubernetes",
            "autoscaling.yaml",
            "stabilizationWindowSeconds",
            "stabilizationWindow",
            "AutoscalerConfig.behavior.scale",
        ),
        (
            "kubernetes",
            "autoscaling.yaml",
            "vllm:num_requests_running",
            "vllm:num_requests_run",
            "publishes no metric vllm:num_",
        ),
        (
            "kubernetes",
            "kustomization.yaml",
            "service.yaml",
            "services.yaml",
            "services.yaml is not in this folder",
        ),
        ("kubernetes", "service.yaml", "spec:", "spec: [", "service.yaml: cannot be read"),
        (
            "two systems",
            "leader-worker-set.yaml",
            "OnPodRestart",
            "OnPodFailure",
            "must be one of Default, RecreateGroupOnPodRestart",
        ),
        (
            "llm-d",
            "inference-pool.yaml",
            "number: 9002",
            "number: 9003",
            f"its picker {N}-picker has no port 9003",
        ),
        (
            "llm-d",
            "inference-pool.yaml",
            "endpointPickerRef",
            "extensionRef",
            "spec.extensionRef is no field",
        ),
        (
            "llm-d",
            "route.yaml",
            f"kind: InferencePool\n          name: {N}",
            "kind: InferencePool\n          name: other",
            "leads to InferencePool other, which is not",
        ),
        (
            "llm-d",
            "picker-config.yaml",
            "pluginRef: queue-scorer",
            "pluginRef: queue",
            "a profile uses the plugin queue, which is not",
        ),
        (
            "llm-d",
            "picker.yaml",
            "serviceAccountName: ",
            "serviceAccountName: no-",
            f"its account no-{N}-picker is not in this folder",
        ),
        (
            "kserve",
            "inference-service.yaml",
            "parallelism:\n    tensor",
            "parallelism:\n    tp",
            "spec.parallelism.tp is no field",
        ),
        (
            "kserve",
            "inference-service.yaml",
            "--max-num-seqs",
            "--max-seqs",
            "VLLM_ADDITIONAL_ARGS: vllm-0.32 (0.32.0) has no flag",
        ),
        (
            "dynamo",
            "graph.yaml",
            "sharedMemorySize",
            "sharedMemory",
            "spec.components[1].sharedMemory is no field; did you mean",
        ),
        (
            "dynamo",
            "autoscaling.yaml",
            f"name: {N}-worker",
            f"name: {N}-workers",
            "it scales DynamoGraphDeploymentScalingAdapter",
        ),
        (
            "nim",
            "deployment.yaml",
            "--max-num-seqs",
            "--max-seqs",
            "NIM_PASSTHROUGH_ARGS: vllm-0.32 (0.32.0) has no flag --max-seqs",
        ),
        (
            "nim",
            "nim-service.yaml",
            "authSecret",
            "authSecrets",
            "spec.authSecrets is no field; did you mean authSecret",
        ),
        (
            "production-stack",
            "values.yaml",
            ": roundrobin",
            ": random",
            "routerSpec.routingLogic must be one of roundrobin, session",
        ),
        (
            "production-stack",
            "values.yaml",
            f"release: {N}",
            "release: other",
            f"it scales Deployment {N}-engine-deployment-vllm, which",
        ),
        (
            "production-stack",
            "values.yaml",
            "environment: tonnage",
            "environment: test",
            "no pod of this folder has the labels",
        ),
        ("ray-serve", "serve.yaml", "max_num_seqs", "max_seqs", "has no flag --max-seqs"),
        (
            "triton",
            f"repository/{N}/1/model.json",
            "max_num_seqs",
            "max_seqs",
            "has no flag --max-seqs",
        ),
        ("compose", "compose.yaml", "- '7'", "- '6'", "instance-8 and instance-7 have GPU 6 both"),
        (
            "compose",
            "compose.yaml",
            "./alerts.yaml",
            "./alert.yaml",
            "prometheus mounts ./alert.yaml, which is not there",
        ),
        (
            "compose",
            "gateway.yaml",
            "  - http://127.0.0.1:8008\n",
            "",
            "7 backends in place of the plan's 8 instances",
        ),
        (
            "three machines",
            "machine-3.yaml",
            "8004:8000",
            "8005:8000",
            "http://machine-3:8004 is no published port of machine-3.yaml",
        ),
        (
            "three machines",
            "machine-2.yaml",
            "  instance-16:",
            "  other:",
            "router.yaml: 19 instances in place of the plan's 20",
        ),
        (
            "three machines",
            "gateway.yaml",
            "machine-3:8004",
            "machine-3:8003",
            "19 backends in place of the plan's 20 instances",
        ),
        (
            "three machines",
            "prometheus.yaml",
            "machine-3:9400",
            "machine-3:9401",
            "machine-3:9401 is neither a service nor a published",
        ),
        (
            "compose",
            "prometheus.yaml",
            "instance-8:8000",
            "instance-9:8000",
            "instance-9:8000 is neither a service nor a published port",
        ),
    ],
)
def test_one_change_is_found_and_named(
    target: str, file: str, before: str, after: str, said: str
) -> None:
    service, files = written(target)
    assert before in files[file], files[file]
    found = read_files({**files, file: files[file].replace(before, after, 1)}, service).faults
    assert any(said in one for one in found), found


@pytest.mark.parametrize("simulated", [False, True], ids=["engine", "simulated"])
@pytest.mark.parametrize("target", ["compose", "kubernetes"])
def test_another_program_in_an_engines_place_is_a_fault(target: str, simulated: bool) -> None:
    files = target_files(deployed(dense(), target, simulated=simulated), target)
    service = deployed(dense(), target)
    assert read_files(files, service).faults == ()
    name = "compose.yaml" if target == "compose" else "deployment.yaml"
    for words in (["/bin/sh", "-c", "touch canary"], ["serve", "--engine-path", "/evil/env"]):
        document = yaml.safe_load(files[name])
        if target == "compose":
            engine = document["services"]["instance-1"]
            engine["entrypoint"] = []
        else:
            (engine,) = document["spec"]["template"]["spec"]["containers"]
            engine.pop("args", None)
        engine["command"] = words
        faults = read_files({**files, name: yaml.safe_dump(document)}, service).faults
        assert any("its command is neither an engine's" in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("old", "new", "is_the_plans"),
    [
        ("--host 0.0.0.0 --port 8000", "--port 8000 --host 0.0.0.0", True),
        ("serve --plan /etc/engine/plan.json", "serve", False),
        ("--emulate vllm", "--emulate=vllm", True),
        ("--port 8000", "--port=9000", True),
        ("--emulate vllm", "--emulate sglang", False),
        ("--port 8000 --served-model-name SERVED", "--port 8000 --engine-path /evil", False),
        ("--port 8000", "--engine-path /evil", False),
        ("serve", "serve serve", False),
        ("serve", "tonnage serve", False),
        ("--port 8000", "--port 8000 --coefficients /evil", False),
        ("--port 8000", "--port 8000 --emulate vllm", False),
        ("--instances 1", "", False),
        ("--instances 1", "--instances", False),
    ],
)
def test_a_simulated_engines_command_is_compared_by_option(
    old: str, new: str, is_the_plans: bool
) -> None:
    files = target_files(deployed(dense("vllm-0.32"), "compose", simulated=True), "compose")
    document = yaml.safe_load(files["compose.yaml"])
    engine = document["services"]["instance-1"]
    line = " ".join(engine["command"]).replace(engine["command"][-1], "SERVED")
    assert old in line
    engine["command"] = line.replace(old, new, 1).split()
    service = deployed(dense("vllm-0.32"), "compose")
    faults = read_files({**files, "compose.yaml": yaml.safe_dump(document)}, service).faults
    named = [fault for fault in faults if "its command is neither an engine's" in fault]
    assert (named == []) is is_the_plans, faults


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_a_simulated_engines_options_is_a_fault(seed: int) -> None:
    files = target_files(deployed(dense(), "kubernetes", simulated=True), "kubernetes")
    document = yaml.safe_load(files["deployment.yaml"])
    (engine,) = document["spec"]["template"]["spec"]["containers"]
    verb, *words = engine["args"]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    Random(seed).shuffle(pairs)
    engine["args"] = [verb, *chain.from_iterable(pairs)]
    service = deployed(dense(), "kubernetes")
    assert read_files({**files, "deployment.yaml": yaml.safe_dump(document)}, service).faults == ()


def test_a_key_of_the_engines_file_and_a_flag_of_dynamos_worker_are_looked_up() -> None:
    for target in ("kubernetes", "dynamo"):
        service, files = written(target, "tensorrt-llm-1.2")
        wrong = {"engine-config.yaml": files["engine-config.yaml"].replace("dtype:", "dtyp:")}
        assert any(
            "has no key kv_cache_config.dtyp" in one
            for one in read_files({**files, **wrong}, service).faults
        )
    wrong = {"graph.yaml": files["graph.yaml"].replace("--max-batch-size", "--max-batch")}
    assert any(
        "has no flag --max-batch" in one for one in read_files({**files, **wrong}, service).faults
    )


def test_the_verb_prints_what_was_read_against_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, folder = tmp_path / "plan.json", tmp_path / "out"
    plan.write_text(json.dumps(dense().to_json()), encoding="utf-8")
    assert run(["deploy", str(plan), "--target", "compose", "--output", str(folder)]) == 0
    capsys.readouterr()
    assert run(["deploy", "verify", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["faults"] == []
    assert {"file": "gateway.yaml", "name": "settings", "against": "tonnage gateway"} in found[
        "parts"
    ]
    text = (folder / "gateway.yaml").read_text(encoding="utf-8")
    (folder / "gateway.yaml").write_text(text.replace("policy:", "polcy:"), encoding="utf-8")
    assert run(["deploy", "verify", str(folder)]) == 3
    # lines end where the terminal does
    assert "polcy: unknown key" in " ".join(capsys.readouterr().out.split())
    (folder / "plan.json").unlink()
    assert run(["deploy", "verify", str(folder)]) == 2
    assert "holds no plan.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "value"), in_turn(["compose", "kserve", "ray-serve"], [7, ["x"]])
)
def test_a_document_of_another_structure_is_a_fault_and_no_traceback(
    target: str, value: object
) -> None:
    service, files = written(target)
    for file in (name for name in files if name.endswith(".yaml")):
        for key in {
            line.partition(":")[0] for line in files[file].splitlines() if line[:1].isalpha()
        }:
            document = yaml.safe_load(files[file].split("\n---\n")[0])
            found = read_files({**files, file: yaml.safe_dump({**document, key: value})}, service)
            assert (
                found.faults
                or key in ("apiVersion", "kind", "metadata", "global", "rule_files")
                or "kind" not in document
            )
