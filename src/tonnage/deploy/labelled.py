"""The label by which pods are found that somebody else's controller makes."""

from __future__ import annotations

from tonnage.deploy.service import Service


def labelled(service: Service) -> dict[str, str]:
    """The label, which belongs to no controller."""
    return {"tonnage/deployment": service.name}
