"""Deployments on clusters."""

from __future__ import annotations

from tests.deploy.plans import DENSE_CHECKPOINT, dense
from tests.deploy.written import Objects, objects_of
from tonnage.deploy.service import Service, service_of
from tonnage.deploy.targets import target_files

IMAGE = "meta/llama-3.1-8b-instruct:2.1.5"


def service(target: str, engine: str = "vllm-0.32") -> Service:
    return service_of(dense(engine), checkpoint=IMAGE if target == "nim" else DENSE_CHECKPOINT)


def objects(target: str, engine: str = "vllm-0.32") -> Objects:
    """Every object by kind and name."""
    return objects_of(target_files(service(target, engine), target))
