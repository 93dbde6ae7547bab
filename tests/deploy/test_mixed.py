"""A fleet of two kinds of systems as files: a folder for each, and one router that knows both."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.questions import SMALL, plans_with, question
from tonnage.api.bench import bench
from tonnage.api.running.deploy import deploy
from tonnage.api.sizing import answer, ask
from tonnage.cli.main import run
from tonnage.deploy.mixed import MIXED, deployed_mixed
from tonnage.deploy.plan_text import bench_lengths
from tonnage.deploy.service import dns_label
from tonnage.deploy.verify import read_folder
from tonnage.errors import InputError
from tonnage.plan.plan import Plan
from tonnage.results.metrics import summarize
from tonnage.serve.supervisor import Program, Supervisor, free_ports
from tonnage.sizing.fleet.existing import strongest, whole_fleet
from tonnage.sizing.loads.mixed_check import MixedAtPeak
from tonnage.sizing.loads.runs import Runs
from tonnage.sizing.question import Owned
from tonnage.sizing.search.search import Search
from tonnage.spec.catalog import find_system
from tonnage.spec.workload import Trace

_few_parts = plans_with()


@cache
def plan(**changed: Any) -> Plan:
    asked = {"have": "1x8xl40s", "gpu": "h100", "engine": "vllm-0.32", "tp": "1", "peak_rps": 400}
    return answer(ask(**{**SMALL, **asked, **changed}))[0]


def written(folder: Path, target: str, **changed: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan(**changed).to_json()))
    deploy(path, target=target, output=folder / target)
    return folder / target


@pytest.mark.parametrize("target", MIXED)
def test_what_is_written_is_read_again_without_a_fault(target: str, tmp_path: Path) -> None:
    folder = written(tmp_path, target)
    read = read_folder(folder)
    assert read.faults == ()
    mixed = plan().mixed
    assert mixed is not None
    assert len(mixed.groups) == 2
    for group, name in zip(mixed.groups, ("n8xl40s", "dgx-h100"), strict=True):
        part = Plan.from_json(json.loads((folder / name / "plan.json").read_text()))
        assert part.choice is not None
        assert part.choice.systems == group.owned + group.added
        assert part.demand.sizing_requests_per_second == pytest.approx(400 * group.share)
        assert group.candidate.system in (folder / "README.md").read_text()


def servers(folder: Path) -> list[tuple[str, int, int]]:
    """Of each line of HAProxy's servers the address, how many it stands for, and the weight."""
    text = (folder / "haproxy.cfg").read_text() if (folder / "haproxy.cfg").is_file() else ""
    if not text:
        objects = yaml.safe_load_all((folder / "router.yaml").read_text())
        text = next(one["data"]["haproxy.cfg"] for one in objects if one["kind"] == "ConfigMap")
    lines = [line.split() for line in text.splitlines() if line.startswith("    server")]
    return [
        (words[-3], int(words[2]) if words[0] == "server-template" else 1, int(words[-1]))
        for words in lines
        if words[-2] == "weight"
    ]


@pytest.mark.parametrize("target", MIXED)
def test_the_router_gives_each_kind_its_weight(target: str, tmp_path: Path) -> None:
    mixed = plan().mixed
    assert mixed is not None
    slow, fast = mixed.groups
    counts = [group.candidate.instances for group in mixed.groups]
    lines = servers(written(tmp_path, target))
    if target == "dynamo":  # a front end before all workers of a kind
        expected = slow.weight * counts[0] / (fast.weight * counts[1])
        assert [count for _, count, _ in lines] == [1, 1]
    else:
        expected = slow.weight / fast.weight
        assert sum(count for _, count, _ in lines) == sum(counts)
    assert lines[0][2] / lines[-1][2] == pytest.approx(expected, rel=0.02)


HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


@pytest.mark.skipif(not HAPROXY, reason="no HAProxy on this machine: apt-get install haproxy")
@pytest.mark.parametrize("target", MIXED)
def test_haproxy_reads_it(target: str, tmp_path: Path) -> None:
    folder = written(tmp_path, target)
    path = folder / "haproxy.cfg"
    if not path.is_file():
        objects = yaml.safe_load_all((folder / "router.yaml").read_text())
        data = next(one["data"] for one in objects if one["kind"] == "ConfigMap")
        path = tmp_path / "haproxy.cfg"
        path.write_text(data["haproxy.cfg"])
    # here no resolver knows the machines, which would take five seconds
    path.write_text(path.read_text().replace("init-addr libc,none", "init-addr none"))
    assert HAPROXY is not None
    command = [HAPROXY, "-c", "-f", str(path)]
    told = {"NAMESPACE": "x"}
    read = subprocess.run(command, env=told, capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    assert "Configuration file is valid" in read.stdout


@pytest.mark.parametrize(
    ("place", "before", "after", "said"),
    [
        (
            "compose/haproxy.cfg",
            "    server n8xl40s-machine-1:8001",
            "    # ",
            "in place of the plan's",
        ),
        (
            "compose/gateway.yaml",
            "  - http://n8xl40s-machine-1:8001",
            "  # ",
            "backends in place of",
        ),
        (
            "compose/haproxy.cfg",
            "n8xl40s-machine-1:8002 weight",
            "x:8002 weight",
            "is in no folder",
        ),
        ("kubernetes/router.yaml", "kind-1- 8 ", "kind-1- 7 ", "HAProxy reaches"),
        ("kubernetes/router.yaml", "containerPort: 8080", "containerPort: eight", "router.yaml"),
        ("kubernetes/router.yaml", "name: dgx-h100-llama-3-1-8b\n", "name: x\n", "router.yaml"),
        ("kubernetes/kustomization.yaml", "  - dgx-h100\n", "", "dgx-h100 is not applied"),
        ("dynamo/router.yaml", "    server kind-1", "    # kind-1", "front ends in place of"),
    ],
)
def test_what_is_changed_is_noticed(
    place: str, before: str, after: str, said: str, tmp_path: Path
) -> None:
    target, _, file = place.partition("/")
    path = written(tmp_path, target) / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    assert any(said in fault for fault in read_folder(tmp_path / target).faults)


def test_targets_without_a_router_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan().to_json()))
    assert run(["deploy", str(path), "--target", "kserve", "--output", str(tmp_path / "x")]) == 2
    assert "write compose or kubernetes or dynamo" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_several_served_names_are_refused() -> None:
    """TensorRT-LLM has one for each checkpoint: FP8 on one kind, FP16 on the other."""
    whole = plan(engine="tensorrt-llm-1.2")
    assert whole.mixed is not None
    first, *others = whole.mixed.groups
    pools = tuple(replace(pool, precision="fp16") for pool in first.candidate.pools)
    wide = replace(first, candidate=replace(first.candidate, pools=pools))
    with pytest.raises(InputError, match="under their own names"):
        deployed_mixed(whole, replace(whole.mixed, groups=(wide, *others)), "compose")


def test_both_kinds_serve_the_model_under_one_name(tmp_path: Path) -> None:
    folder = written(tmp_path, "kubernetes")
    names = set()
    for kind in ("n8xl40s", "dgx-h100"):
        deployment = yaml.safe_load((folder / kind / "deployment.yaml").read_text())
        words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        names.add(words[words.index("--served-model-name") + 1])
    assert names == {"llama-3.1-8b"}


SPEED, SECONDS = 0.1, 14
"""Pace of the served engines, whose processes share two cores with the client, and the length of a
run at their own pace."""


@contextmanager
def served(folder: Path, logs: Path, kinds: list[str], fleet: MixedAtPeak) -> Iterator[str]:
    """A simulated engine in a process for each instance, by the plans of a folder, behind
    ``tonnage gateway`` with the weights of the fleet; its address."""
    engines, flags = [], []
    ports = iter(free_ports(sum(fleet.counts) + 1))
    for kind, count, weight in zip(kinds, fleet.counts, fleet.weights, strict=True):
        for place in range(count):
            port = next(ports)
            words = (
                "serve",
                "--plan",
                str(folder / kind / "plan.json"),
                "--instances",
                "1",
                "--speed",
                str(SPEED),
            )
            argv = (sys.executable, "-m", "tonnage", *words, "--port", str(port))
            name = f"{kind}-{place}"
            engines.append(Program(name=name, argv=argv, address=f"127.0.0.1:{port}"))
            flags += ["--backend", f"http://127.0.0.1:{port}={weight:.6g}"]
    port = next(ports)
    argv = (sys.executable, "-m", "tonnage", "gateway", *flags, "--port", str(port))
    front = Program(name="gateway", argv=argv, address=f"127.0.0.1:{port}", path="/v1/health/live")
    with Supervisor(engines, logs, restarts=False) as instances:
        instances.wait_until_ready(timeout_s=300.0, on_ready=lambda serving, of: None)
        with Supervisor([front], logs) as gateway:
            gateway.wait_until_ready(timeout_s=60.0)
            yield front.url


@pytest.mark.live
def test_a_served_fleet_of_two_kinds_is_as_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bench at the plan's load, and the same requests on the plan's fleet."""
    changed: dict[str, Any] = {"model": "llama-3.1-70b", "tp": "2,4", "engine": "vllm-0.32"}
    changed |= {"have": "1x4xl40s", "gpu": "h100", "system": "2xh100", "ttft": "p95<=2s"}
    changed |= {"peak_rps": 9, "osl": 60}
    folder = written(tmp_path, "kubernetes", **changed)
    asked = question(**changed)
    mixed = plan(**changed).mixed
    assert mixed is not None
    search = Search(question=asked, runs=Runs(asked.slo), rows=False)
    kinds = []
    for group in mixed.groups:
        owned = Owned(count=group.owned + group.added, system=find_system(group.candidate.system))
        sized = strongest(search, owned)
        assert sized is not None
        kinds.append((sized, owned.count))
    fleet = whole_fleet(kinds, 9.0, as_predicted=True)
    assert isinstance(fleet, MixedAtPeak)
    assert fleet.weights == pytest.approx([group.weight for group in mixed.groups])
    names = [dns_label(group.candidate.system) for group in mixed.groups]
    with served(folder, tmp_path, names, fleet) as url:
        (run_at_peak,) = bench(
            url=url,
            model="llama-3.1-70b",
            request_rate=9 * SPEED,
            benchmark_duration=f"{SECONDS / SPEED:g}s",
            selftest=False,
            metrics_url=["none"],
            characters_per_token=4,
            **bench_lengths(plan(**changed)),
        )
    clock = ("due_ns", "sent_ns", "first_token_ns", "last_token_ns")
    record = run_at_peak.requests
    times = {name: (getattr(record, name) * SPEED).astype(np.int64) for name in clock}
    measured = replace(record, **times)
    order = np.argsort(measured.due_ns, kind="stable")
    trace = Trace(
        due_ps=measured.due_ns[order] * 1000,
        isl=measured.isl[order],
        osl=measured.osl[order],
        concurrency=0,
        turnaround_ps=0,
    )
    again = fleet.routed(trace)
    for metric in ("ttft", "e2e"):
        for statistic in ("mean", "p95"):
            served_ms = summarize(measured).statistic_ms(metric, statistic)
            simulated_ms = summarize(again).statistic_ms(metric, statistic)
            with capsys.disabled():
                print(
                    f"{metric} {statistic}: {served_ms:.1f} ms served, {simulated_ms:.1f} simulated"
                )
            assert served_ms == pytest.approx(simulated_ms, rel=0.05, abs=2)


SPLIT = {
    "have": None,
    "isl": "histogram:200:0.9,16000:0.1",
    "osl": 50,
    "ttft": "p95<=1s",
    "gpu": "h200,l40s",
    "peak_rps": 100,
    "mix": True,
}


@pytest.mark.parametrize("target", MIXED)
def test_a_split_is_written_with_its_router_and_read_again(target: str, tmp_path: Path) -> None:
    folder = written(tmp_path, target, **SPLIT)
    mixed = plan(**SPLIT).mixed
    assert mixed is not None
    assert mixed.over_tokens is not None
    assert read_folder(folder).faults == ()
    text = "\n".join(path.read_text() for path in folder.iterdir() if path.is_file())
    assert f"acl long req.body_size gt {4 * mixed.over_tokens}" in text
    for group, name in zip(mixed.groups, ("short-8xl40s", "long-dgx-h200"), strict=True):
        part = Plan.from_json(json.loads((folder / name / "plan.json").read_text()))
        assert part.choice == group.candidate
        assert part.scenario.isl == group.isl
        assert part.demand.sizing_requests_per_second == pytest.approx(100 * group.share)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("use_backend long if long", "", "does not send long prompts"),
        ("req.body_size gt", "req.hdr_cnt gt", "does not send long prompts"),
        (" short-8xl40s-", " long-dgx-h200-", "of another folder"),
    ],
)
def test_a_split_that_was_changed_is_a_fault(
    before: str, after: str, fault: str, tmp_path: Path
) -> None:
    folder = written(tmp_path, "compose", **SPLIT)
    path = folder / "haproxy.cfg"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    assert any(fault in clause for clause in read_folder(folder).faults)


@pytest.mark.skipif(not HAPROXY, reason="no HAProxy on this machine: apt-get install haproxy")
def test_haproxy_reads_a_split_without_a_warning(tmp_path: Path) -> None:
    path = written(tmp_path, "compose", **SPLIT) / "haproxy.cfg"
    path.write_text(path.read_text().replace("init-addr libc,none", "init-addr none"))
    assert HAPROXY is not None
    command = [HAPROXY, "-c", "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "WARNING" not in done.stderr
