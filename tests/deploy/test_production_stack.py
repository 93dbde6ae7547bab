"""vLLM's production stack: the chart's values compose the plan's command."""

from __future__ import annotations

from dataclasses import replace

import yaml

from tests.deploy.plans import dense
from tonnage.deploy.production_stack import command as chart_command
from tonnage.deploy.targets import deployed, target_files


def test_the_chart_composes_the_plans_command_and_routes_as_the_plan_counts_on() -> None:
    plan = dense()
    for router, logic in (
        ("session", "session"),
        ("prefix-aware", "prefixaware"),
        ("round-robin", "roundrobin"),
        ("random", "roundrobin"),
    ):
        made = deployed(
            replace(plan, scenario=replace(plan.scenario, router=router)), "production-stack"
        )
        text = target_files(made, "production-stack")["values.yaml"]
        values = yaml.safe_load(text)
        assert values["routerSpec"]["routingLogic"] == logic
        assert ("sessionKey" in values["routerSpec"]) == (router == "session")
        assert ("which this router does not have" in text) == (router == "random")
    engine = values["servingEngineSpec"]
    composed = chart_command(engine, engine["modelSpec"][0])
    assert composed[:3] == list(made.argv[:3])
    assert sorted(composed) == sorted([*made.argv, "--enable-prefix-caching"])
