"""What a target's files hold, as others read it: every YAML file, Kubernetes' own objects and the pods that an object holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import yaml

CORE = ("v1", "apps/v1", "policy/v1", "rbac.authorization.k8s.io/v1")
"""Whose schema is at hand."""

Objects = dict[tuple[str, str], dict[str, Any]]


def objects_of(files: Mapping[str, str]) -> Objects:
    """Every Kubernetes object by kind and name."""
    found: Objects = {}
    for name, text in files.items():
        for one in yaml.safe_load_all(text) if name.endswith(".yaml") and name != "kustomization.yaml" else ():
            found[one["kind"], one["metadata"]["name"]] = one
    return found


def pods_of(objects: Objects) -> list[dict[str, Any]]:
    """Every pod template, wherever an object holds one."""
    each = objects.values()
    found = [one["spec"]["template"]["spec"] for one in each if one["kind"] == "Deployment"]
    found += [one["spec"]["template"] for one in each if one["kind"] == "LLMInferenceService"]
    of_kserve = ("minReplicas", "maxReplicas", "labels")
    found += [
        {key: value for key, value in one["spec"]["predictor"].items() if key not in of_kserve}
        for one in each
        if one["kind"] == "InferenceService"
    ]
    return found + [
        part["podTemplate"]["spec"] for one in each if one["kind"] == "DynamoGraphDeployment" for part in one["spec"]["components"]
    ]


def check_objects(objects: Objects) -> None:
    """Kubernetes' own objects, and every pod, against its schema."""
    version = kubernetes_validate.latest_version()
    checked = [one for one in objects.values() if one["apiVersion"] in CORE]
    assert checked
    for one in checked:
        kubernetes_validate.validate(one, version, strict=True)
    for spec in pods_of(objects):
        bare = {**spec, "containers": [{"image": "laid/over", **one} for one in spec["containers"]]}  # KServe's template has the image
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": bare}
        kubernetes_validate.validate(pod, version, strict=True)


def check_files(files: Mapping[str, str]) -> None:
    """Every file by what reads it; whole clusters by Kubernetes' schema."""
    for name, text in files.items():
        if name.endswith(".json"):
            json.loads(text)
        elif name.endswith(".yaml"):
            assert list(yaml.safe_load_all(text))
    if "kustomization.yaml" in files:
        assert set(yaml.safe_load(files["kustomization.yaml"])["resources"]) <= set(files)
        check_objects(objects_of(files))
