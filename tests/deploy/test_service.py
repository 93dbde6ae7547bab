from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from tests.deploy.across import RACK, changed, written
from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy.service import service_of
from tonnage.deploy.targets import deployed, target_files
from tonnage.errors import InputError
from tonnage.spec.deployment import Parallelism


def test_a_tray_of_a_rack_is_a_machine() -> None:
    for split, one in ((Parallelism(), "deployment.yaml"), (Parallelism(tp=4), "deployment.yaml")):
        assert one in written("vllm-0.32", "kubernetes", split=split, **RACK)[1]
    plan = changed("vllm-0.32", systems=1, instances=72, **RACK)
    files = target_files(deployed(plan, "compose"), "compose")
    assert [name for name in files if name.startswith("machine-")] == [
        f"machine-{place}.yaml" for place in range(1, 19)
    ]
    for target in ("compose", "dynamo"):
        with pytest.raises(InputError, match="an instance of 8 GPUs spans several machines"):
            written("vllm-0.32", target, split=Parallelism(tp=8), **RACK)


def test_amd_on_a_machine() -> None:
    _, files = written("sglang-0.5.9", "compose", gpu="mi355x", system="8x mi355x")
    compose = yaml.safe_load(files["compose.yaml"])
    third = compose["services"]["instance-3"]
    assert "HIP_VISIBLE_DEVICES=2" in third["environment"]
    assert "/dev/kfd" in third["devices"]
    assert compose["x-engine"]["image"] == "lmsysorg/sglang:v0.5.9-rocm700-mi35x"
    assert "nvidia" not in files["compose.yaml"].replace("nvcr.io", "")
    assert "gpu-exporter:5000" in files["prometheus.yaml"]
    assert "gpu_gfx_activity" in files["alerts.yaml"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"gpu": "mi300x", "system": "8x mi300x"},
            "writes only NVIDIA GPUs for nim, not mi300x by AMD",
        ),
        ({"launch": ()}, "no command or image is known for vllm-0.32"),
        ({"gpus_per_system": 0}, "an instance of 1 GPUs spans several machines"),
    ],
)
def test_a_plan_that_no_target_can_hold_is_refused(changed: dict[str, object], said: str) -> None:
    found = dense()
    pool = replace(found.candidates[0].pool, **changed)
    other = replace(found, candidates=(replace(found.candidates[0], pools=(pool,)),))
    with pytest.raises(InputError, match=said):
        deployed(other, "nim", checkpoint=DENSE_CHECKPOINT)
    with pytest.raises(InputError, match="chose nothing"):
        service_of(replace(found, candidates=()))


def test_a_drafter_stands_in_the_command() -> None:
    plan = dense()
    words = '--speculative-config={"method":"eagle","model":"{drafter}","num_speculative_tokens":3}'
    pool = replace(plan.candidates[0].pool, launch=(*plan.candidates[0].pool.launch, words))
    drafting = replace(plan, candidates=(replace(plan.candidates[0], pools=(pool,)),))
    assert '"model":"my/eagle"' in " ".join(
        service_of(drafting, checkpoint=DENSE_CHECKPOINT, drafter="my/eagle").argv
    )
    with pytest.raises(InputError, match="name the drafter's checkpoint"):
        service_of(drafting, checkpoint=DENSE_CHECKPOINT)
    with pytest.raises(InputError, match="the plan's command takes none"):
        service_of(plan, checkpoint=DENSE_CHECKPOINT, drafter="my/eagle")
