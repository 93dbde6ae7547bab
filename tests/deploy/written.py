"""What a target's files hold, as others read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tonnage.deploy.service import PLAN, Service, service_of
from tonnage.deploy.verify import read_files
from tonnage.plan.plan import Plan

Objects = dict[tuple[str, str], dict[str, Any]]


def objects_of(files: Mapping[str, str]) -> Objects:
    """Every Kubernetes object by kind and name."""
    found: Objects = {}
    for name, text in files.items():
        for one in (
            yaml.load_all(text, yaml.CSafeLoader)
            if name.endswith(".yaml") and name != "kustomization.yaml"
            else ()
        ):
            found[one["kind"], one["metadata"]["name"]] = one
    return found


def check_files(files: Mapping[str, str], service: Service | None = None) -> None:
    """``deploy verify`` finds no fault, and every object is read against a schema; the plan is
    among the files without a service."""
    made = service or service_of(Plan.from_json(json.loads(files[PLAN])), checkpoint="my/own")
    found = read_files(files, made)
    assert found.faults == ()
    assert [part for part in found.parts if part.against.startswith("not read:")] == []


def asked(plan: Path, folder: Path, *further: str, target: str = "kubernetes") -> list[str]:
    return ["deploy", str(plan), "--target", target, "--output", str(folder), *further]
