"""On which nodes the instances may run: those with the plan's GPUs, as NVIDIA's GPU feature discovery labels them."""

from __future__ import annotations

from typing import Any

from tonnage.deploy.noted import noted
from tonnage.spec.hardware import Gpu

PRODUCTS = {
    "v100-sxm2-32gb": "Tesla-V100-SXM2-32GB",
    "t4": "Tesla-T4",
    "a10-24gb": "NVIDIA-A10",
    "a10g-24gb": "NVIDIA-A10G",
    "a100-pcie-40gb": "NVIDIA-A100-PCIE-40GB",
    "a100-pcie-80gb": "NVIDIA-A100-80GB-PCIe",
    "a100-sxm-40gb": "NVIDIA-A100-SXM4-40GB",
    "a100-sxm-80gb": "NVIDIA-A100-SXM4-80GB",
    "l4": "NVIDIA-L4",
    "l40": "NVIDIA-L40",
    "l40s": "NVIDIA-L40S",
    "h100-pcie-80gb": "NVIDIA-H100-PCIe",
    "h100-sxm-80gb": "NVIDIA-H100-80GB-HBM3",
    "h100-nvl-94gb": "NVIDIA-H100-NVL",
    "h200-sxm-141gb": "NVIDIA-H200",
    "h200-nvl-141gb": "NVIDIA-H200-NVL",
    "h20-96gb": "NVIDIA-H20",
    "b200-sxm-180gb": "NVIDIA-B200",
}
"""The label ``nvidia.com/gpu.product`` of GPUs by catalog id: the name that the driver reports, with hyphens (recalled, 2026-11-22)."""

MARGIN = 0.03
"""How far the memory that a driver reports may lie from the catalog's."""


def placing(gpu: Gpu) -> dict[str, Any]:
    """Selector, affinity and toleration of a pod."""
    return {**_nodes(gpu), "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}


def _nodes(gpu: Gpu) -> dict[str, Any]:
    product = PRODUCTS.get(gpu.name)
    if product is not None:
        told = f"{gpu.name}, as GPU feature discovery names it; look at your nodes: kubectl get nodes -L nvidia.com/gpu.product"
        return {"nodeSelector": noted({"nvidia.com/gpu.product": product}, told)}
    mib = gpu.memory_bytes / 2**20
    wanted = [
        {"key": "nvidia.com/gpu.family", "operator": "In", "values": [gpu.arch.lower()]},
        {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": [str(round((1 - MARGIN) * mib))]},
        {"key": "nvidia.com/gpu.memory", "operator": "Lt", "values": [str(round((1 + MARGIN) * mib))]},
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    told = f"The name that a driver reports for {gpu.name} is not known: its family and its memory in MiB."
    return {"affinity": noted({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}, told)}
