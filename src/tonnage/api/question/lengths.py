"""Lengths as they were requested: words turned into tokens, the parts of a prompt added up, pairs kept together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tonnage.api.question.arguments import Faults
from tonnage.errors import option
from tonnage.spec.images import Images, parse_images
from tonnage.spec.lengths import CHARACTERS_PER_TOKEN, WORDS_PER_TOKEN, Lengths, Pairs, parse_lengths, parse_part, read_pairs
from tonnage.spec.model import Model
from tonnage.spec.recording import Recording
from tonnage.spec.scenario import LengthsAsked
from tonnage.spec.use_cases import mixture_of

if TYPE_CHECKING:
    from tonnage.plan.note import Note, Part, Which


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsFound:
    """Lengths of one request, drawn apart or in pairs, the tokens of every prompt that were given as its parts, and what was understood."""

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

    def spread(self, share: float) -> LengthsFound:
        """With single numbers as means, around which lengths vary evenly by a share of them; ``exact:`` ones stay as they are."""
        from tonnage.plan.note import LengthsVary

        if self.pairs is not None or not share:
            return self
        isl = self.isl.within(share, self.added) if self.isl.kind == "fixed" and not self.isl.exact else self.isl
        osl = self.osl.within(share) if self.osl.kind == "fixed" and not self.osl.exact else self.osl
        both: tuple[tuple[Which, bool], ...] = (("isl", isl is not self.isl), ("osl", osl is not self.osl))
        changed = tuple(name for name, varies in both if varies)
        note = (LengthsVary(which=changed, share=share),) if changed else ()
        return replace(self, isl=isl, osl=osl, remarks=(*self.remarks, *note))


def replays_lengths(asked: LengthsAsked) -> bool:
    """Whether a trace's own lengths count: they do unless others were given."""
    return asked.isl is None and asked.osl is None and asked.pairs is None and asked.mixture is None


def images_of(asked: LengthsAsked, models: Sequence[Model | None], faults: Faults) -> Images | None:
    """The images of every prompt, by the rule of the one model in question; None without, or where something is wrong."""
    known = [model for model in models if model is not None]
    if asked.images is None or not known:
        return None
    if len(known) > 1:
        faults.say(f"{option('images')}: become other tokens in each model; ask about one model at a time, or leave it out")
        return None
    return faults.of(parse_images, asked.images, known[0].name)


def lengths_found(asked: LengthsAsked, recording: Recording | None, faults: Faults, images: Images | None = None) -> LengthsFound | None:
    """Lengths with everything added up; None where a text among them is none."""
    words = WORDS_PER_TOKEN if asked.words_per_token is None else asked.words_per_token
    if not 0.01 <= words <= 100:
        faults.say(f"{option('words_per_token')}: {words:g} is not possible; write words of one token, 0.75 for English")
        return None
    if twice := _given_twice(asked):
        faults.say(twice)
        return None
    before = len(faults.messages)
    added, remarks = _added(asked, words, faults, images)
    pairs = faults.of(read_pairs, asked.pairs, option("pairs")) if asked.pairs is not None else None
    pairs = pairs if asked.mixture is None else faults.of(mixture_of, asked.mixture, option("mixture"))
    if pairs is None and recording is not None and replays_lengths(asked):
        pairs = recording.pairs()
        if pairs is None:
            faults.say(f"{option('isl')}, {option('osl')}: {recording.source} has no lengths; give them, or add the columns isl and osl")
    if pairs is not None:
        longer = pairs.longer(added)
        isl, osl = longer.lengths()
        return LengthsFound(isl=isl, osl=osl, pairs=longer, remarks=tuple(remarks), images=images)
    if asked.isl is None or asked.osl is None:
        return None
    texts: tuple[tuple[Which, str], ...] = (("isl", as_text(asked.isl)), ("osl", as_text(asked.osl)))
    isl_own, osl_own = (faults.of(parse_lengths, text, option(name), words) for name, text in texts)
    if isl_own is None or osl_own is None or len(faults.messages) > before:
        return None
    for (name, text), own in zip(texts, (isl_own, osl_own), strict=True):
        if "word" in text:
            from tonnage.plan.note import LengthInWords

            remarks.append(LengthInWords(which=name, written=text, tokens=own.mean, words_per_token=words))
        if "char" in text.lower():
            from tonnage.plan.note import LengthInCharacters

            remarks.append(LengthInCharacters(which=name, written=text, tokens=own.mean, characters_per_token=CHARACTERS_PER_TOKEN))
    return LengthsFound(isl=isl_own.longer(added), osl=osl_own, pairs=None, remarks=tuple(remarks), added=added, images=images)


def _given_twice(asked: LengthsAsked) -> str:
    """What is wrong where lengths are said in more than one way; empty where they are not."""
    single = asked.isl is not None or asked.osl is not None
    if asked.mixture is not None and (single or asked.pairs is not None):
        others = ", ".join(option(name) for name in ("isl", "osl", "pairs"))
        return f"{option('mixture')} and {others}: both are given; the mixture is the lengths"
    if asked.pairs is not None and single:
        return f"{option('pairs')} and {option('isl')}, {option('osl')}: both are given; the pairs are the lengths"
    return ""


def as_text(value: float | str) -> str:
    """A value as it would be written."""
    return value if isinstance(value, str) else f"{value:.15g}"


def _added(asked: LengthsAsked, words: float, faults: Faults, images: Images | None) -> tuple[int, list[Note]]:
    """Tokens of system prompt, passages, history and images together, and how they add up."""
    given: dict[Part, float | str | None] = {"system_prompt": asked.system_prompt, "retrieved": asked.retrieved, "history": asked.history}
    if images is None and all(value is None for value in given.values()):
        return 0, []
    from tonnage.plan.note import PromptPart, PromptParts

    found = []
    for name, value in given.items():
        if value is not None:
            part = faults.of(parse_part, as_text(value), option(name), words)
            if part is not None:
                found.append(PromptPart(part=name, count=part[0], tokens=part[1]))
    found += [] if images is None else [PromptPart(part="images", count=images.count, tokens=images.tokens)]
    total = round(sum(part.count * part.tokens for part in found))
    return total, [PromptParts(tokens=total, parts=tuple(found))] if found else []
