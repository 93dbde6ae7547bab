"""Lengths of prompts and outputs: distributions in tokens, and pairs that belong together.

A length may be written in words: English text has about 0.75 words a token (OpenAI, "What are
tokens and how to count them?"; NVIDIA's course on sizing uses the same), so 3,500 words are 4,667
tokens. Or in characters, of which a token of English has about four: "8000chars" are 2,000 tokens.
"""

from __future__ import annotations

import datetime
import math
import os.path
import re
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from tonnage.csv_file import named_rows
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.typed_values import strict
from tonnage.spec.written_numbers import number_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tonnage.spec.model import Model


LengthKind = Literal["fixed", "normal", "lognormal", "uniform", "histogram"]

MAX_TOKENS = 10_000_000

WORDS_PER_TOKEN = 0.75  # Of English text

# Of English text (OpenAI, "What are tokens and how to count them?": "1 token ~= 4 chars in
# English")
CHARACTERS_PER_TOKEN = 4.0

EXACT = "exact:"  # What is before a length that every request is to have

# Standard deviations to the 99.9th percentile, where the longest length of an endless distribution
# is taken
TAIL = 3.0902


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of lengths in tokens, cut below at one token."""

    kind: LengthKind = "fixed"  # "fixed", "normal", "lognormal", "uniform" or "histogram"
    mean: float  # mean in tokens (before the cut)
    std: float = 0.0  # standard deviation in tokens; 0 for "fixed"
    # (tokens, weight) of a "histogram", weights summing to 1
    bins: tuple[tuple[float, float], ...] = ()
    plus: float = 0.0  # fixed tokens inside ``mean`` that do not vary, such as a system prompt
    # how it was written, where that is not the tokens themselves; not compared
    written: str = field(default="", compare=False)
    # whether a "fixed" length is exact; otherwise it is a mean where systems are sized
    exact: bool = False

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """``count`` lengths as int64 tokens, each at least 1."""
        import numpy as np

        if self.kind == "fixed":
            return np.full(count, max(1, round(self.mean)), dtype=np.int64)
        variable_mean = self.mean - self.plus
        if self.kind == "normal":
            drawn = rng.normal(variable_mean, self.std, count)
        elif self.kind == "uniform":
            half = self.std * math.sqrt(3.0)
            drawn = rng.uniform(variable_mean - half, variable_mean + half, count)
        elif self.kind == "histogram":
            values, weights = (np.array(column) for column in zip(*self.bins, strict=True))
            place = np.searchsorted(np.cumsum(weights)[:-1], rng.random(count), side="right")
            drawn = values[place]
        else:
            variance = math.log1p((self.std / variable_mean) ** 2)
            drawn = rng.lognormal(
                math.log(variable_mean) - variance / 2, math.sqrt(variance), count
            )
        return np.maximum(np.rint(drawn + self.plus), 1).astype(np.int64)

    @property
    def longest(self) -> int:
        """The longest that occurs, in tokens: the maximum, or the 99.9th percentile of an endless
        distribution.
        """
        variable_mean = self.mean - self.plus
        if self.kind == "fixed":
            return round(self.mean)
        if self.kind == "histogram":
            return round(max(value for value, weight in self.bins if weight > 0) + self.plus)
        if self.kind == "uniform":
            return round(variable_mean + self.std * math.sqrt(3.0) + self.plus)
        if self.kind == "normal":
            return round(variable_mean + TAIL * self.std + self.plus)
        variance = math.log1p((self.std / variable_mean) ** 2)
        return round(
            math.exp(math.log(variable_mean) - variance / 2 + TAIL * math.sqrt(variance))
            + self.plus
        )

    def slices(self) -> tuple[tuple[float, float], ...]:
        """(tokens, weight) in ascending order: the bins of a histogram, of other distributions
        ``SLICES`` parts of equal weight.
        """
        if self.kind == "fixed":
            return ((self.mean, 1.0),)
        if self.kind == "histogram":
            return tuple((value + self.plus, weight) for value, weight in sorted(self.bins))
        variable_mean, places = self.mean - self.plus, [(i + 0.5) / SLICES for i in range(SLICES)]
        if self.kind == "uniform":
            half = self.std * math.sqrt(3.0)
            values = [variable_mean + half * (2 * place - 1) for place in places]
        elif self.kind == "normal":
            values = [NormalDist(variable_mean, self.std).inv_cdf(place) for place in places]
        else:
            variance = math.log1p((self.std / variable_mean) ** 2)
            normal = NormalDist(math.log(variable_mean) - variance / 2, math.sqrt(variance))
            values = [math.exp(normal.inv_cdf(place)) for place in places]
        return tuple((max(1.0, value + self.plus), 1 / SLICES) for value in values)

    def up_to(self, tokens: float) -> tuple[float, Lengths, Lengths]:
        """The share of lengths of at most so many tokens, these lengths, and the longer ones, both
        as histograms with bins ``FINE`` wide. Raises InputError: all are on one side.
        """
        below, above = (
            [(value, weight) for value, weight in self.slices() if (value <= tokens) == short]
            for short in (True, False)
        )
        if not below or not above:
            raise InputError(f"{self}: no lengths on both sides of {tokens:g} tokens")
        return math.fsum(weight for _, weight in below), _binned(below), _binned(above)

    def scaled(self, factor: float) -> Lengths:
        """Every length times ``factor``, the fixed part included."""
        bins = tuple((value * factor, weight) for value, weight in self.bins)
        written = f"{self.written} × {factor:g}" if self.written else ""
        return replace(
            self,
            mean=self.mean * factor,
            std=self.std * factor,
            bins=bins,
            plus=self.plus * factor,
            written=written,
        )

    def longer(self, tokens: float) -> Lengths:
        """Every length ``tokens`` longer: what a system prompt or retrieved passages add."""
        if not tokens:
            return self
        plus = 0.0 if self.kind == "fixed" else self.plus + tokens
        return replace(
            self,
            mean=self.mean + tokens,
            plus=plus,
            written=f"{self.written}+{tokens:g}" if self.written else "",
        )

    def within(self, share: float, plus: float = 0.0) -> Lengths:
        """Lengths that vary evenly by a share of this one, up and down, but for ``plus`` tokens of
        it that do not.
        """
        variable_mean = self.mean - plus
        base = f"{self}" if not plus else f"{variable_mean:.10g}"
        written = f"{base}+-{100 * share:.4g}%{f'+{plus:g}' if plus else ''}"
        return Lengths(
            kind="uniform",
            mean=self.mean,
            std=share * variable_mean / math.sqrt(3.0),
            plus=plus,
            written=written,
        )

    def varied(self, cv: float, plus: float = 0.0) -> Lengths:
        """Log-normal lengths of the same mean, ``cv`` times it their standard deviation, but for
        ``plus`` tokens that do not vary.
        """
        return Lengths(
            kind="lognormal", mean=self.mean, std=round(cv * (self.mean - plus), 6), plus=plus
        )

    def at_mean(self) -> Lengths:
        """The mean alone: requests that are equal."""
        return Lengths(mean=self.mean)

    def __str__(self) -> str:
        """Such as "2000", "normal:2000,500" or "lengths.csv", what ``parse_lengths`` reads; pairs
        give "pairs.csv (mean 2048)".
        """
        if self.written:
            return self.written
        if self.kind == "fixed":
            return f"{EXACT if self.exact else ''}{self.mean:.10g}"
        plus = f"+{self.plus:g}" if self.plus else ""
        if self.kind == "histogram":
            return f"histogram:{','.join(f'{value:g}:{weight:g}' for value, weight in self.bins)}{plus}"  # noqa: E501
        variable_mean, half = self.mean - self.plus, self.std * math.sqrt(3.0)
        if self.kind == "uniform" and variable_mean > half:
            return (
                f"uniform:{round(variable_mean - half, 6):g}-{round(variable_mean + half, 6):g}"
                f"{plus}"
            )
        return f"{self.kind}:{variable_mean:g},{self.std:g}{plus}"


@strict
class RecordedLengths:
    """The spread of the lengths in a recorded trace."""

    name: str  # the kind of traffic, such as "chat"
    about: str  # in words
    use_cases: tuple[str, ...]  # whose single lengths are taken to differ as much
    trace: str  # its file in ../shared/data/traces
    requests: int
    # isl_mean, osl_mean: tokens; isl_cv, osl_cv: standard deviation over mean
    isl_mean: float
    isl_cv: float
    osl_mean: float
    osl_cv: float
    source: str
    date: datetime.date  # when it was recorded, or published

    def cv(self, which: str) -> float:
        """The coefficient of variation of "isl" or "osl"."""
        return self.isl_cv if which == "isl" else self.osl_cv

    def apart(self, isl: float, osl: float) -> float:
        """The distance of mean lengths from its means: the sum of the logarithms of both ratios."""
        return abs(math.log(isl / self.isl_mean)) + abs(math.log(osl / self.osl_mean))


Spread = float | RecordedLengths
"""How lengths vary around a mean: evenly by a share of it, 0 for not at all, or as much as recorded
ones."""


def with_spread(lengths: Lengths, which: str, spread: Spread, plus: float = 0.0) -> Lengths:
    """A single length, "isl" or "osl", with a spread, but for ``plus`` tokens of it that do not
    vary.
    """
    if isinstance(spread, RecordedLengths):
        return lengths.varied(spread.cv(which), plus)
    return lengths.within(spread, plus) if spread else replace(lengths, exact=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Prompt and output lengths that were seen together, drawn together: long prompts keep their
    own outputs.
    """

    # isl, osl: tokens, one of each per pair
    isl: tuple[int, ...]
    osl: tuple[int, ...]
    source: str = ""  # the file that they were read from

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``count`` pairs, each equally likely, as two int64 columns."""
        import numpy as np

        place = rng.integers(0, len(self.isl), count)
        return np.array(self.isl, dtype=np.int64)[place], np.array(self.osl, dtype=np.int64)[place]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its output."""
        return max(i + o for i, o in zip(self.isl, self.osl, strict=True))

    def lengths(self) -> tuple[Lengths, Lengths]:
        """The distributions of the prompts and of the outputs, each by itself."""
        return of_values(self.isl, self.source), of_values(self.osl, self.source)

    def up_to(self, tokens: float) -> tuple[float, Pairs, Pairs]:
        """The share of pairs with prompts of at most so many tokens, these pairs, and the others.
        Raises InputError: all are on one side.
        """
        sides = []
        for short in (True, False):
            rows = [
                (i, o) for i, o in zip(self.isl, self.osl, strict=True) if (i <= tokens) == short
            ]
            if not rows:
                raise InputError(f"{self.source}: no prompts on both sides of {tokens:g} tokens")
            isl, osl = zip(*rows, strict=True)
            side = f"{self.source} {'up to' if short else 'over'} {tokens:g}"
            sides.append(Pairs(isl=isl, osl=osl, source=side))
        below, above = sides
        return len(below.isl) / len(self.isl), below, above

    def scaled(self, isl: float = 1.0, osl: float = 1.0) -> Pairs:
        """Prompts and outputs times a factor each, at least one token."""
        factor = "" if isl == osl == 1 else f" × {isl:g}/{osl:g}"
        columns = (
            tuple(max(1, round(v * f)) for v in values)
            for values, f in ((self.isl, isl), (self.osl, osl))
        )
        longer_isl, longer_osl = columns
        return Pairs(isl=longer_isl, osl=longer_osl, source=f"{self.source}{factor}")

    def longer(self, tokens: float) -> Pairs:
        """Every prompt ``tokens`` longer."""
        return replace(self, isl=tuple(round(v + tokens) for v in self.isl)) if tokens else self


def of_values(values: tuple[int, ...], source: str) -> Lengths:
    """The distribution of values that were seen, each equally likely; shown as "trace.csv (mean
    2048)".
    """
    written = f"{os.path.basename(source)} (mean {sum(values) / len(values):.0f})"
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return histogram(
        [(float(value), float(count)) for value, count in sorted(counts.items())], written
    )


SLICES = 1_000  # Parts of equal weight in which a distribution without bins is looked at
FINE = 1.05  # Ratio of the lengths that share a bin
WEIGHTS = 100_000  # Whole weights of all bins together, so that they are written exactly


def _binned(slices: list[tuple[float, float]]) -> Lengths:
    """A histogram of whole tokens and whole weights, which reads as it is written."""
    bins: dict[int, list[tuple[float, float]]] = {}
    for value, weight in slices:
        bins.setdefault(round(math.log(value) / math.log(FINE)), []).append((value, weight))
    total, pairs, done, written = math.fsum(weight for _, weight in slices), [], 0.0, 0
    for members in bins.values():
        weight = math.fsum(weight for _, weight in members)
        done += weight / total
        whole = round(done * WEIGHTS) - written
        written += whole
        if whole:
            mean = math.fsum(value * part for value, part in members) / weight
            pairs.append((float(max(1, round(mean))), float(whole)))
    return histogram(pairs)


def histogram(bins: list[tuple[float, float]], written: str = "") -> Lengths:
    """Lengths of the given values with the given weights, which need not sum to 1."""
    total = sum(weight for _, weight in bins)
    shares = tuple((value, weight / total) for value, weight in bins)
    mean = sum(value * share for value, share in shares)
    std = math.sqrt(sum(share * (value - mean) ** 2 for value, share in shares))
    return Lengths(kind="histogram", mean=mean, std=std, bins=shares, written=written)


_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?"
_UNIT = re.compile(r"\s*(words?|tokens?|characters?|chars?)$")
_WITHIN = re.compile(rf"^(.+)\+-({_NUMBER})%(?:\+({_NUMBER}))?$")
_PLUS = re.compile(rf"^(.*[^e+])\+({_NUMBER})$")
_PAIR = re.compile(r"^(normal|lognormal|uniform):([^,]+),([^,]+)$")
_INTERVAL = re.compile(rf"^(?:uniform:)?({_NUMBER})\s*-\s*({_NUMBER})$")
_BIN = re.compile(rf"^\s*({_NUMBER})\s*:\s*({_NUMBER})\s*$")
_PART = re.compile(r"^(?:(\d{1,9})\s*[x×*]\s*)?(.+?)\s*(words?|tokens?|characters?|chars?)?$")


def parse_lengths(text: str, where: str, words_per_token: float = WORDS_PER_TOKEN) -> Lengths:
    """Read "2000", "2k", "exact:2000", "2000±500", "2000±20%", "lognormal:2000,500", "1600-2000" or
    "histogram:100:0.2,500:0.8".

    An interval may be written "uniform:1600-2000" too. Each may end in "words" ("3500words") or
    "chars" ("8000chars"), or have a fixed part added ("lognormal:300,90+4600"); a path that ends in
    ".csv" is a file with the columns value and weight.

    Raises:
        InputError: not one of these forms, or a length below one token.
    """
    plain = text.strip().lower().replace("±", "+-").replace("+/-", "+-")
    if plain.endswith(".csv"):
        return read_histogram(text.strip(), where)
    if plain.startswith(EXACT):
        return replace(
            _fixed(parse_lengths(plain.removeprefix(EXACT), where, words_per_token), text, where),
            exact=True,
        )
    if (within := _WITHIN.match(plain)) is not None and 0 < float(within.group(2)) <= 100:
        mean, plus = (
            _fixed(parse_lengths(within.group(1), where, words_per_token), text, where),
            float(within.group(3) or 0.0),
        )
        return replace(mean, mean=mean.mean + plus).within(float(within.group(2)) / 100, plus)
    unit = _UNIT.search(plain)
    per_token = _per_token(unit, words_per_token)
    body = plain[: unit.start()] if unit else plain
    added = _PLUS.match(body)
    plus = float(added.group(2)) if added else 0.0
    try:
        parsed = _one_form(added.group(1) if added else body, text, where)
    except ValueError:
        raise InputError(_form(text, where)) from None
    lengths = _checked(parsed, text, where).longer(plus).scaled(1 / per_token)
    _checked(lengths, text, where)
    return replace(lengths, written=plain) if per_token != 1.0 else lengths


def _fixed(lengths: Lengths, text: str, where: str) -> Lengths:
    """The lengths, refused where they are a distribution already."""
    if lengths.kind != "fixed":
        raise InputError(_form(text, where))
    return lengths


def _per_token(unit: re.Match[str] | None, words_per_token: float) -> float:
    """The number of words or characters in a token; 1 where the unit is the token."""
    if unit is None or unit.group(1).startswith("token"):
        return 1.0
    return words_per_token if unit.group(1).startswith("word") else CHARACTERS_PER_TOKEN


def _one_form(plain: str, text: str, where: str) -> Lengths:
    """One distribution, without unit or addition; ValueError for a number that is none."""
    if plain.startswith("histogram:"):
        return _histogram(plain.removeprefix("histogram:"), text, where)
    pair, interval = _PAIR.match(plain), _INTERVAL.match(plain)
    kind: LengthKind = "fixed"
    if pair:
        kind = next(k for k in ("normal", "lognormal", "uniform") if k == pair.group(1))
        mean, std = float(pair.group(2)), float(pair.group(3))
    elif interval:
        low, high = float(interval.group(1)), float(interval.group(2))
        if high < low:
            raise InputError(
                f"{where}: '{text}' ends below where it begins; write the smaller length first"
            )
        kind, mean, std = "uniform", (low + high) / 2, (high - low) / math.sqrt(12.0)
    elif "+-" in plain:
        kind = "normal"
        mean, std = (_number(part) for part in plain.split("+-"))
    else:
        mean, std = _number(plain), 0.0
    return Lengths(kind="fixed" if std == 0 else kind, mean=mean, std=std)


def _number(text: str) -> float:
    """A number, such as "2000", "2,000" or "2k". Raises ValueError: it is none."""
    parsed = number_of(text)
    if parsed is None:
        raise ValueError(text)
    return parsed


def _histogram(body: str, text: str, where: str) -> Lengths:
    matches = [_BIN.match(part) for part in body.split(",")]
    bins = [(float(m.group(1)), float(m.group(2))) for m in matches if m]
    if len(bins) < len(matches) or not 0 < sum(weight for _, weight in bins) < math.inf:
        raise InputError(
            f"{where}: '{text}' is not a histogram; write length:weight pairs such as"
            " histogram:100:0.2,500:0.5,2000:0.3"
        )
    return histogram(bins)


def _form(text: str, where: str) -> str:
    return (
        f"{where}: '{text}' is not a length in tokens; write for example 2000, exact:2000,"
        " 2000+-500, 2000+-20%, 3500words, 8000chars, lognormal:2000,500, uniform:1600-2000,"
        " histogram:100:0.2,500:0.8 or the path of a .csv"
    )


def _checked(lengths: Lengths, text: str, where: str) -> Lengths:
    """Return the lengths; impossible ones are refused."""
    shortest = min((value for value, _ in lengths.bins), default=lengths.mean)
    if not (math.isfinite(lengths.mean) and math.isfinite(lengths.std)):
        raise InputError(_form(text, where))
    if shortest < 1 or lengths.std < 0:
        raise InputError(
            f"{where}: '{text}' is below one token; a length is 1 or more and its deviation 0 or"
            " more"
        )
    if max(lengths.mean, lengths.std) > MAX_TOKENS:
        raise InputError(
            f"{where}: '{text}' is above {MAX_TOKENS:,} tokens, more than any model takes"
        )
    return lengths


def parse_part(
    text: str, where: str, words_per_token: float = WORDS_PER_TOKEN
) -> tuple[int, float]:
    """Read "5x400" as 5 parts of 400 tokens, "500" as one; a part may be in words.

    Raises InputError: neither form, or more than any model takes.
    """
    match = _PART.match(str(text).strip().lower())
    tokens = None if match is None else number_of(match[2])
    if match is None or tokens is None or not tokens >= 0:
        raise InputError(
            f"{where}: '{text}' is not a part of a prompt; write tokens, words or characters, or"
            " several such as 5x400 or 3x300words"
        )
    tokens /= _per_token(_UNIT.search(match[3] or ""), words_per_token)
    count = int(match[1] or 1)
    if not 0 <= count * tokens <= MAX_TOKENS:
        raise InputError(
            f"{where}: '{text}' is above {MAX_TOKENS:,} tokens, more than any model takes"
        )
    return count, tokens


# Lengths are read from CSV files: a histogram has the columns value and weight, pairs have the
# columns isl and osl.


def read_histogram(path: str, where: str) -> Lengths:
    """Lengths with their weights, from a CSV with the columns ``value`` (tokens) and ``weight``.

    Raises InputError: the file cannot be read as that; every bad line is named.
    """
    errors: list[str] = []
    bins = []
    for line, row in named_rows(path, where, ("value", "weight")):
        value, weight = number(row["value"]), number(row["weight"])
        if value is None or not 1 <= value <= MAX_TOKENS:
            errors.append(
                f"{where}: {path}:{line}: value '{row['value']}' is not a length; write 1 to"
                f" {MAX_TOKENS:,} tokens"
            )
        if weight is None or weight < 0:
            errors.append(
                f"{where}: {path}:{line}: weight '{row['weight']}' is not a weight; write 0 or more"
            )
        if value is not None and weight is not None:
            bins.append((value, weight))
    if not errors and not 0 < sum(weight for _, weight in bins) < math.inf:
        errors.append(f"{where}: {path} holds no length with a weight above 0")
    InputErrors.raise_if(errors)
    return histogram(bins, path)


def read_pairs(path: str, where: str) -> Pairs:
    """Pairs of lengths, from a CSV with the columns ``isl`` and ``osl`` in tokens.

    Raises InputError: the file cannot be read as that; every bad line is named.
    """
    errors: list[str] = []
    columns: dict[str, list[int]] = {"isl": [], "osl": []}
    for line, row in named_rows(path, where, tuple(columns)):
        for name, values in columns.items():
            values.append(tokens(row[name], name, f"{where}: {path}:{line}", errors))
    if not errors and not columns["isl"]:
        errors.append(f"{where}: {path} holds no pair; write one line isl,osl per request")
    InputErrors.raise_if(errors)
    return Pairs(isl=tuple(columns["isl"]), osl=tuple(columns["osl"]), source=path)


def number(text: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def tokens(text: object, name: str, where: str, errors: list[str]) -> int:
    """A length in whole tokens, 1 or more; anything else is added to ``errors`` and read as 1."""
    value = number(str(text))
    if value is None or not 1 <= value <= MAX_TOKENS or value != round(value):
        why = (
            "negative"
            if value is not None and value < 0
            else f"not a whole number of tokens from 1 to {MAX_TOKENS:,}"
        )
        errors.append(f"{where}: {name} '{text}' is {why}; a length is 1 token or more")
        return 1
    return round(value)


def check_context(model: Model, isl: Lengths, osl: Lengths, pairs: Pairs | None = None) -> None:
    """Refuse lengths whose longest request exceeds the model's context.

    Raises:
        InputError: with the longest request, and what share of a file's requests is too long.
    """
    max_context = model.max_context
    if pairs is not None:
        if pairs.longest > max_context:
            over = sum(i + o > max_context for i, o in zip(pairs.isl, pairs.osl, strict=True))
            raise InputError(
                f"{pairs.source}: {over:,} of {len(pairs.isl):,} requests exceed the context of"
                f" {model.name}, {max_context:,} tokens, the longest with {pairs.longest:,}; take"
                " them out or choose a model with a longer context"
            )
        return
    longest = isl.longest + osl.longest
    if longest <= max_context:
        return
    mean = isl.mean + osl.mean
    at_most = "" if round(mean) == longest else f"{mean:,.0f} tokens on average and up to "
    raise InputError(
        f"{option('isl')} {isl} + {option('osl')} {osl} = {at_most}{longest:,} tokens exceed the"
        f" context of {model.name}, {max_context:,} tokens; shorten them, raise"
        f" {option('max_model_len')} if it is given, or choose a model with a longer"
        f" context{_meant_tokens(isl, osl, max_context)}"
    )


_IN_WORDS = re.compile(r"([\d.,]+)\s*words?")


def _meant_tokens(isl: Lengths, osl: Lengths, longest: int) -> str:
    """A hint, where lengths in words would fit if their numbers were tokens: slides often say words
    and mean tokens.
    """
    written = {
        name: match[1]
        for name, lengths in (("isl", isl), ("osl", osl))
        if (match := _IN_WORDS.fullmatch(str(lengths)))
    }
    tokens = {name: number_of(text) or math.inf for name, text in written.items()}
    if not written or tokens.get("isl", isl.longest) + tokens.get("osl", osl.longest) > longest:
        return ""
    typed = " ".join(f"{option(name)} {text}" for name, text in written.items())
    return (
        f"; if your source says words and means tokens, as the course's slide does, write {typed}"
    )
