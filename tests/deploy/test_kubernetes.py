"""Kubernetes' own schema takes the files, and they say what the plan says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense, experts
from tests.deploy.written import check_files
from tonnage.deploy.kubernetes import files
from tonnage.deploy.service import Service, service_of
from tonnage.plan.fleet import Autoscaling, Held, OverHours, Proposal
from tonnage.plan.plan import Plan

PLANS: dict[str, tuple[Plan, str | None]] = {
    "dense": (dense(), DENSE_CHECKPOINT),
    "experts": (experts(), None),
    "sglang": (dense("sglang-0.5.9"), DENSE_CHECKPOINT),
    "tensorrt-llm": (dense("tensorrt-llm-1.2"), DENSE_CHECKPOINT),
    "no product label": (dense(gpu="b300-sxm-270gb", system="dgx-b300"), DENSE_CHECKPOINT),
}


def service(name: str) -> Service:
    plan, checkpoint = PLANS[name]
    return service_of(plan, checkpoint=checkpoint)


def objects(name: str) -> dict[str, Any]:
    return {file: yaml.safe_load(text) for file, text in files(service(name)).items() if file.endswith(".yaml")}


@pytest.mark.parametrize("name", PLANS)
def test_every_object_is_read_against_a_schema_without_a_fault(name: str) -> None:
    made = service(name)
    check_files(files(made), made)


def test_autoscaling_follows_the_curve_of_the_plan() -> None:
    spec = objects("dense")["autoscaling.yaml"]["spec"]
    assert spec["triggers"][0]["metadata"]["threshold"] == "104"  # 27 requests/s lie a fifth of the way from 26 (80) to 31 (200)
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (3, 8)  # 60 requests/s at 27 each; the plan's instances
    spec = objects("experts")["autoscaling.yaml"]["spec"]
    assert spec["triggers"][0]["metadata"]["threshold"] == "180"  # nothing was kept back for a confidence
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (4, 7)  # 22 requests/s on the mean at 6.4 each


def test_a_rule_that_the_plan_proposes_on_requests_in_flight_is_that_of_the_autoscaler() -> None:
    run = OverHours(held=(Held(instances=2, hours=24.0),), limits=())
    rule = Proposal(metric="outstanding", target=37.9, least=2, most=6, warm=1, start_s=90.0, hold_s=60.0, interval_s=15.0, run=run)
    other = replace(rule, metric="rate", target=5.0, least=1, warm=0)
    plan, checkpoint = PLANS["dense"]
    scaled = Autoscaling(
        hours=24.0, instances=6, simulated_instances=6, requests=1, broken_hours_share=0.0, fixed=run, proposals=(other, rule)
    )
    found = files(service_of(replace(plan, autoscaling=scaled), checkpoint=checkpoint))
    keda, hpa = (yaml.safe_load(found[name])["spec"] for name in ("autoscaling.yaml", "autoscaling-without-keda.yaml"))
    assert keda["triggers"][0]["metadata"]["threshold"] == "37"
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (3, 8)
    behaviour = keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] == 60
    assert behaviour["scaleUp"]["policies"] == [{"type": "Pods", "value": 8, "periodSeconds": 15}]
    assert hpa["metrics"][0]["pods"]["target"]["averageValue"] == "37"
    assert hpa["minReplicas"] == 3
    assert "simulated with a start of 90 s" in found["autoscaling.yaml"]
    by_rate = files(service_of(replace(plan, autoscaling=replace(scaled, proposals=(other,))), checkpoint=checkpoint))
    assert by_rate["autoscaling.yaml"] == files(service("dense"))["autoscaling.yaml"]
