"""How an engine is started: the words of its command and the flag of each setting, which ``plan/launch`` puts together.

Settings have the names of ``Parallelism`` and ``EngineKnobs``, and those of ``plan.launch.SETTINGS``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.spec.typed_values import FORBID

MODEL = "{model}"
"""Stands in a command where the checkpoint does."""

FLAGS = "{flags}"
"""Stands in a command where its flags do; they follow the last word of a command without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The flags that enable and disable a setting; empty where the engine has none for that, because it is its default."""

    __pydantic_config__ = FORBID

    enable: str = ""
    disable: str = ""


DRAFTER = "{drafter}"
"""Stands in what speculative decoding adds where the drafter's checkpoint does."""

GUESSES, ONE_MORE = "{k}", "{k+1}"
"""Stand there for the guesses of a step, and for one more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What one method of speculative decoding adds to a command, with ``DRAFTER`` and ``GUESSES`` in it.

    Attributes:
        words: further words of the command.
        file: pairs of a key of the configuration file, with dots between the levels, and its value.
    """

    words: tuple[str, ...] = ()
    file: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftingEntry:
    """A ``Drafting`` as ``engines.yaml`` writes it: by name."""

    __pydantic_config__ = FORBID

    words: tuple[str, ...] = ()
    file: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How an engine is started.

    Attributes:
        command: its words; one of them holds ``MODEL``, and one may be ``FLAGS``.
        values: pairs of a setting and the flag that its value follows; a flag that ends with "=" is one word with it.
        switches: pairs of a setting that is on or off and its flags; a degree is on where it is above 1.
        file_flag: the flag of the configuration file; empty where everything has a flag.
        file_keys: pairs of a setting that only the file has and its key, with dots between the levels; a leading "not " turns it round.
        speculation: pairs of a method of speculative decoding (``spec.speculation.METHODS``) and what it adds; others cannot be started.
        quantize: pairs of a number format and the arguments that make the engine quantise a 16-bit checkpoint to it at start.
        source, date: where the names come from and when they were taken down.
    """

    command: tuple[str, ...]
    values: tuple[tuple[str, str], ...]
    switches: tuple[tuple[str, Switch], ...] = ()
    file_flag: str = ""
    file_keys: tuple[tuple[str, str], ...] = ()
    speculation: tuple[tuple[str, Drafting], ...] = ()
    quantize: tuple[tuple[str, tuple[str, ...]], ...] = ()
    source: str
    date: str

    def flag(self, setting: str) -> str | None:
        """The flag that a setting's value follows; None where it has none."""
        return dict(self.values).get(setting)

    def switch(self, setting: str) -> Switch | None:
        """The flags that turn a setting on and off; None where it has none."""
        return dict(self.switches).get(setting)

    def drafting(self, method: str) -> Drafting | None:
        """What a method of speculative decoding adds; None where the engine cannot be started with it."""
        return dict(self.speculation).get(method)

    def quantizing(self, weights: str) -> tuple[str, ...]:
        """The arguments that make the engine quantise to a number format at start; empty if it cannot."""
        return dict(self.quantize).get(weights, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEntry:
    """A ``Launch`` as ``engines.yaml`` writes it: by name."""

    __pydantic_config__ = FORBID

    command: tuple[str, ...]
    values: dict[str, str]
    switches: dict[str, Switch] | None = None
    file_flag: str = ""
    file_keys: dict[str, str] | None = None
    speculation: dict[str, DraftingEntry] | None = None
    quantize: dict[str, tuple[str, ...]] | None = None
    source: str
    date: str

    def value(self) -> Launch:
        """The same, with pairs."""
        return Launch(
            command=self.command,
            values=tuple(self.values.items()),
            switches=tuple((self.switches or {}).items()),
            file_flag=self.file_flag,
            file_keys=tuple((self.file_keys or {}).items()),
            speculation=tuple(
                (method, Drafting(words=one.words, file=tuple((one.file or {}).items())))
                for method, one in (self.speculation or {}).items()
            ),
            quantize=tuple((self.quantize or {}).items()),
            source=self.source,
            date=self.date,
        )
