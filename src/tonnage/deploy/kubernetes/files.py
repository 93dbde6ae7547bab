"""The files of a deployment on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.deploy.kubernetes.around import disruption_budget, engine_config, model_cache, network_service
from tonnage.deploy.kubernetes.autoscaling import adapter, hpa, keda
from tonnage.deploy.kubernetes.bundle import bundle
from tonnage.deploy.kubernetes.readme import readme
from tonnage.deploy.kubernetes.workload import deployment
from tonnage.deploy.noted import yaml_text
from tonnage.deploy.service import Service
from tonnage.deploy.told import head


def files(service: Service) -> dict[str, str]:
    """The text of each file by its name."""
    applied = objects(service)
    beside = {"README.md": readme(service)}
    scaled = service.target_in_flight is not None
    if scaled and service.signals.running:
        beside["autoscaling-without-keda.yaml"] = yaml_text(hpa(service), head=adapter(service))
    return bundle(service, applied, beside=beside, autoscaled=scaled)


def objects(service: Service, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """The files of the instances and of what stands around them; ``further`` are labels of a pod."""
    found = {
        "deployment.yaml": yaml_text(deployment(service, further=further), head=head(service)),
        "service.yaml": yaml_text(network_service(service)),
        "model-cache.yaml": yaml_text(model_cache(service)),
        "disruption-budget.yaml": yaml_text(disruption_budget(service)),
    }
    if service.file:
        found["engine-config.yaml"] = yaml_text(engine_config(service))
    if service.target_in_flight is not None:
        found["autoscaling.yaml"] = yaml_text(keda(service))
    return found
