"""Price lists, and the offers in them."""

from __future__ import annotations

from tonnage.spec.catalog.price_list import catalog_prices
from tonnage.spec.prices import Prices

PRICES = catalog_prices()


def offer(prices: Prices, gpu: str = "h100-sxm-80gb", gpus: int = 1) -> str:
    return prices.cloud_tiers(gpu, gpus)[0].offer.offer
