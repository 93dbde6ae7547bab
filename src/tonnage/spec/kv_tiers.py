"""Memory below the KV cache of an instance: what a system has of it, by whose rules blocks are kept
there, and what a question asks for.

Four rules of an offloader (``Offloading``) change what a tier keeps and how long a step takes.
``catalog/offloading.yaml`` has them with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tonnage.errors import InputError, option
from tonnage.spec.typed_values import strict
from tonnage.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from tonnage.spec.deployment import Parallelism

TierKind = Literal["host", "disk", "store"]

KV_SHARE: dict[str, float] = {"host": 0.8, "disk": 0.9, "store": 1.0}
"""Shares of a system's memories that keep KV blocks, where no size is given: the rest is for the
operating system and the engine."""

NONE = "none"  # Asks for no memory below the KV cache


@strict
class SystemTier:
    """A memory of a whole system that can keep KV blocks."""

    kind: TierKind  # "host" memory, local "disk", or a "store" that systems share
    gb: float | None  # decimal gigabytes; None of a store, whose size is somebody's choice
    gb_s: float  # from there to all GPUs together, in GB/s
    latency_us: float  # before the first byte comes, in microseconds
    # source, date: where the figures come from
    source: str
    date: str


@strict
class Offloading:
    """The program that keeps blocks below the KV cache, and its rules."""

    name: str  # such as "lmcache"
    # families of the engines that it serves; it is the usual one of a family that no entry before
    # it serves
    engines: tuple[str, ...]
    tiers: tuple[TierKind, ...]  # memories that it uses unless others are named, the nearest first
    # whether a tier has a copy of what is above it (write-through), so that only the rest of it
    # adds to the cache; otherwise a block is there after the cache had to forget it
    copies: bool
    # whether steps compute while blocks come up; otherwise the step of the request that needs them
    # waits
    overlaps: bool
    # whether a block that every GPU of a group has, such as a latent cache under tensor
    # parallelism, is kept once
    once: bool
    # of the engine, with ``{host_gib}`` for the size of its host memory in GiB, and
    # ``{host_gb_per_gpu}`` for GB of each GPU
    flags: tuple[str, ...] = ()
    # a size, such as ``host_bytes_per_gpu``, and its key in the engine's configuration file. Where
    # there are neither, its environment or another process switches it on, and no command does.
    file_keys: dict[str, str] = field(default_factory=dict)
    rules: str  # how they were read
    # source, date: from where, and when
    source: str
    date: str

    def switched_on(
        self, tiers: Sequence[AskedTier], split: Parallelism
    ) -> tuple[list[str], dict[str, int]]:
        """The flags of an engine that keeps blocks in these tiers, and what its file has by key; of
        one attention rank, and of one GPU.
        """
        size = sum(tier.size or 0 for tier in tiers if tier.name == "host")
        sizes = {
            "host_gib": int(size / split.dp / 2**30),
            "host_gb_per_gpu": int(size / split.gpus / 1e9),
            "host_bytes_per_gpu": size // split.gpus,
        }
        if not size:
            return [], {}
        return [flag.format(**sizes) for flag in self.flags], {
            key: sizes[name] for name, key in self.file_keys.items()
        }


PLAIN = Offloading(
    name="",
    engines=(),
    tiers=(),
    copies=False,
    overlaps=False,
    once=False,
    rules="write-back; the step waits",
    source="",
    date="",
)
"""The rules of tiers whose sizes are given without an offloader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTier:
    """One tier of an instance: its name, and what of it was given; the system says the rest.

    Attributes:
        name: "host", "disk", "store", or any word where size and bandwidth are given.
        size: bytes of an instance.
        speed: bytes per second of an instance.
        latency_s: seconds before the first block of a request.
    """

    name: str
    size: int | None = None
    speed: int | None = None
    latency_s: float | None = None

    @property
    def whole(self) -> bool:
        """Whether every size and speed is given, so that nothing depends on the system."""
        return self.size is not None and self.speed is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTiers:
    """The tiers that a question asks for."""

    # the nearest first; empty for the offloader's usual ones, or with ``off`` for none
    tiers: tuple[AskedTier, ...] = ()
    # its name; "" for the engine's usual one where the system has a say, and for plain rules where
    # it has none
    offloader: str = ""
    off: bool = False  # no memory at all
    # the question leaves it to the system: memories that the catalog does not know, or that the
    # engine's command does not switch on, are left out then, and not refused
    usual: bool = False


USUAL = KvTiers(usual=True)
OFF = KvTiers(off=True)

_TIER = re.compile(
    r"^\s*(?:([a-z]+)(?:\s*=\s*(?=[\d.])|\s*(?=[@+]|$)))?([\d.]+\s*[a-z]+)?\s*(?:@\s*([^@=+]+?)\s*/\s*s)?\s*(?:\+\s*([^@=+]+?))?\s*$",
    re.IGNORECASE,
)


def parse_kv_tiers(text: str | None, offloaders: tuple[str, ...]) -> KvTiers | None:
    """Read "host", "host=512GB,disk", "lmcache:host,disk=4TB@6GB/s+100us", "vllm" or "none"; None
    where nothing is given.

    Raises InputError: another form, or a memory that is neither host, disk nor store without size
    and bandwidth.
    """
    if text is None:
        return None
    where, (before, colon, after) = option("kv_tiers"), text.strip().partition(":")
    name = before.strip().lower()
    if name == NONE and not colon:
        return OFF
    offloader = name if colon or name in offloaders else ""
    if offloader and offloader not in offloaders:
        raise InputError(
            f"{where}: '{name}' is no offloader; write {', '.join(offloaders)}, or leave it out"
        )
    rest = after if colon else "" if offloader else text
    return KvTiers(
        tiers=tuple(
            _tier(part, where) for part in rest.split(",") if part.strip() or not offloader
        ),
        offloader=offloader,
    )


def _tier(part: str, where: str) -> AskedTier:
    match = _TIER.match(part)
    shown = f"{where}: '{part.strip()}'"
    if not match or not part.strip():
        raise InputError(
            f"{shown} is not a tier; write size and bandwidth, such as host=256GB@50GB/s, or host"
            " for the system's own"
        )
    name = (match[1] or "").lower()
    size = None if match[2] is None else parse_bytes(match[2], where)
    speed = None if match[3] is None else parse_bytes(match[3], where)
    latency = None if match[4] is None else parse_duration(match[4], where)
    if speed is not None and speed < 1:
        raise InputError(f"{shown} has no bandwidth; write such as host=256GB@50GB/s")
    asked_tier = AskedTier(name=name, size=size, speed=speed, latency_s=latency)
    if name not in KV_SHARE and not asked_tier.whole:
        raise InputError(
            f"{shown} is not a tier; write size and bandwidth, such as host=256GB@50GB/s, or host,"
            " disk or store"
        )
    return asked_tier
