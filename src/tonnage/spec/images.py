"""Images in a prompt: the tokens that a model's encoder makes of one, by the rule of its image
processor.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from tonnage.errors import InputError, option
from tonnage.spec.typed_values import strict

Sizing = Literal["native", "padded", "budget", "fixed", "tiles"]

EXAMPLE = "1024x768 (pixels), or 3x1024x768 for three in every prompt"
_IMAGES = re.compile(r"^(?:(\d{1,4})\s*[x×]\s*)?(\d{1,5})\s*[x×]\s*(\d{1,5})$")


@strict
class Encoder:
    """An image encoder (ViT) and the rule by which its image processor sizes images."""

    name: str  # what it is called
    models: tuple[str, ...]  # catalog ids of the models that have it
    # layers, hidden, heads, ffn, gated: its transformer; attention is within one image, or one
    # tile, and not causal
    layers: int
    hidden: int
    heads: int
    ffn: int
    gated: bool
    patch: int  # pixels of a patch's side
    merge: int  # patches of a side that become one token of the prompt
    # "native": the image's own size, rounded to tokens, within ``least`` and ``most`` of them;
    # "padded": filled up to tokens, shrunk to ``most`` and to ``side`` pixels; "budget": as large
    # as ``most`` tokens allow; "fixed": ``side`` pixels square; "tiles": tiles of ``side`` pixels,
    # ``most`` at most, and where there are several the whole image once more
    sizing: Sizing
    source: str
    date: str
    # least, most: tokens, or tiles
    least: int = 1
    most: int = 1
    side: int = 0  # pixels
    marks: int = 2  # tokens around an image, such as its begin and end
    # perceptrons that turn merged patches into tokens, of two matrices each; 0 where patches are
    # averaged
    mergers: int = 1

    def sequences(self, width: int, height: int) -> tuple[int, ...]:
        """Patches of an image, each sequence attended to by itself: one, or one for each tile and
        the whole.
        """
        if self.sizing in ("fixed", "tiles"):
            tiles = math.prod(self._tiles(width, height)) if self.sizing == "tiles" else 1
            # each tile has a class token
            return (self._of_side + (self.sizing == "tiles"),) * (tiles + (tiles > 1))
        rows, columns = self._grid(width, height)
        return (rows * columns * self.merge**2,)

    def tokens(self, width: int, height: int) -> int:
        """Tokens of the prompt that an image becomes, those around it included."""
        if self.sizing == "tiles":
            rows, columns = self._tiles(width, height)
            several = rows * columns > 1
            # between the tiles of a row, and after each row
            separators = rows * columns if several else 0
            return (
                (rows * columns + several) * self._of_side // self.merge**2
                + separators
                + self.marks
            )
        if self.sizing == "fixed":
            return self._of_side // self.merge**2 + self.marks
        return math.prod(self._grid(width, height)) + self.marks

    @property
    def _of_side(self) -> int:
        return int((self.side // self.patch) ** 2)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Tokens of a column and of a row, where the image keeps its shape."""
        unit, area = self.patch * self.merge, width * height / (self.patch * self.merge) ** 2
        if self.sizing == "padded":
            patches = max(width // self.patch, 1) * max(height // self.patch, 1)
            scale = min(
                1.0,
                math.sqrt(self.most * self.merge**2 / patches),
                self.side / width,
                self.side / height,
            )
            return math.ceil(max(int(height * scale), 1) / unit), math.ceil(
                max(int(width * scale), 1) / unit
            )
        if self.sizing == "native":
            rows, columns = round(height / unit), round(width / unit)
            if max(rows, 1) * max(columns, 1) < self.least or not rows * columns:
                grow = math.sqrt(self.least / area)
                return math.ceil(height * grow / unit), math.ceil(width * grow / unit)
            if rows * columns <= self.most:
                return rows, columns
        scale = math.sqrt(self.most / area)
        return max(math.floor(height * scale / unit), 1), max(math.floor(width * scale / unit), 1)

    def _tiles(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of the canvas that enlarges the image least, or shrinks it least; the
        smallest of several.
        """
        shapes = [
            (rows, columns)
            for rows in range(1, self.most + 1)
            for columns in range(1, self.most // rows + 1)
        ]

        def preference(shape: tuple[int, int]) -> tuple[bool, float, int]:
            scale = min(shape[0] * self.side / height, shape[1] * self.side / width)
            return scale < 1, scale if scale >= 1 else -scale, math.prod(shape)

        return min(shapes, key=preference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Images of every prompt."""

    count: int  # of one prompt
    # width, height: in pixels
    width: int
    height: int
    encoder: Encoder  # of the model
    prompt_tokens: float = 0.0  # mean tokens that a request computes, those of its images included

    @property
    def tokens(self) -> int:
        """Tokens of one image."""
        return self.encoder.tokens(self.width, self.height)

    def __str__(self) -> str:
        """Such as "2 images of 1024x768"."""
        return f"{self.count} image{'s' if self.count > 1 else ''} of {self.width}x{self.height}"


def parse_images(text: str, model: str) -> Images:
    """Read "2x1024x768" for a model's name. Raises InputError: not that form, or the model has no
    encoder that is known.
    """
    from tonnage.spec.catalog import find_encoder

    match = _IMAGES.match(text.strip().lower())
    count, width, height = (int(part or 1) for part in match.groups()) if match else (0, 0, 0)
    if not (count and width and height) or max(width, height) > 200 * min(width, height):
        raise InputError(f"{option('images')}: '{text}' is not a size of images; write {EXAMPLE}")
    return Images(count=count, width=width, height=height, encoder=find_encoder(model))
