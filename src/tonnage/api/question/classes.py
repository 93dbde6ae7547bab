"""Classes of traffic as people write them: for ``simulate`` shares of one load, for ``size`` use
cases of one fleet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tonnage.api.question.arguments import Many, ScenarioLike, document_of, plain
from tonnage.errors import InputError, InputErrors, option
from tonnage.simulator.rules import is_for_reference
from tonnage.spec.arrivals import TrafficClass
from tonnage.spec.recording import profile_hours
from tonnage.spec.scenario import Leaf, flat, leaves
from tonnage.spec.scenario_file import DISPLACES, displaced, scenario_of
from tonnage.spec.written_numbers import number_of
from tonnage.units import parse_duration

if TYPE_CHECKING:
    from tonnage.spec.deployment import EngineKnobs, Slo
    from tonnage.spec.workload import Workload


EXAMPLE = '"chat 0.7 ttft=1s, batch 0.3"'
MOST_CLASSES = 100
# Output tokens of a run with priorities or deadlines where they are not compiled: the readable
# simulator makes them in about a minute
MOST_LENGTH = 20_000_000


_NAMED = re.compile(r"^\s*([^:,=]+?)\s*:(.*)$", re.DOTALL)
_KEYS = re.compile(r"[,\s]\s*(?=[a-z][a-z0-9_]*\s*=)")
NAMED_EXAMPLE = "chat:peak_rps=20,isl=1000,osl=200,ttft=p95<=500ms"
OF_A_CLASS = ("lengths", "demand", "limits")  # Branches of a scenario that a class may set
ALSO = ("mode", "use_case", "priority")
# Numbers of a demand that classes share, of which a scenario has one
SHARED = ("peak_rps", "mean_rps", "users", "calls_per_year")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedClass:
    """A class as it was written: the texts of its keys, those of a limit in a list."""

    name: str
    values: Mapping[str, Any]


def named_classes(texts: Many) -> tuple[NamedClass, ...]:
    """Read "chat:peak_rps=20,isl=1000,ttft=p95<=500ms", one text for each class.

    Raises InputErrors: texts that are no classes, keys that a class does not have, or a name that
    is given twice.
    """
    where, classes, faults = option("class"), list[NamedClass](), list[str]()
    for text in [str(texts)] if isinstance(texts, str | int | float) else map(str, texts):
        match = _NAMED.match(text)
        pairs = [part.partition("=") for part in _KEYS.split(match[2].strip())] if match else []
        if match is None or not all(key.strip() and value.strip() for key, _, value in pairs):
            faults.append(
                f"{where}: '{text}' is not a class; write a name, a colon and key=value with"
                f" commas or spaces between, such as {NAMED_EXAMPLE}"
            )
            continue
        values: dict[str, Any] = {}
        for key, value in ((key.strip(), value.strip()) for key, _, value in pairs):
            if key not in class_keys():
                faults.append(
                    f"{where}: {match[1]} has no key '{key}'; write one of"
                    f" {', '.join(sorted(class_keys()))}"
                )
            elif class_keys()[key] == "limits":
                values.setdefault(key, []).append(value)
            elif key in values:
                faults.append(f"{where}: {match[1]} has {key} twice; keep one of them")
            else:
                values[key] = value
        classes.append(NamedClass(name=match[1], values=values))
    names = [named.name for named in classes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        faults.append(f"{where}: {twice} is given twice; give each class another name")
    if len(classes) == 1 and not faults:
        faults.append(f"{where}: {names[0]} is the only class; give two or more, or none")
    InputErrors.raise_if(faults)
    return tuple(classes)


def class_keys() -> dict[str, str]:
    """The keys of a class, each with its branch of a scenario."""
    keys = {leaf.name: leaf.path[0] for leaf in leaves() if leaf.path[0] in OF_A_CLASS}
    return keys | dict.fromkeys(ALSO, "") | {"share": "demand"}


def by_class(scenario: ScenarioLike, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """A scenario for each class that a question names, with everything else as it says; none where
    it names no classes in that form.

    The first class has priority 0, the next one 1, unless a class says otherwise. ``share`` takes a
    part of the demand that is given for all. Raises InputErrors: classes that cannot be used.
    """
    document, source = document_of(scenario)
    flags = plain(arguments)
    texts = flags.pop("class", None) or flags.pop("classes", None)
    if texts is None:
        search = document.get("search")
        search = dict(search) if isinstance(search, Mapping) else {}
        texts = search.pop("class", None) or search.pop("classes", None)
        document = {**document, "search": search} if texts is not None else document
    if texts is None:
        return ()
    if isinstance(texts, str) and _NAMED.match(texts) is None:
        raise InputError(
            f"{option('class')}: '{texts}' is for tonnage simulate; to size classes write each"
            f" with its load, such as {option('class')} {NAMED_EXAMPLE}"
        )
    prices = flags.pop("price", None)
    whole = flat(document_of(scenario_of(displaced(document, flags), flags, source))[0])
    scenarios, by_name = [], {leaf.name: leaf for leaf in leaves()}
    for place, named in enumerate(named_classes(texts)):
        values = {key: _value(by_name.get(key), key, text) for key, text in named.values.items()}
        rest = {name: value for name, value in whole.items() if not _replaced(name, values)}
        if (share := values.pop("share", None)) is not None:
            rest |= _shared(rest, share, named.name)
        merged = {**rest, "priority": place, "title": named.name, **values}
        merged |= {} if prices is None else {"price": prices}
        scenarios.append(merged)
    return tuple(scenarios)


def _value(leaf: Leaf | None, key: str, text: Any) -> Any:
    """The value of a key. Raises InputError: no number where one is needed."""
    where = f"{option('class')}: {key}"
    if leaf is None:
        return _share(text.removesuffix("%"), where) if "%" not in text else _percent(text, where)
    if isinstance(text, list) or leaf.number is None:
        return text
    number = leaf.read(text)
    if number is None:
        raise InputError(f"{where}: '{text}' is not a number; write such as {key}=20")
    return number


def _percent(text: str, where: str) -> float:
    number = number_of(text.rstrip("% "))
    return _share("" if number is None else str(number / 100), where)


def _replaced(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a class says for itself what a leaf of the whole says, or another way to say it."""
    gone = {displaced_key for key in arguments for displaced_key in DISPLACES.get(key, ())}
    says_load = any(class_keys().get(key) == "demand" and key != "share" for key in arguments)
    loads = says_load and class_keys().get(name) == "demand" and name != "profile"
    waits_for = (
        "requests" in arguments and class_keys().get(name) == "limits"
    )  # nobody waits for a job
    return name in arguments or name in gone or loads or waits_for


def _shared(rest: Mapping[str, Any], share: float, name: str) -> dict[str, Any]:
    """The demand of a class that has a share of all requests."""
    number = next((key for key in SHARED if rest.get(key) is not None), None)
    if number is not None:
        return {number: rest[number] * share}
    profile = rest.get("profile")
    if profile is None:
        raise InputError(
            f"{option('class')}: {name} has a share of a load that is not given; add such as"
            f" {option('peak_rps')} 100, or write peak_rps in place of share"
        )
    hours = profile_hours(profile, option("profile"))
    return {"profile": [hour * share for hour in hours]}


def classes_of(text: Many | None) -> tuple[TrafficClass, ...]:
    """Read "chat 0.7 ttft=1s, batch 0.3": classes with their shares, the highest priority first,
    and a limit on TTFT; or a list of "chat:share=0.7,ttft=1s". Raises InputError.
    """
    if text is None:
        return ()
    where = option("classes")
    texts = [str(text)] if isinstance(text, str | int | float) else [str(part) for part in text]
    if all(map(_NAMED.match, texts)):
        classes = [_simulated(named) for named in named_classes(texts)]
    else:
        classes = [_written(part) for part in ",".join(texts).split(",")]
    if (
        len({traffic_class.name for traffic_class in classes}) < len(classes)
        or len(classes) > MOST_CLASSES
    ):
        raise InputError(
            f"{where}: '{', '.join(texts)}' has a class twice, or more than {MOST_CLASSES} of them;"
            f" write for example {EXAMPLE}"
        )
    total = math.fsum(traffic_class.share for traffic_class in classes)
    if abs(total - 1) > 1e-6:
        raise InputError(
            f"{where}: the shares of '{', '.join(texts)}' sum to {total:g}; write shares of the"
            " requests that sum to 1"
        )
    return tuple(
        replace(traffic_class, share=traffic_class.share / total) for traffic_class in classes
    )


def _written(part: str) -> TrafficClass:
    """Read "chat 0.7 ttft=1s"."""
    where, words = option("classes"), part.split()
    if len(words) not in (2, 3) or (len(words) == 3 and not words[2].lower().startswith("ttft=")):
        raise InputError(
            f"{where}: '{part.strip()}' is not a class; write name, share and a limit on the"
            f" first token, such as {EXAMPLE}"
        )
    ttft_s = None if len(words) == 2 else parse_duration(words[2][len("ttft=") :], where)
    return TrafficClass(name=words[0], share=_share(words[1], where), ttft_s=ttft_s)


def _simulated(named: NamedClass) -> TrafficClass:
    """A class of one load, of which ``simulate`` takes share and limit. Raises InputError."""
    further = next((key for key in named.values if key not in ("share", "ttft")), None)
    limits = named.values.get("ttft", [])
    if further is not None or "share" not in named.values or len(limits) > 1:
        raise InputError(
            f"{option('classes')}: {named.name}: a class of a simulation has share and one ttft;"
            f" write such as {named.name}:share=0.7,ttft=1s"
        )
    seconds = [parse_duration(limit, option("classes")) for limit in limits]
    share = _value(None, "share", named.values["share"])
    return TrafficClass(name=named.name, share=share, ttft_s=seconds[0] if seconds else None)


def _share(text: str, where: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(
            f"{where}: '{text}' is not a share of the requests; write a number above 0, at most 1"
        )
    return share


def with_classes(
    workloads: Sequence[Workload],
    traffic_classes: Many | None,
    knobs: EngineKnobs,
    limits: Slo,
    *,
    alone: bool,
    drafted: bool,
) -> tuple[Workload, ...]:
    """Workloads whose requests have these classes; with deadlines and no classes, all have the
    tightest limit on the TTFT.

    Raises InputError: classes that cannot be, or that are not simulated with the rest of the
    question.
    """
    classes = classes_of(traffic_classes)
    if not classes and not knobs.ranks:
        return tuple(workloads)
    needing = option("shed") if knobs.shed else option("queue_order")
    if not classes:
        seconds = [limit.seconds for limit in limits if limit.metric == "ttft"]
        if knobs.queue_order == "priority":
            raise InputError(
                f"{option('queue_order')}: priority goes by class; give {option('classes')}"
                f" {EXAMPLE}"
            )
        if not seconds:
            raise InputError(
                f"{needing}: needs a limit on the first token; give {option('ttft')} p95<=1s, or"
                f" {option('classes')}"
            )
        classes = (TrafficClass(name="all", share=1.0, ttft_s=min(seconds)),)
    elif (knobs.shed or knobs.queue_order == "deadline") and all(
        traffic_class.ttft_s is None for traffic_class in classes
    ):
        raise InputError(
            f"{needing}: none of the classes has a limit on its first token; write such as"
            f" {EXAMPLE}"
        )
    if not alone:
        whose = ", ".join(option(name) for name in ("classes", "queue_order", "shed"))
        raise InputError(
            f"{whose}: classes are simulated on one instance by itself so far, and without"
            " sessions; leave the others out"
        )
    for workload in workloads:
        outputs = (workload.osl if workload.pairs is None else workload.pairs.lengths()[1]).mean
        plain = is_for_reference(knobs, drafted=drafted, shares=workload.shares)
        if plain and workload.requests * outputs > MOST_LENGTH:
            raise InputError(
                f"{option('requests')}: {workload.requests:,} with {outputs:,.0f} output tokens"
                f" each are more than the {MOST_LENGTH:,} for which the readable simulator runs"
                " priorities and deadlines with speculative decoding or shared prompts; ask for"
                " fewer"
            )
    return tuple(replace(workload, classes=classes) for workload in workloads)
