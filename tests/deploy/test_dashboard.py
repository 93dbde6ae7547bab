"""The dashboard draws what the plan predicts beside what is measured. Grafana publishes no schema for it that can be run offline."""

from __future__ import annotations

import json
import re

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tonnage.deploy.alerts import rules
from tonnage.deploy.dashboard import dashboard_text
from tonnage.deploy.service import service_of
from tonnage.deploy.yaml_comments import plain

SERVICE = service_of(dense(), checkpoint=DENSE_CHECKPOINT)


def test_predicted_capacity_limits_and_target_are_drawn() -> None:
    panels = {panel["title"]: panel for panel in json.loads(dashboard_text(SERVICE))["panels"]}
    lines = {target["legendFormat"]: target["expr"] for panel in panels.values() for target in panel["targets"]}
    assert lines["plan: carried by all its instances"] == "vector(216)"  # 8 × 27 requests/s
    assert lines["plan: peak"] == "vector(60)"
    assert lines["plan: another instance is wanted"].startswith("104 * ")
    first = {target["legendFormat"]: target["expr"] for target in panels["TTFT p95 ≤ 500 ms"]["targets"]}
    assert first["plan: limit"] == "vector(0.5)"
    assert first["plan: at the peak"] == "vector(0.09)"
    assert first["measured"].startswith("histogram_quantile(0.95, ")


def test_panels_lie_beside_each_other_and_ask_for_series_that_exist() -> None:
    panels = json.loads(dashboard_text(SERVICE))["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(panels)
    recorded = {rule["record"] for group in plain(rules(SERVICE, "x", 1))["groups"] for rule in group["rules"] if "record" in rule}
    asked = {name for panel in panels for target in panel["targets"] for name in re.findall(r"tonnage:[\w:]+", target["expr"])}
    assert asked
    assert asked <= recorded
