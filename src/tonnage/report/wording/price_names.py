"""Prices by names that people use, in place of the keys under which they stand in a price list."""

from __future__ import annotations

NAMES = {
    "depreciation_years": "Years over which systems are written off",
    "hosting_usd_per_kw_month": "Hosting, USD per kW and month",
    "hosting_usd_per_system_year": "Hosting, USD per system and year",
    "licence_usd_per_gpu_year": "Licences, USD per GPU and year",
    "licence_usd_per_gpu_hour": "Cloud licences, USD per GPU and hour",
    "power_usd_per_kwh": "Electricity, USD per kWh",
    "pue": "Power of the site over that of its machines (PUE)",
    "output_to_input_price_ratio": "Price of an output token over that of an input token",
    "server_over_gpus": "Price of a server over that of its GPUs",
    "power_in_hosting": "Whether hosting pays for the electricity",
}
"""By the key of the list that has one value for all."""
TOKENS = {"usd_per_million_input_tokens": "input tokens", "usd_per_million_output_tokens": "output tokens"}


def price_name(path: str) -> str:
    """The name of a price, with its unit; the key where it is none that is known.

    Args:
        path: where the price stands in a list, such as "cloud.h100-sxm-80gb.Civo on-demand".
    """
    if path in NAMES:
        return NAMES[path]
    kind, _, rest = path.partition(".")
    if kind == "systems" and rest:
        return f"{rest}, USD per system"
    if kind == "gpus" and rest:
        return f"{rest}, USD per GPU"
    if kind == "cloud" and "." in rest:
        gpu, _, offer = rest.partition(".")
        return f"{gpu} in the cloud, USD per GPU and hour: {offer}"
    name, _, tokens = rest.rpartition(".")
    if kind == "api" and tokens in TOKENS:
        return f"{name} through an API, USD per million {TOKENS[tokens]}"
    return path
