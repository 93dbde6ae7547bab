"""``tonnage verify`` against simulated engines: as planned, and with one wrong setting each, which
is found and named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.questions import plans_with
from tonnage import api
from tonnage.api.running.deploy import Verified, verify
from tonnage.cli.main import run
from tonnage.errors import InputError, TonnageError
from tonnage.plan.plan import Plan
from tonnage.serve.server import in_thread
from tonnage.spec.catalog.checkpoints import find_checkpoints

few_parts = plans_with()

ASKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "system": "1xh100",
    "precision": "fp8",
    "tp": "1",
    "engine": "vllm-0.32",
    "isl": "200",
    "osl": "20",
    "peak_rps": 10,
    "ttft": "p95<=1s",
}
"""One instance, whose steps are so short that a test of the load takes seconds."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    found = api.size(**ASKED)
    assert isinstance(found, Plan)
    assert found.choice.instances == 1
    return found


@pytest.fixture
def planned(plan: Plan, tmp_path: Path) -> Path:
    """Its file; other plans are saved next to it."""
    return saved(plan, tmp_path / "plan.json")


def saved(plan: Plan, path: Path) -> Path:
    path.write_text(json.dumps(plan.to_json()), encoding="utf-8")
    return path


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def running(stack: ExitStack, path: Path, **changed: Any) -> str:
    """A simulated engine with the plan's settings, some of them changed; its address."""
    context = json.loads(path.read_text(encoding="utf-8"))["candidates"][0]["pools"][0]["launch"]
    given: dict[str, Any] = {
        "plan": path,
        "max_model_len": int(context[context.index("--max-model-len") + 1]),
        "port": 0,
        **changed,
    }
    server = stack.enter_context(in_thread(api.serve_simulated(**given)))
    return f"http://127.0.0.1:{server.port}"


def names(found: Verified) -> list[str]:
    return [one.name for each in found.instances for one in each.off]


def test_an_engine_as_planned(stack: ExitStack, planned: Path) -> None:
    found = verify([running(stack, planned)], plan=planned, seconds=0)
    assert found.findings == ()
    published = {one.name for one in found.instances[0].settings if one.running is not None}
    assert published == {one.name for one in found.instances[0].settings}
    assert found.load is None


FLAGS: dict[str, dict[str, Any]] = {
    "context": {"max_model_len": 150},
    "prefix cache": {"prefix_caching": False},
    "model": {"served_model_name": "another-model"},
}
KNOBS: dict[str, dict[str, Any]] = {
    "slots": {"max_batch_size": 7},
    "step tokens": {"max_num_tokens": 3_333},
    "chunked prefill": {"chunked_prefill": False},
    "tokens of a KV block": {"tokens_per_block": 32},
    "tokens of the KV cache": {"kv_fraction": 0.5},
}
POOLS: list[tuple[str, dict[str, Any]]] = [
    ("number format", {"precision": "fp16"}),
    ("KV cache in FP8", {"precision": "fp8+kv-fp16"}),
    ("TP", {"tp": 2}),
    ("version", {"engine": "vllm-0.19", "engine_preset": "vllm-0.19"}),
    ("version", {"engine": "sglang-0.5.9", "engine_preset": "sglang-0.5.9"}),
]


def other(plan: Plan, knobs: dict[str, Any], **pool: Any) -> Plan:
    choice = plan.candidates[0]
    assert choice.pool.knobs is not None
    changed = replace(choice.pool, knobs=replace(choice.pool.knobs, **knobs), **pool)
    return replace(plan, candidates=(replace(choice, pools=(changed,)), *plan.candidates[1:]))


@pytest.mark.parametrize("name", [*FLAGS, *KNOBS])
def test_one_wrong_flag_or_knob_is_found_and_named(
    stack: ExitStack, plan: Plan, planned: Path, name: str
) -> None:
    started = saved(other(plan, KNOBS.get(name, {})), planned.with_name("started.json"))
    found = verify([running(stack, started, **FLAGS.get(name, {}))], plan=planned, seconds=0)
    assert names(found) == [name]


@pytest.mark.parametrize(("name", "pool"), POOLS)
def test_another_deployment_is_found_and_named(
    stack: ExitStack, plan: Plan, planned: Path, name: str, pool: dict[str, Any]
) -> None:
    found = verify(
        [running(stack, saved(other(plan, {}, **pool), planned.with_name("started.json")))],
        plan=planned,
        seconds=0,
    )
    assert name in names(found)


def test_sglangs_own_names_are_read(stack: ExitStack, tmp_path: Path) -> None:
    found = api.size(**{**ASKED, "engine": "sglang-0.5.9"})
    assert isinstance(found, Plan)
    path = saved(found, tmp_path / "sglang.json")
    (pool,) = found.candidates[0].pools
    context = int(pool.launch[pool.launch.index("--context-length") + 1])
    server = stack.enter_context(
        in_thread(api.serve_simulated(plan=path, emulate="sglang", max_model_len=context, port=0))
    )
    assert verify([f"http://127.0.0.1:{server.port}"], plan=path, seconds=0).findings == ()
    vllm = stack.enter_context(
        in_thread(api.serve_simulated(plan=path, emulate="vllm", max_model_len=context, port=0))
    )
    assert "engine" in names(verify([f"http://127.0.0.1:{vllm.port}"], plan=path, seconds=0))


def test_an_instance_is_missing_and_a_checkpoints_name_is_the_models(
    stack: ExitStack, plan: Plan, planned: Path, tmp_path: Path
) -> None:
    path = saved(other(plan, {}, instances=2), tmp_path / "two.json")
    url = running(stack, planned, served_model_name=find_checkpoints("llama-3.1-8b")[0].repository)
    assert verify([url], plan=path, seconds=0).findings == ("instances: 1 in place of 2",)


@pytest.mark.live
def test_the_plans_load_is_sent_and_a_slow_engine_is_found(
    stack: ExitStack, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = running(stack, planned, speed=0.5)
    assert run(["verify", slow, "--plan", str(planned), "--seconds", "6"]) == 3
    said = capsys.readouterr().out
    assert "TPOT mean" in said
    assert "above the plan's interval" in said
    assert said.startswith("Not as planned")


def test_what_cannot_be_verified(planned: Path) -> None:
    with pytest.raises(InputError, match="no address is given"):
        verify([], plan=planned)
    with pytest.raises(InputError, match="seconds: -1 is not possible; write 0 to 3600"):
        verify(["127.0.0.1:1"], plan=planned, seconds=-1)
    with pytest.raises(TonnageError, match="no answer with the metrics"):
        verify(["127.0.0.1:1"], plan=planned, seconds=0)


def test_an_engine_that_refuses_every_request_is_a_finding(stack: ExitStack, planned: Path) -> None:
    found = verify([running(stack, planned, max_model_len=150)], plan=planned, seconds=1)
    assert found.findings[0].endswith("context: 150 in place of 131072")
    assert found.findings[1] == "requests/s: 0 answered of 10 sent"
