"""Several use cases in one namespace: a folder for each, applied together, without two objects of
one name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.plans import dense
from tonnage import api
from tonnage.deploy.targets import TARGETS, TOGETHER
from tonnage.errors import InputError
from tonnage.plan.candidate import Identity
from tonnage.plan.limit import Limit, LimitUse
from tonnage.plan.use_cases import (
    Arrangement,
    CaseAtPeak,
    Placed,
    PoolSystems,
    UseCasePool,
    UseCases,
)
from tonnage.results.metrics import Latencies

NAMES = ("Chat", "Long answers")


def cases(**changed: Any) -> UseCases:
    """Two use cases of one model with five and three instances on one system."""
    plan = dense()
    pools = [_pool(plan.candidates[0].identity, instances) for instances in (5, 3)]
    apart = Arrangement(
        pools=tuple(pools), systems=(PoolSystems(system="dgx-h100", systems=1, gpus=8),)
    )
    values = {
        "names": NAMES,
        "plans": (plan, plan),
        "separate": apart,
        "shared": None,
        "not_shared": None,
        "chosen": "separate",
        **changed,
    }
    return UseCases(**values)


def _pool(named: Identity, instances: int) -> UseCasePool:
    words = {
        name: getattr(named, name)
        for name in ("gpu", "precision", "tp", "pp", "dp", "ep", "engine", "engine_preset")
    }
    return UseCasePool(
        **words,
        system="dgx-h100",
        gpus_per_system=8,
        knobs=None,
        instances=instances,
        instances_exact=instances,
        cases=(),
    )


def saved(folder: Path, **changed: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(cases(**changed).to_json()), encoding="utf-8")
    return path


@pytest.mark.parametrize("target", TOGETHER)
def test_two_use_cases_share_a_namespace(target: str, tmp_path: Path) -> None:
    done = api.deploy(saved(tmp_path), target=target, output=tmp_path / "out")
    assert {name.split("/")[0] for name in done.files} == {
        "chat",
        "long-answers",
        "kustomization.yaml",
        "README.md",
    }
    assert yaml.safe_load((tmp_path / "out/kustomization.yaml").read_text())["resources"] == [
        "chat",
        "long-answers",
    ]
    assert (
        "The plan's systems for all of them: 1 × dgx-h100."
        in (tmp_path / "out/README.md").read_text()
    )
    assert api.verify_folder(tmp_path / "out").faults == ()
    for folder, instances in (("chat", 5), ("long-answers", 3)):
        plan = json.loads((tmp_path / "out" / folder / "plan.json").read_text())
        assert plan["candidates"][0]["pools"][0]["instances"] == instances
        rules = yaml.safe_load((tmp_path / "out" / folder / "alerts.yaml").read_text())
        assert rules["metadata"]["name"] == f"{folder}-llama-3-1-8b"
        assert all(
            f'deployment="{folder}-llama-3-1-8b"' in str(group)
            for group in rules["spec"]["groups"][1:]
        )
    if target == "llm-d":
        for folder in ("chat", "long-answers"):
            rule = yaml.safe_load((tmp_path / "out" / folder / "route.yaml").read_text())["spec"][
                "rules"
            ][0]
            assert rule["matches"][0]["path"]["value"] == f"/{folder}/v1"
            assert (
                f'--url "http://$HOST/{folder}"'
                in (tmp_path / "out" / folder / "README.md").read_text()
            )


@pytest.mark.parametrize(
    "names",
    [
        ("聊天", "对话"),
        ("Чат", "чат 2"),
        ("🚀", "🛰"),
        ("chat 聊天", "chat 对话"),
        ("2024", "Été"),
        ("ß" * 50, "ß" * 51),
    ],
)
def test_titles_in_any_script_have_names_of_their_own(
    names: tuple[str, str], tmp_path: Path
) -> None:
    found = api.deploy(saved(tmp_path, names=names), target="kubernetes", output=tmp_path / "out")
    folders = yaml.safe_load((tmp_path / "out/kustomization.yaml").read_text())["resources"]
    assert len(set(folders)) == 2
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name) for name in folders), folders
    assert {name.split("/")[0] for name in found.files} == {
        *folders,
        "kustomization.yaml",
        "README.md",
    }
    services = [
        yaml.safe_load((tmp_path / "out" / name / "service.yaml").read_text())["metadata"]["name"]
        for name in folders
    ]
    assert len(set(services)) == 2
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name) for name in services), (
        services
    )
    assert api.verify_folder(tmp_path / "out").faults == ()


def placed(**changed: Any) -> dict[str, Any]:
    """The use cases on two machines, of which both hold instances of both."""
    apart = cases().separate
    parts = [((3, 2), 3), ((2, 1), 5)]
    placement = [
        Placed(system="dgx-h100", first=number, systems=1, instances=instances, free_gpus=free)
        for number, (instances, free) in enumerate(parts, 1)
    ]
    systems = (PoolSystems(system="dgx-h100", systems=2, gpus=16),)
    return {"separate": replace(apart, systems=systems, placement=tuple(placement), **changed)}


def test_two_use_cases_share_the_machines_of_compose(tmp_path: Path) -> None:
    api.deploy(saved(tmp_path, **placed()), target="compose", output=tmp_path / "out")
    assert api.verify_folder(tmp_path / "out").faults == ()
    machines = {
        (folder, machine): yaml.safe_load(
            (tmp_path / "out" / folder / f"machine-{machine}.yaml").read_text()
        )["services"]
        for folder in ("chat", "long-answers")
        for machine in (1, 2)
    }

    def gpus(folder: str, machine: int) -> list[str]:
        return [
            gpu
            for name, service in machines[folder, machine].items()
            if name.startswith("instance-")
            for gpu in service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        ]

    assert [gpus(*key) for key in machines] == [
        ["0", "1", "2"],
        ["0", "1"],
        ["3", "4"],
        ["2"],
    ]
    ports = [
        [port.split(":")[0] for service in services.values() for port in service["ports"]]
        for services in machines.values()
    ]
    assert ports[0] == ["8001", "8002", "8003", "9400"]
    assert ports[2] == ["8004", "8005", "9401"]
    routers = [
        yaml.safe_load((tmp_path / "out" / folder / "router.yaml").read_text())["services"]
        for folder in ("chat", "long-answers")
    ]
    published = [port for router in routers for each in router.values() for port in each["ports"]]
    assert len(set(published)) == len(published)
    haproxy = (tmp_path / "out/long-answers/haproxy.cfg").read_text()
    assert re.findall(r"^    server (\S+) ", haproxy, re.MULTILINE) == [
        "machine-1:8004",
        "machine-1:8005",
        "machine-2:8003",
    ]
    page = (tmp_path / "out/README.md").read_text()
    assert "| machine-1 | dgx-h100 | 3 × Chat, 2 × Long answers | 3 |" in page


def test_verify_finds_gpus_that_two_use_cases_have_both(tmp_path: Path) -> None:
    api.deploy(saved(tmp_path, **placed()), target="compose", output=tmp_path / "out")
    path = tmp_path / "out/long-answers/machine-2.yaml"
    path.write_text(path.read_text().replace("- '2'", "- '1'").replace("8003:", "8002:"))
    assert set(api.verify_folder(tmp_path / "out").faults) >= {
        "long-answers/machine-2.yaml: GPU 1 is one of chat/machine-2.yaml too",
        "long-answers/machine-2.yaml: port 8002 is one of chat/machine-2.yaml too",
    }


def test_the_shape_that_was_placed_is_deployed_and_the_widest_instances_come_first(
    tmp_path: Path,
) -> None:
    """Not the choice of the use case by itself, whose shape may be another."""
    plan = dense()
    apart = cases().separate
    choice = plan.candidates[0].pool
    launch = list(choice.launch)
    launch[launch.index("--tensor-parallel-size") + 1] = "4"
    group = replace(choice, tp=4, system="4xh100", gpus_per_system=4, launch=tuple(launch))
    wide = replace(plan.candidates[0], pools=(group,))
    pools = (apart.pools[0], replace(apart.pools[1], tp=4, instances=2, alone=wide))
    path = saved(tmp_path, separate=replace(apart, pools=pools))
    api.deploy(path, target="kubernetes", output=tmp_path / "out")
    choice = json.loads((tmp_path / "out/long-answers/plan.json").read_text())["choice"]
    assert (choice["tp"], choice["instances"], choice["system"]) == (4, 2, "dgx-h100")
    listed = yaml.safe_load((tmp_path / "out/kustomization.yaml").read_text())["resources"]
    assert listed == ["long-answers", "chat"]
    assert "Start the wide ones first" in (tmp_path / "out/README.md").read_text()
    assert api.verify_folder(tmp_path / "out").faults == ()


def test_verify_finds_what_clashes(tmp_path: Path) -> None:
    api.deploy(saved(tmp_path), target="kubernetes", output=tmp_path / "out")
    for path in (tmp_path / "out/long-answers").glob("*.yaml"):
        path.write_text(path.read_text().replace("long-answers-llama", "chat-llama"))
    (tmp_path / "out/kustomization.yaml").write_text("resources: [chat]\n")
    found = api.verify_folder(tmp_path / "out").faults
    assert "long-answers/service.yaml: Service chat-llama-3-1-8b is written in chat too" in found
    assert "kustomization.yaml: long-answers is not applied" in found


@pytest.mark.parametrize(
    ("target", "changed", "line"),
    [
        *(
            (target, {}, f"target: {target} does not keep several use cases apart")
            for target in TARGETS
            if target not in (*TOGETHER, "compose")
        ),
        ("compose", {}, "target: compose places instances on machines, and the plan places no"),
        (
            "kubernetes",
            {"chosen": "shared", "shared": cases().separate},
            "plan: its use cases share one pool",
        ),
        (
            "kubernetes",
            {"chosen": None, "separate": None},
            "plan: its use cases have no deployment",
        ),
        (
            "production-stack",
            {"plans": (dense(), dense("sglang-0.5.9"))},
            "runs on production-stack (use case Long answers); size each",
        ),
        (
            "kubernetes",
            {"names": ("Chat", "chat!")},
            "plan: the use cases Chat, chat! get names that are alike",
        ),
        ("kubernetes", {"names": ("a", "a-llama-3.1-8b-b")}, "get names that are alike"),
    ],
)
def test_what_cannot_stand_side_by_side_is_refused_in_a_line(
    target: str, changed: dict[str, Any], line: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        api.deploy(saved(tmp_path, **changed), target=target, output=tmp_path / "out")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def case_at_peak(name: str, rate: float) -> CaseAtPeak:
    limit = Limit(metric="ttft", statistic="p95", milliseconds=500.0)
    latencies = Latencies(mean=2_000.0, p50=1_900.0, p90=3_000.0, p95=4_000.0, p99=5_000.0)
    use = LimitUse(limit=limit, value_ms=320.0, used=0.64)
    seen = {"ttft_ms": latencies, "tpot_ms": latencies, "e2e_ms": latencies}
    return CaseAtPeak(name=name, requests_per_second=rate, limits=(use,), **seen)


@pytest.mark.parametrize("target", ["kubernetes", "compose", "dynamo", "llm-d"])
def test_a_pool_by_priority_is_one_deployment_whose_engines_go_by_it(
    target: str, tmp_path: Path
) -> None:
    plan = dense()
    pool = replace(
        _pool(plan.candidates[0].identity, 6),
        knobs=replace(plan.candidates[0].pool.knobs, queue_order="priority"),
        cases=(case_at_peak(NAMES[0], 30.0), case_at_peak(NAMES[1], 6.0)),
    )
    one = Arrangement(pools=(pool,), systems=(PoolSystems(system="dgx-h100", systems=1, gpus=8),))
    made = {"shared": one, "chosen": "shared", "priorities": (0, 3)}
    done = api.deploy(saved(tmp_path, **made), target=target, output=tmp_path / "out")
    assert not any("/" in name and "chat" in name for name in done.files)
    written = {name: (tmp_path / "out" / name).read_text() for name in done.files}
    flagged = [name for name, text in written.items() if "--scheduling-policy=priority" in text]
    assert set(flagged) > {"plan.json"}
    assert '| Long answers | `{"priority": 3}` | 6 | TTFT p95 ≤ 500 ms |' in written["README.md"]
    assert api.verify_folder(tmp_path / "out").faults == ()
    assert json.loads(written["plan.json"])["demand"]["sizing_requests_per_second"] == 36.0
    assert json.loads(written["plan.json"])["choice"]["instances"] == 6
