"""The autoscaler of Kubernetes' files is that of the plan; all other files are golden
(test_deploy.py)."""

from __future__ import annotations

from dataclasses import replace

import yaml

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy.kubernetes import files
from tonnage.deploy.service import service_of
from tonnage.plan.fleet import Autoscaling, Held, OverHours, Proposal


def test_a_rule_that_the_plan_proposes_on_requests_in_flight_is_that_of_the_autoscaler() -> None:
    run = OverHours(held=(Held(instances=2, hours=24.0),), limits=())
    rule = Proposal(
        metric="outstanding",
        target=37.9,
        least=2,
        most=6,
        warm=1,
        start_s=90.0,
        hold_s=60.0,
        interval_s=15.0,
        run=run,
    )
    other = replace(rule, metric="rate", target=5.0, least=1, warm=0)
    plan, checkpoint = dense(), DENSE_CHECKPOINT
    scaled = Autoscaling(
        hours=24.0,
        instances=6,
        simulated_instances=6,
        requests=1,
        broken_hours_share=0.0,
        fixed=run,
        proposals=(other, rule),
    )
    found = files(service_of(replace(plan, autoscaling=scaled), checkpoint=checkpoint))
    keda, hpa = (
        yaml.safe_load(found[name])["spec"]
        for name in ("autoscaling.yaml", "autoscaling-without-keda.yaml")
    )
    assert keda["triggers"][0]["metadata"]["threshold"] == "37"
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (3, 8)
    behaviour = keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] == 60
    assert behaviour["scaleUp"]["policies"] == [{"type": "Pods", "value": 8, "periodSeconds": 15}]
    assert hpa["metrics"][0]["pods"]["target"]["averageValue"] == "37"
    assert hpa["minReplicas"] == 3
    assert "simulated with a start of 90 s" in found["autoscaling.yaml"]
    by_rate = files(
        service_of(
            replace(plan, autoscaling=replace(scaled, proposals=(other,))), checkpoint=checkpoint
        )
    )
    assert (
        by_rate["autoscaling.yaml"]
        == files(service_of(plan, checkpoint=checkpoint))["autoscaling.yaml"]
    )
