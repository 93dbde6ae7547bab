"""Checks arguments as people write them: lists with commas, rates, limits, lengths and the parts of
a prompt.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tonnage.errors import InputError, option, spelled
from tonnage.errors import Path as OptionPath
from tonnage.spec.catalog.entries import recorded_lengths
from tonnage.spec.deployment import METRICS, Limit, parse_attainment, parse_limit
from tonnage.spec.images import Images, parse_images
from tonnage.spec.lengths import (
    CHARACTERS_PER_TOKEN,
    WORDS_PER_TOKEN,
    Lengths,
    Pairs,
    RecordedLengths,
    Spread,
    parse_lengths,
    parse_part,
    read_pairs,
    with_spread,
)
from tonnage.spec.model import Model
from tonnage.spec.recording import Recording
from tonnage.spec.scenario import (
    LARGEST_SETTING,
    LengthsAsked,
    Scenario,
    leaves,
    to_document,
    written_leaves,
)
from tonnage.spec.use_cases import mixture_of
from tonnage.spec.written_numbers import number_of

if TYPE_CHECKING:
    from tonnage.plan.notes import Note, Part, Which

Many = str | int | Iterable[str | int]  # one value, a comma-separated string, or several values


P = ParamSpec("P")
R = TypeVar("R")


def with_signature(arguments: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a function that takes ``**asked`` the signature that ``help`` and notebooks show: one
    keyword per argument.
    """

    def signed(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = [
            part
            for part in signature.parameters.values()
            if part.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in arguments.__annotations__.items()
        ]
        setattr(function, "__signature__", signature.replace(parameters=[*parameters, *named]))  # noqa: B010 — a function's type does not declare it
        return function

    return signed


def listed(values: Many, where: str) -> tuple[str, ...]:
    """The values one by one, without repeats. Raises InputError: nothing is left, or an empty item
    between commas.
    """
    parts = (
        [values]
        if isinstance(values, int | float)
        else values.split(",")
        if isinstance(values, str)
        else [str(v) for v in values]
    )
    texts = [str(part).strip() for part in parts]
    if not texts or any(not text for text in texts):
        raise InputError(
            f"{where}: '{values}' has an empty item; write one value or several with commas between"
        )
    return tuple(dict.fromkeys(texts))


def whole_numbers(values: Many, where: str) -> tuple[int, ...]:
    """The values as positive whole numbers. Raises InputError: one is not a whole number above
    zero.
    """
    numbers = []
    for text in listed(values, where):
        number = number_of(text)
        if number is None or number < 1 or not number.is_integer():
            raise InputError(
                f"{where}: '{text}' is not a whole number above 0; write for example 1,2,4,8"
            )
        if number > LARGEST_SETTING:
            raise InputError(f"{where}: {text} is too large; write at most {LARGEST_SETTING:,}")
        numbers.append(int(number))
    return tuple(numbers)


def only(values: Many, name: str) -> str:
    """The only one of the values. Raises InputError: there are several."""
    texts = listed(values, option(name))
    if len(texts) > 1:
        raise InputError(f"{option(name)}: {', '.join(texts)} are several; name one of them")
    return texts[0]


def only_whole_number(values: Many, name: str) -> int:
    """The only one of the values, a positive whole number. Raises InputError: there are several, or
    it is none.
    """
    return whole_numbers(only(values, name), option(name))[0]


def rates(values: str | float | Iterable[float], where: str) -> tuple[float, ...]:
    """The values as finite numbers above zero. Raises InputError: one is not."""
    texts = (
        [str(values)]
        if isinstance(values, int | float)
        else values.split(",")
        if isinstance(values, str)
        else [str(v) for v in values]
    )
    numbers = []
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            all_at_once = (
                f"; for all requests at once give {option('concurrency')} and {option('requests')}"
                if number == math.inf
                else ""
            )
            raise InputError(
                f"{where}: '{text}' is not a rate; write requests per second above 0, for example"
                f" 1,2.5,4{all_at_once}"
            )
        numbers.append(number)
    return tuple(numbers)


def slo(**limits: str | Sequence[str] | None) -> tuple[Limit, ...]:
    """Limits by metric, such as ``slo(ttft="p95<=500ms", tpot=["mean 50ms"])``, contradictions
    refused. Raises InputError.
    """
    slo_limits: list[Limit] = []
    for metric in METRICS:
        texts = limits.get(metric) or ()
        for text in [texts] if isinstance(texts, str) else texts:
            limit = parse_limit(metric, text)
            if any(
                (earlier_limit.metric, earlier_limit.statistic) == (limit.metric, limit.statistic)
                for earlier_limit in slo_limits
            ):
                raise InputError(
                    f"{option(metric)}: {limit.statistic} is limited twice; keep one of them"
                )
            slo_limits.append(limit)
    return (*slo_limits, *attainments(limits.get("attain")))


def attainments(texts: str | Sequence[str] | None) -> tuple[Limit, ...]:
    """Limits of joint attainment, such as "95%: ttft<=500ms & tpot<=50ms"; one or several. Raises
    InputError.
    """
    limits = tuple(map(parse_attainment, [texts] if isinstance(texts, str) else texts or ()))
    for limit in limits:
        if limits.count(limit) > 1:
            raise InputError(f"{option('attain')}: '{limit}' appears twice; keep one of them")
    return limits


def lengths_of(value: str | float, where: str) -> Lengths:
    """Lengths in any of the forms of ``parse_lengths``. Raises InputError: not such a form."""
    return parse_lengths(str(value), where)


def confidence_asked(text: float | str | None) -> float:
    """Read 95, "95%" or 0.95 as the share 0.95; the default without a value. Raises InputError."""
    from tonnage.plan.candidate import CONFIDENCE, CONFIDENCES

    if text is None:
        return CONFIDENCE
    (low, high), (share, written) = CONFIDENCES, share_of(text)
    if not low <= share <= high:
        raise InputError(
            f"{option('confidence')}: '{written}' is not a confidence; write {100 * low:.0f} to"
            f" {100 * high:.0f}, in percent"
        )
    return share


def share_of(text: float | str) -> tuple[float, str]:
    """Read 95, "95%" or 0.95 as the share 0.95, NaN where it is no number; and the text itself, cut
    for a message.
    """
    written = str(text).strip()
    try:
        value = float(written.removesuffix("%"))
    except ValueError:
        value = math.nan
    return value if 0 < value < 1 and not written.endswith("%") else value / 100, written[:20]


def check_given(**values: object) -> None:
    """Refuse a command that leaves out what it cannot do without. Raises InputError: naming every
    one that is missing.
    """
    missing = [option(name) for name, value in values.items() if value is None]
    if missing:
        raise InputError(
            f"{', '.join(missing)}: missing; for example {option('model')} llama-3.1-8b"
            f" {option('isl')} 2000 {option('osl')} 200"
        )


# Collects what is wrong with a question, so that all of it is reported at once, each with its
# place.


T = TypeVar("T")


class Faults:
    """A list of everything that is wrong, each with its place.

    What came from a file is named by its key there. What was given next to it stays an option in
    the message, for the command or Python to spell.

    Attributes:
        source: the file; empty where there is none.
        keys: the key in the file of every leaf that was not given next to it, by name.
        messages: one line each.
    """

    def __init__(self, source: str = "", flags: Mapping[str, object] | None = None) -> None:
        """Take the file's name and the arguments that were given next to it."""
        self.source = source
        flag_names = {name for name, value in (flags or {}).items() if value is not None}
        self.keys = (
            {leaf.name: leaf.key for leaf in leaves() if leaf.name not in flag_names}
            if source
            else {}
        )
        self.messages: list[str] = []

    def of(self, make: Callable[P, T], *values: P.args, **named: P.kwargs) -> T | None:
        """Call ``make`` with the values; where it refuses, note the reasons and return None."""
        try:
            return make(*values, **named)
        except InputError as error:
            for line in error.marked.splitlines():
                self.say(line)
            return None

    def named(
        self, where: str, make: Callable[P, T], *values: P.args, **named: P.kwargs
    ) -> T | None:
        """Look a name up as ``of`` would, and report an unknown name with its place."""
        before = len(self.messages)
        result = self.of(make, *values, **named)
        at = self._placed(f"{where}: ")
        self.messages[before:] = [
            line if where in line or at in line else f"{at}{line}"
            for line in self.messages[before:]
        ]
        return result

    def check(self, scenario: Scenario, simulated: Mapping[str, object] | None = None) -> None:
        """Say which numbers of a scenario, and of what ``simulate`` alone takes, are out of the
        bounds of their leaves.
        """
        for leaf, value in written_leaves(scenario, simulated):
            if fault := leaf.fault(value):
                self.say(f"{option(leaf.name)}: {fault}")

    def say(self, message: str) -> None:
        """Note one more fault, unless it is noted already."""
        placed = self._placed(message)
        if placed not in self.messages:
            self.messages.append(placed)

    def _placed(self, message: str) -> str:
        named = spelled(message, self._key)
        return f"{self.source}: {named}" if self.source and named != message else message

    def _key(self, path: OptionPath) -> str:
        """The file's spelling of an option; unchanged where the file lacks it."""
        return self.keys.get(path[-1]) or option(*path)


# A file (YAML or JSON), nested values as a file holds them, a ``Scenario``, or None to say
# everything by name
ScenarioLike = Scenario | Mapping[str, Any] | str | Path | None


def document_of(scenario: ScenarioLike) -> tuple[Mapping[str, Any], str]:
    """The nested values of a scenario, and the file that they came from; empty where there is none.
    Raises InputError.
    """
    from tonnage.spec.scenario_file import read_document

    if isinstance(scenario, str | Path):
        return read_document(str(scenario)), str(scenario)
    if isinstance(scenario, Scenario):
        return to_document(scenario), ""
    return scenario or {}, ""


def plain(arguments: Mapping[str, object]) -> dict[str, Any]:
    """The arguments that were given, as a file would hold them: paths as text, and any iterable as
    a list.
    """
    return {name: _plain(value) for name, value in arguments.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str | int | float | list | dict) else list(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsFound:
    """Lengths of one request, drawn apart or in pairs, the tokens of every prompt that were given
    as its parts, and what was understood.
    """

    isl: Lengths
    osl: Lengths
    pairs: Pairs | None
    remarks: tuple[Note, ...]
    added: int = 0
    images: Images | None = None

    @property
    def pictured(self) -> Images | None:
        """The images, with the mean prompt that they are part of."""
        return None if self.images is None else replace(self.images, prompt_tokens=self.isl.mean)

    def spread(self, spread: Spread) -> LengthsFound:
        """With single numbers as means, around which lengths vary; ``exact:`` ones stay as they
        are, and all do where the share is 0.
        """
        from tonnage.plan.notes import LengthsVary

        both: tuple[tuple[Which, Lengths], ...] = (("isl", self.isl), ("osl", self.osl))
        single = {
            name: lengths for name, lengths in both if lengths.kind == "fixed" and not lengths.exact
        }
        if self.pairs is not None or not single:
            return self
        changed: dict[str, Any] = {
            name: with_spread(lengths, name, spread, self.added if name == "isl" else 0)
            for name, lengths in single.items()
        }
        if isinstance(spread, RecordedLengths):
            note = LengthsVary(
                which=tuple(single),
                share=0.0,
                recorded=spread.name,
                cvs=tuple(map(spread.cv, single)),
            )
        else:
            note = LengthsVary(which=tuple(single), share=spread)
        return replace(self, **changed, remarks=(*self.remarks, note) if spread else self.remarks)


def spread_of(text: str) -> Spread:
    """Read "exact", "20%" or the kind of a recorded trace. Raises InputError: it is none of
    these.
    """
    recorded = recorded_lengths()
    plain_text = text.strip().lower()
    share = 0.0 if plain_text == "exact" else number_of(plain_text, "share")
    if share is not None and 0 <= share < 1:
        return share
    if plain_text not in recorded:
        raise InputError(
            f"{option('spread')}: '{text}' is no spread; write exact, a share below 100% or one of"
            f" {', '.join(recorded)}"
        )
    return recorded[plain_text]


def replays_lengths(lengths: LengthsAsked) -> bool:
    """Whether a trace's own lengths count: they do unless others were given."""
    return (
        lengths.isl is None
        and lengths.osl is None
        and lengths.pairs is None
        and lengths.mixture is None
    )


def images_of(
    lengths: LengthsAsked, models: Sequence[Model | None], faults: Faults
) -> Images | None:
    """The images of every prompt, by the rule of the one model in question; None without, or where
    something is wrong.
    """
    known_models = [model for model in models if model is not None]
    if lengths.images is None or not known_models:
        return None
    if len(known_models) > 1:
        faults.say(
            f"{option('images')}: become other tokens in each model; ask about one model at a time,"
            " or leave it out"
        )
        return None
    return faults.of(parse_images, lengths.images, known_models[0].name)


def lengths_found(
    length_leaves: LengthsAsked,
    recording: Recording | None,
    faults: Faults,
    images: Images | None = None,
) -> LengthsFound | None:
    """Lengths with everything added up; None where a text among them is none."""
    words = (
        WORDS_PER_TOKEN if length_leaves.words_per_token is None else length_leaves.words_per_token
    )
    if not 0.01 <= words <= 100:
        faults.say(
            f"{option('words_per_token')}: {words:g} is not possible; write words of one token,"
            " 0.75 for English"
        )
        return None
    if twice := _given_twice(length_leaves):
        faults.say(twice)
        return None
    before = len(faults.messages)
    added, remarks = _added(length_leaves, words, faults, images)
    pairs = (
        faults.of(read_pairs, length_leaves.pairs, option("pairs"))
        if length_leaves.pairs is not None
        else None
    )
    pairs = (
        pairs
        if length_leaves.mixture is None
        else faults.of(mixture_of, length_leaves.mixture, option("mixture"))
    )
    if pairs is None and recording is not None and replays_lengths(length_leaves):
        pairs = recording.pairs()
        if pairs is None:
            faults.say(
                f"{option('isl')}, {option('osl')}: {recording.source} has no lengths; give them,"
                " or add the columns isl and osl"
            )
    if pairs is not None:
        longer = pairs.longer(added)
        isl, osl = longer.lengths()
        return LengthsFound(isl=isl, osl=osl, pairs=longer, remarks=tuple(remarks), images=images)
    if length_leaves.isl is None or length_leaves.osl is None:
        return None
    texts: tuple[tuple[Which, str], ...] = (
        ("isl", as_text(length_leaves.isl)),
        ("osl", as_text(length_leaves.osl)),
    )
    isl_own, osl_own = (faults.of(parse_lengths, text, option(name), words) for name, text in texts)
    if isl_own is None or osl_own is None or len(faults.messages) > before:
        return None
    for (name, text), lengths in zip(texts, (isl_own, osl_own), strict=True):
        if "word" in text:
            from tonnage.plan.notes import LengthInWords

            remarks.append(
                LengthInWords(which=name, written=text, tokens=lengths.mean, words_per_token=words)
            )
        if "char" in text.lower():
            from tonnage.plan.notes import LengthInCharacters

            remarks.append(
                LengthInCharacters(
                    which=name,
                    written=text,
                    tokens=lengths.mean,
                    characters_per_token=CHARACTERS_PER_TOKEN,
                )
            )
    return LengthsFound(
        isl=isl_own.longer(added),
        osl=osl_own,
        pairs=None,
        remarks=tuple(remarks),
        added=added,
        images=images,
    )


def _given_twice(lengths: LengthsAsked) -> str:
    """The error where lengths are given in more than one way; empty otherwise."""
    single = lengths.isl is not None or lengths.osl is not None
    if lengths.mixture is not None and (single or lengths.pairs is not None):
        other_flags = ", ".join(option(name) for name in ("isl", "osl", "pairs"))
        return f"{option('mixture')} and {other_flags}: both are given; the mixture is the lengths"
    if lengths.pairs is not None and single:
        return (
            f"{option('pairs')} and {option('isl')}, {option('osl')}: both are given; the pairs are"
            " the lengths"
        )
    return ""


def as_text(value: float | str) -> str:
    """Write a value as a user would."""
    return value if isinstance(value, str) else f"{value:.15g}"


def _added(
    lengths: LengthsAsked, words: float, faults: Faults, images: Images | None
) -> tuple[int, list[Note]]:
    part_texts: dict[Part, float | str | None] = {
        "system_prompt": lengths.system_prompt,
        "retrieved": lengths.retrieved,
        "history": lengths.history,
    }
    if images is None and all(value is None for value in part_texts.values()):
        return 0, []
    from tonnage.plan.notes import PromptPart, PromptParts

    prompt_parts = []
    for name, value in part_texts.items():
        if value is not None:
            part = faults.of(parse_part, as_text(value), option(name), words)
            if part is not None:
                prompt_parts.append(PromptPart(part=name, count=part[0], tokens=part[1]))
    prompt_parts += (
        []
        if images is None
        else [PromptPart(part="images", count=images.count, tokens=images.tokens)]
    )
    total = round(sum(part.count * part.tokens for part in prompt_parts))
    return total, [PromptParts(tokens=total, parts=tuple(prompt_parts))] if prompt_parts else []
