"""Prompts that share blocks."""

from __future__ import annotations


def conserved(cache, free: int, blocks: int) -> None:
    """Nobody holds a block any more, each is there once, and names and blocks are of one mind."""
    assert set(cache.refs) <= {0}
    assert sorted(cache.idle) == list(range(blocks))
    assert free == blocks
    assert {name: block for block, name in enumerate(cache.named) if name} == cache.names
    for tier, names in zip(cache.tiers, cache.below, strict=True):
        assert len(names) <= tier.blocks
        assert not names.keys() & cache.names.keys()
