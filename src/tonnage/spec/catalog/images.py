"""``images.yaml`` names the container image of each engine preset that has a published one."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from tonnage.spec.catalog.entries import shipped_yaml
from tonnage.spec.typed_values import read_entries, strict

if TYPE_CHECKING:
    from collections.abc import Mapping


@strict
class Image:
    """The container image of an engine preset.

    Attributes:
        name: of the preset.
        image: with its tag.
        source, date: where it is published, and when that was taken down.
    """

    name: str
    image: str
    source: str
    date: str


@cache
def _images() -> Mapping[str, Image]:
    made = read_entries(Image, shipped_yaml("images.yaml"), "catalog/images.yaml")
    return MappingProxyType({one.name: one for one in made})


def find_image(preset: str) -> Image | None:
    """The image of an engine preset; None where none is known.

    Raises:
        DataErrors: ``images.yaml`` is damaged.
    """
    return _images().get(preset)
