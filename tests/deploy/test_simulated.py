"""The files of a rehearsal: those of the plan, with the simulated engine in place of the engine and
its GPUs."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.deploy.plans import dense, experts
from tests.deploy.written import check_files, objects_of
from tests.questions import plans_with
from tests.serve.engines import ask
from tonnage import api
from tonnage.api.bench import bench
from tonnage.api.running.plans import planned
from tonnage.api.running.serve import serve_simulated
from tonnage.cli.main import run
from tonnage.deploy.plan_text import bench_lengths
from tonnage.deploy.references import Written, pods_of
from tonnage.deploy.service import SIMULATED
from tonnage.deploy.targets import REHEARSED, deployed, target_files
from tonnage.evidence.replay import replay
from tonnage.formats.prometheus import Page
from tonnage.plan.plan import Plan
from tonnage.results.metrics import Summary, summarize
from tonnage.results.requests import Requests
from tonnage.serve.server import in_thread
from tonnage.serve.supervisor import Program, Supervisor
from tonnage.spec.targets import TARGETS

few_parts = plans_with()

ENGINES = ("vllm-0.32", "sglang-0.5.9", "tensorrt-llm-1.2")
KEPT = (
    "alerts.yaml",
    "autoscaling.yaml",
    "pod-monitor.yaml",
    "service.yaml",
    "route.yaml",
    "picker-config.yaml",
    "gateway.yaml",
)
REPLACED = {
    "image",
    "command",
    "entrypoint",
    "args",
    "resources",
    "volumeMounts",
    "volumes",
    "deploy",
}


def written(plan: Plan, target: str, *, simulated: bool) -> dict[str, str]:
    service = deployed(plan, target, simulated=simulated)
    files = target_files(service, target)
    check_files(files, service)
    return files


def engines_of(target: str, files: dict[str, str]) -> list[dict[str, Any]]:
    if target == "compose":
        services: dict[str, Any] = yaml.safe_load(files["compose.yaml"])["services"]
        return [one for name, one in services.items() if name.startswith("instance-")]
    pods = [
        pod for one in objects_of(files).values() for pod in pods_of(Written(file="", value=one))
    ]
    return [dict(one) for pod in pods for one in pod.containers if one["name"] != "picker"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", REHEARSED)
def test_all_but_the_engine_and_its_gpus_is_the_plans(
    target: str, engine: str, tmp_path: Path
) -> None:
    if engine == "tensorrt-llm-1.2" and target == "llm-d":
        pytest.skip("llm-d does not run TensorRT-LLM")
    plan = dense(engine)
    real, files = (written(plan, target, simulated=simulated) for simulated in (False, True))
    real.pop("nim-service.yaml", None)  # the same again for NVIDIA's operator
    for name in KEPT:
        # whose LLMInferenceService brings a router and an autoscaler of its own
        if target != "kserve" or engine != "vllm-0.32":
            assert files.get(name) == real.get(name), name
    own = engines_of(target, files)
    replaced = REPLACED | ({"env"} if target == "nim" else set())  # NIM's own image has others
    for one, before in zip(own, engines_of(target, real), strict=True):
        assert one["image"] == SIMULATED
        if target != "kserve":
            assert {key for key in {*one, *before} if one.get(key) != before.get(key)} <= replaced
    whole = "".join(files.values())
    assert not [
        word
        for word in ("nvidia.com/gpu", "device_ids", "dcgm-exporter", "ReadWriteMany", "NVIDIA's")
        if word in whole
    ]
    words = own[0].get("args") or own[0]["command"]
    (tmp_path / "plan.json").write_text(plan_text(files, target, plan), encoding="utf-8")
    served = serve_simulated(
        plan=tmp_path / "plan.json", instances=1, emulate=words[words.index("--emulate") + 1]
    )
    family = "nim" if target == "nim" else deployed(plan, target).family
    assert served.dialect.name == family


@pytest.mark.parametrize(
    ("target", "engine"),
    [("kubernetes", "vllm-0.32"), *(("nim", engine) for engine in (*ENGINES, "nim-2024"))],
)
def test_what_scrapes_and_probes_ask_for_is_served(
    target: str, engine: str, tmp_path: Path
) -> None:
    plan = dense(engine)
    files = written(plan, target, simulated=True)
    (container,) = engines_of(target, files)
    words = container["args"]
    monitors = [found for (kind, _), found in objects_of(files).items() if kind == "PodMonitor"]
    (tmp_path / "plan.json").write_text(plan_text(files, target, plan), encoding="utf-8")
    emulated = words[words.index("--emulate") + 1]
    asked = {"plan": tmp_path / "plan.json", "instances": 1, "emulate": emulated, "port": 0}
    signals = deployed(plan, target, simulated=True).signals
    with in_thread(serve_simulated(**asked)) as running:
        scraped = [endpoint["path"] for endpoint in monitors[0]["spec"]["podMetricsEndpoints"]]
        probed = [
            container[f"{name}Probe"]["httpGet"]["path"]
            for name in ("startup", "readiness", "liveness")
        ]
        answers = {path: ask(running.port, "GET", path, None) for path in (*scraped, *probed)}
    assert {status for status, _ in answers.values()} == {200}
    page = Page(answers[scraped[0]][1])
    names = [signals.running, signals.waiting, *signals.histograms.values()]
    assert [name for name in names if name not in page and f"{name}_count" not in page] == []


def plan_text(files: dict[str, str], target: str, plan: Plan) -> str:
    """What is mounted into an instance."""
    if target == "compose":
        return files["plan.json"]
    (found,) = [
        one["data"]["plan.json"]
        for (kind, name), one in objects_of(files).items()
        if name.endswith("-engine-config")
    ]
    assert len(found) < 262_144  # what kubectl's annotation holds
    assert Plan.from_json(json.loads(found)).choice == plan.choice
    return str(found)


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in REHEARSED])
def test_a_target_whose_engine_is_no_command_is_refused(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(experts().to_json()), encoding="utf-8")
    words = [
        "deploy",
        str(tmp_path / "plan.json"),
        "--target",
        target,
        "--output",
        str(tmp_path / "out"),
        "--simulated",
    ]
    assert run(words) == 2
    assert "--simulated: no simulated engine is written for" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


ASKED = [
    "--model",
    "llama-3.1-8b",
    "--isl",
    "2000",
    "--osl",
    "200",
    "--peak-rps",
    "300",
    "--ttft",
    "p95<=500ms",
    "--tpot",
    "p95<=50ms",
]
"""The question of README.md."""


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What deploy writes of README's plan for Compose."""
    folder = tmp_path_factory.mktemp("rehearsal")
    assert run(["size", *ASKED, "--output", str(folder / "plan.json")]) == 0
    assert (
        run(
            [
                "deploy",
                str(folder / "plan.json"),
                "--target",
                "compose",
                "--output",
                str(folder / "files"),
                "--simulated",
            ]
        )
        == 0
    )
    return folder / "files"


def test_a_rehearsal_does_not_take_another_process_for_an_instance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(dense("vllm-0.32").to_json()), encoding="utf-8")
    assert (
        run(
            [
                "deploy",
                str(plan),
                "--target",
                "compose",
                "--output",
                str(tmp_path / "out"),
                "--simulated",
            ]
        )
        == 0
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "out" / "compose.yaml"
        file.write_text(
            file.read_text(encoding="utf-8").replace(":8001:", f":{taken.getsockname()[1]}:"),
            encoding="utf-8",
        )
        assert run(["deploy", "rehearse", str(tmp_path / "out")]) == 2
    assert "of instance-1 is taken; stop what listens there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "- --instances",
            "- --engine\n    - vllm\n    - --engine-path\n    - /evil\n    - --instances",
        ),
        ("- vllm\n", "- sglang\n"),
        (
            "- /etc/engine/plan.json\n",
            "- /etc/engine/plan.json\n    - --coefficients\n    - /evil\n",
        ),
    ],
)
def test_a_rehearsal_runs_nothing_that_the_folder_names(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(dense("vllm-0.32").to_json()), encoding="utf-8")
    assert (
        run(
            [
                "deploy",
                str(plan),
                "--target",
                "compose",
                "--output",
                str(tmp_path / "out"),
                "--simulated",
            ]
        )
        == 0
    )
    file = tmp_path / "out" / "compose.yaml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    assert run(["deploy", "rehearse", str(tmp_path / "out")]) == 2
    assert (
        "is not that of the plan's simulated engine; write the folder by tonnage deploy"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "gateway.yaml",
            ("http://127.0.0.1:8001", "http://192.0.2.1:8001"),
            "sends to 192.0.2.1:8001",
        ),
        ("gateway.yaml", ("http://127.0.0.1:8001", "http://127.0.0.1:22"), "sends to 127.0.0.1:22"),
        (
            "compose.yaml",
            ("127.0.0.1:8001:8000", "8000"),
            "is not as deploy writes it (IndexError)",
        ),
        ("compose.yaml", ("services:", "services: 5\nothers:"), "is not as deploy writes it"),
        (
            "compose.yaml",
            ("services:", "services: [\nothers:"),
            "is not as deploy writes it (ParserError)",
        ),
        ("plan.json", ("{", "["), "plan.json: is no JSON"),
    ],
)
def test_a_rehearsal_sends_nothing_to_addresses_that_the_folder_names(
    name: str,
    change: tuple[str, str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(dense("vllm-0.32").to_json()), encoding="utf-8")
    folder = str(tmp_path / "out")
    assert run(["deploy", str(plan), "--target", "compose", "--output", folder, "--simulated"]) == 0
    file = tmp_path / "out" / name
    text = file.read_text(encoding="utf-8")
    assert change[0] in text
    file.write_text(text.replace(*change, 1), encoding="utf-8")
    assert run(["deploy", "rehearse", folder]) == 2
    assert message in capsys.readouterr().err


def test_a_rehearsal_listens_on_this_machine_alone(tmp_path: Path) -> None:
    from tonnage.api.running.demo import _engines

    plan = dense("vllm-0.32")
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
    folder = tmp_path / "out"
    words = ["deploy", str(tmp_path / "plan.json"), "--target", "compose", "--simulated"]
    assert run([*words, "--output", str(folder)]) == 0
    file = folder / "compose.yaml"
    text = file.read_text(encoding="utf-8").replace("127.0.0.1:8001:", "0.0.0.0:8001:")
    file.write_text(text, encoding="utf-8")
    programs, _ = _engines(folder, plan)
    assert programs[0].address == "127.0.0.1:8001"
    assert programs[0].argv[programs[0].argv.index("--host") + 1] == "127.0.0.1"


HAPROXY = pytest.param(
    "haproxy",
    marks=pytest.mark.skipif(
        not shutil.which("haproxy"), reason="no HAProxy: apt-get install haproxy"
    ),
)


@pytest.mark.engines
@pytest.mark.parametrize("proxy", ["embedded", HAPROXY])
def test_only_what_runs_in_a_killed_instance_is_lost_and_the_alert_fires(
    rehearsal: Path, proxy: str
) -> None:
    found = api.rehearse(rehearsal, duration="30s", request_rate=30, proxy=proxy, announce=print)
    assert found.completed + found.lost == found.sent > 700
    assert found.lost_after == 0
    assert 1 <= found.lost <= 40
    assert found.within
    assert found.fired is not False
    assert found.as_planned or found.invalid


SPEED, SECONDS, STEADY = 0.05, 14, (5, 10)
"""Two cores serve 60,000 tokens/s at a twentieth of their pace; requests that are sent between the
two seconds meet a steady load."""


@pytest.mark.engines
@pytest.mark.parametrize("proxy", ["embedded", HAPROXY])
def test_bench_against_the_services_agrees_with_the_plan(
    rehearsal: Path, tmp_path: Path, proxy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan.from_json(json.loads((rehearsal / "plan.json").read_text(encoding="utf-8")))
    with started(rehearsal, tmp_path, proxy) as (url, model):
        (found,) = bench(
            url=url,
            model=model,
            request_rate=plan.demand.sizing_requests_per_second * SPEED,
            benchmark_duration=f"{SECONDS / SPEED:g}s",
            selftest=False,
            metrics_url=["none"],
            characters_per_token=4,
            **bench_lengths(plan),
        )
    assert found.validity.reasons == ()
    times = {
        name: (getattr(found.requests, name) * SPEED).astype(np.int64)
        for name in ("due_ns", "sent_ns", "first_token_ns", "last_token_ns")
    }
    measured, choice = replace(found.requests, **times), planned(rehearsal / "plan.json")
    again = replay(
        measured,
        choice.deployment,
        gpus_per_system=choice.gpus_per_system,
        instances=choice.instances,
    )
    assert plan.choice is not None
    peak = plan.choice.at_peak
    assert peak is not None
    seen, simulated = steady(measured), steady(again)
    for metric, of_plan in (("ttft", peak.ttft_ms), ("tpot", peak.tpot_ms)):
        for statistic in ("mean", "p95"):
            ms, replayed, expected = (
                seen.statistic_ms(metric, statistic),
                simulated.statistic_ms(metric, statistic),
                getattr(of_plan, statistic),
            )
            with capsys.disabled():
                print(
                    f"{metric} {statistic}: {ms:.1f} ms measured, {replayed:.1f} of the same"
                    f" requests simulated, {expected:.1f} planned"
                )
            assert ms == pytest.approx(replayed, rel=0.1)  # the gateway breaks ties in another way
            # five seconds have other bursts than the plan's run
            assert ms == pytest.approx(expected, rel=0.15)


def steady(requests: Requests) -> Summary:
    """The requests that are sent between the two seconds."""
    seconds = requests.due_ns / 1e9
    return summarize(requests.some(((seconds >= STEADY[0]) & (seconds < STEADY[1])).nonzero()[0]))


@contextmanager
def started(folder: Path, logs: Path, proxy: str) -> Iterator[tuple[str, str]]:
    """The services of compose.yaml as processes, at a slower pace, behind what gateway.yaml
    describes; its address, and the model."""
    engines, model = [], ""
    for name, one in yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))[
        "services"
    ].items():
        if not name.startswith("instance-"):
            continue
        host, port, _ = one["ports"][0].split(":")
        place = {"/etc/engine/plan.json": str(folder / "plan.json"), "0.0.0.0": host, "8000": port}
        words = [place.get(word, word) for word in one["command"]]
        model = words[words.index("--served-model-name") + 1]
        argv = (sys.executable, "-m", "tonnage", *words, "--speed", str(SPEED))
        engines.append(Program(name=name, argv=argv, address=f"{host}:{port}"))
    own = (
        sys.executable,
        "-m",
        "tonnage",
        "gateway",
        "--config",
        str(folder / "gateway.yaml"),
        "--proxy",
        "embedded",
    )
    argv = api.proxy_command(proxy, api.gateway_from(folder / "gateway.yaml", {})) or own
    front = Program(name="gateway", argv=argv, address="127.0.0.1:8080", path="/v1/health/live")
    with Supervisor(engines, logs, restarts=False) as fleet:
        fleet.wait_until_ready(timeout_s=600.0, on_ready=lambda serving, of: None)
        with Supervisor([front], logs) as gateway:
            gateway.wait_until_ready(timeout_s=60.0)
            yield front.url, model
