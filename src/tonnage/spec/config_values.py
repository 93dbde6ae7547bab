"""Checked numbers and switches out of one ``config.json``; a wrong one is told with the file and the key."""

from __future__ import annotations

import json
from typing import NoReturn

from tonnage.errors import InputError

MAX_VALUE = 100_000_000  # no dimension of a published model comes near

Config = dict[str, object]


class ConfigValues:
    """The values of one file, each by its key.

    Attributes:
        where: the file, for messages.
        config: what it holds.
    """

    def __init__(self, where: str, config: Config) -> None:
        """Take the file's name and what it holds."""
        self.where = where
        self.config = config

    def fail(self, key: str, problem: str) -> NoReturn:
        """Refuse the file for what stands at a key.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.where}: {key}: {problem}")

    def optional(self, keys: tuple[str, ...]) -> int | None:
        """The number under the first of ``keys`` that is there and not null."""
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                return self.number(key, value)
        return None

    def required(self, keys: tuple[str, ...]) -> int:
        """The same; a file without it is refused."""
        value = self.optional(keys)
        if value is None:
            self.fail(keys[0], "missing")
        return value

    def number(self, key: str, value: object) -> int:
        """A dimension: a whole number of 1 or more."""
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shown(value)} is not a whole number")
        if not 0 < value <= MAX_VALUE:
            self.fail(key, f"{shown(value)} is not between 1 and {MAX_VALUE:,}")
        return value

    def flag(self, key: str, absent: bool) -> bool:
        """True or false; ``absent`` where the file says neither."""
        value = self.config.get(key)
        if value is None:
            return absent
        if not isinstance(value, bool):
            self.fail(key, f"{shown(value)} is neither true nor false")
        return value

    def whole(self, key: str) -> int:
        """A number that may be 0 or null, which is the same, but not absent: the library's defaults are no file's numbers."""
        if key not in self.config:
            self.fail(key, "missing")
        value = self.config[key]
        return 0 if value is None or (value == 0 and value is not False) else self.number(key, value)

    def optional_or(self, keys: tuple[str, ...], absent: int) -> int:
        """The number under the first of ``keys`` that is there and not null, which may be 0; ``absent`` without one."""
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                return 0 if value == 0 and value is not False else self.number(key, value)
        return absent

    def numbers(self, key: str) -> list[int]:
        """A list of whole numbers from 0."""
        value = self.config.get(key)
        if not isinstance(value, list) or not value or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in value):
            self.fail(key, f"{shown(value)} is not a list of whole numbers")
        return value

    def kinds(self, key: str, count: int, known: tuple[str, ...]) -> list[str] | None:
        """A list with one of the ``known`` words for each of ``count`` layers; None where the key is absent."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count or any(one not in known for one in value):
            self.fail(key, f"{shown(value)} is not a list of {count} times {' or '.join(known)}")
        return value

    def part(self, key: str) -> ConfigValues:
        """The object at a key, with values of its own."""
        value = self.config.get(key)
        if not isinstance(value, dict):
            self.fail(key, f"{shown(value)} is not an object")
        return ConfigValues(f"{self.where}: {key}", value)


def shown(value: object) -> str:
    """A value for a message: as in the file, cut short."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**18:
        return "a number of more than 18 digits"
    try:
        text = json.dumps(value, ensure_ascii=True)
    except RecursionError:
        return "a value nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."
