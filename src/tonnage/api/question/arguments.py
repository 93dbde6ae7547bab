"""Checks arguments as people write them: lists with commas, rates, limits and lengths."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tonnage.errors import InputError, option, spelled
from tonnage.errors import Path as OptionPath
from tonnage.spec.deployment import METRICS, Limit, parse_attainment, parse_limit
from tonnage.spec.scenario import Scenario, leaves, to_document
from tonnage.spec.workload import Lengths, parse_lengths
from tonnage.spec.written_numbers import number_of

Many = str | int | Iterable[str | int]
"""One value, a comma-separated string, or several values."""

MOST_SPARE = 1_000_000
"""Most spare systems that are added."""

P = ParamSpec("P")
R = TypeVar("R")


def with_signature(arguments: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function that takes ``**asked`` the signature that ``help`` and notebooks show: one keyword per argument."""

    def signed(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        kept = [part for part in own.parameters.values() if part.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=getattr(kind, "__forward_arg__", kind))
            for name, kind in arguments.__annotations__.items()
        ]
        setattr(function, "__signature__", own.replace(parameters=[*kept, *named]))  # noqa: B010 — a function's type does not declare it
        return function

    return signed


def listed(values: Many, where: str) -> tuple[str, ...]:
    """The values one by one, without repeats. Raises InputError: nothing is left, or an empty item between commas."""
    parts = [values] if isinstance(values, int) else values.split(",") if isinstance(values, str) else [str(v) for v in values]
    texts = [str(part).strip() for part in parts]
    if not texts or any(not text for text in texts):
        raise InputError(f"{where}: '{values}' has an empty item; write one value or several with commas between")
    return tuple(dict.fromkeys(texts))


def whole_numbers(values: Many, where: str) -> tuple[int, ...]:
    """The values as positive whole numbers. Raises InputError: one is not a whole number above zero."""
    numbers = []
    for text in listed(values, where):
        number = number_of(text)
        if number is None or not 1 <= number < 1e9 or not number.is_integer():
            raise InputError(f"{where}: '{text}' is not a whole number above 0; write for example 1,2,4,8")
        numbers.append(int(number))
    return tuple(numbers)


def rates(values: str | float | Iterable[float], where: str) -> tuple[float, ...]:
    """The values as finite numbers above zero. Raises InputError: one is not."""
    texts = [str(values)] if isinstance(values, int | float) else values.split(",") if isinstance(values, str) else [str(v) for v in values]
    numbers = []
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise InputError(f"{where}: '{text}' is not a rate; write requests per second above 0, for example 1,2.5,4")
        numbers.append(number)
    return tuple(numbers)


def slo(**limits: str | Sequence[str] | None) -> tuple[Limit, ...]:
    """Limits by metric, such as ``slo(ttft="p95<=500ms", tpot=["mean 50ms"])``, contradictions refused.

    Raises:
        InputError: not a limit, or two limits on the same statistic.
    """
    found: list[Limit] = []
    for metric in METRICS:
        given = limits.get(metric) or ()
        for text in [given] if isinstance(given, str) else given:
            limit = parse_limit(metric, text)
            if any((other.metric, other.statistic) == (limit.metric, limit.statistic) for other in found):
                raise InputError(f"{option(metric)}: {limit.statistic} is limited twice; keep one of them")
            found.append(limit)
    return (*found, *attainments(limits.get("attain")))


def attainments(texts: str | Sequence[str] | None) -> tuple[Limit, ...]:
    """Limits of joint attainment, such as "95%: ttft<=500ms & tpot<=50ms"; one or several.

    Raises InputError: one cannot be read, or is given twice.
    """
    found = tuple(map(parse_attainment, [texts] if isinstance(texts, str) else texts or ()))
    for limit in found:
        if found.count(limit) > 1:
            raise InputError(f"{option('attain')}: '{limit}' appears twice; keep one of them")
    return found


def lengths_of(value: str | float, where: str) -> Lengths:
    """Lengths in any of the forms of ``parse_lengths``. Raises InputError: not such a form."""
    return parse_lengths(str(value), where)


def seed_of(seed: int) -> int:
    """The seed, which is 0 or more. Raises InputError: it is negative."""
    if seed < 0:
        raise InputError(f"{option('seed')}: {seed} is negative; write a whole number from 0")
    return seed


def spare_of(count: int) -> int:
    """Spare systems, 0 or more. Raises InputError: it is negative, or more than anybody keeps."""
    if count > MOST_SPARE:
        raise InputError(f"{option('spare')}: {count} is more than anybody keeps; write at most {MOST_SPARE:,}")
    if count < 0:
        raise InputError(f"{option('spare')}: {count} is negative; write how many systems to add, 0 or more")
    return count


def confidence_asked(text: float | str | None) -> float:
    """Read 95, "95%" or 0.95 as the share 0.95; the default where nothing is asked.

    Raises InputError: no number, or one outside of what the known errors can say.
    """
    from tonnage.plan.candidate import CONFIDENCE, CONFIDENCES

    if text is None:
        return CONFIDENCE
    (low, high), (share, written) = CONFIDENCES, share_of(text)
    if not low <= share <= high:
        raise InputError(f"{option('confidence')}: '{written}' is not a confidence; write {100 * low:.0f} to {100 * high:.0f}, in percent")
    return share


def share_of(text: float | str) -> tuple[float, str]:
    """Read 95, "95%" or 0.95 as the share 0.95, NaN where it is no number; and the text itself, cut for a message."""
    written = str(text).strip()
    try:
        value = float(written.removesuffix("%"))
    except ValueError:
        value = math.nan
    return value if 0 < value < 1 and not written.endswith("%") else value / 100, written[:20]


def check_given(**values: object) -> None:
    """Refuse a command that leaves out what it cannot do without.

    Raises:
        InputError: naming every one that is missing.
    """
    missing = [option(name) for name, value in values.items() if value is None]
    if missing:
        raise InputError(
            f"{', '.join(missing)}: missing; for example {option('model')} llama-3.1-8b {option('isl')} 2000 {option('osl')} 200"
        )


# Collects what is wrong with a question, so that all of it is reported at once, each with its place.


T = TypeVar("T")


class Faults:
    """A list of everything that is wrong, each with its place.

    What came from a file is named by its key there. What was given next to it stays an option in the message, for the
    command or Python to spell.

    Attributes:
        source: the file; empty where there is none.
        keys: the key in the file of every leaf that was not given next to it, by name.
        messages: one line each.
    """

    def __init__(self, source: str = "", flags: Mapping[str, object] | None = None) -> None:
        """Take the file's name and the arguments that were given next to it."""
        self.source = source
        given = {name for name, value in (flags or {}).items() if value is not None}
        self.keys = {leaf.name: leaf.key for leaf in leaves() if leaf.name not in given} if source else {}
        self.messages: list[str] = []

    def of(self, make: Callable[P, T], *values: P.args, **named: P.kwargs) -> T | None:
        """What ``make`` makes of the values; None and a line more for each reason where it cannot."""
        try:
            return make(*values, **named)
        except InputError as error:
            self.messages += [self._placed(line) for line in error.marked.splitlines()]
            return None

    def named(self, where: str, make: Callable[P, T], *values: P.args, **named: P.kwargs) -> T | None:
        """As ``of``, for a name that is looked up: an unknown name is reported with its place."""
        before = len(self.messages)
        found = self.of(make, *values, **named)
        at = self._placed(f"{where}: ")
        self.messages[before:] = [line if where in line or at in line else f"{at}{line}" for line in self.messages[before:]]
        return found

    def say(self, message: str) -> None:
        """One more thing that is wrong."""
        self.messages.append(self._placed(message))

    def _placed(self, message: str) -> str:
        named = spelled(message, self._key)
        return f"{self.source}: {named}" if self.source and named != message else message

    def _key(self, path: OptionPath) -> str:
        """How the file spells an option; unchanged where it does not stand there."""
        return self.keys.get(path[-1]) or option(*path)


# Takes a scenario in any of the forms that Python has for it: a file, nested values, a ``Scenario``, or arguments by name.


ScenarioLike = Scenario | Mapping[str, Any] | str | Path | None
"""A file (YAML or JSON), nested values as a file holds them, a ``Scenario``, or None to say everything by name."""


def document_of(scenario: ScenarioLike) -> tuple[Mapping[str, Any], str]:
    """The nested values of a scenario, and the file that they came from; empty where there is none.

    Raises InputError: the file cannot be read as a scenario.
    """
    from tonnage.spec.scenario_file import read_document

    if isinstance(scenario, str | Path):
        return read_document(str(scenario)), str(scenario)
    if isinstance(scenario, Scenario):
        return to_document(scenario), ""
    return scenario or {}, ""


def plain(asked: Mapping[str, object]) -> dict[str, Any]:
    """The arguments that were given, as a file would hold them: paths as text, and any iterable as a list."""
    return {name: _plain(value) for name, value in asked.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str | int | float | list | dict) else list(value)
