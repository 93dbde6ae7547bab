"""The fitted terms that the package ships: ``coefficients/terms.json``, read once and strictly.

A key that no fitted term allows (``perf.fitted_terms``) is refused with its path, and so is a number that is none.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from tonnage.errors import DataErrors
from tonnage.perf.calibrated_terms import overlaid
from tonnage.perf.coefficient_files import content
from tonnage.perf.fitted_terms import known_keys, terms_by_key, vocabulary
from tonnage.perf.formats import FITTED
from tonnage.spec.typed_values import FORBID, read_as

if TYPE_CHECKING:
    from tonnage.spec.deployment import Deployment

Numbers = dict[str, float]
Texts = dict[str, str]

AGAIN = "reinstall, or write it again with ./fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRows:
    """The GPUs that an engine's rows cover, and what is said of it on other GPUs."""

    __pydantic_config__ = FORBID

    gpus: tuple[str, ...]
    elsewhere: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Where the terms come from, in words.

    Attributes:
        date: of the fit.
        architectures, engines, formats: what stands behind generations, engines and formats that are not fitted.
        rows: what each engine was fitted on.
        engine_rows: the GPUs among them.
        experts, latent: by engine, the rows of experts and of latent attention.
        gpus: by GPU whose generation was fitted as a whole, its points of 2026.
        models: those that rows are of.
        front_end: engines whose seconds per streamed token were chosen by rows.
    """

    __pydantic_config__ = FORBID

    date: str
    architectures: Texts
    engines: Texts
    rows: Texts
    formats: Texts
    engine_rows: dict[str, EngineRows] = field(default_factory=dict)
    experts: dict[str, int] = field(default_factory=dict)
    latent: dict[str, int] = field(default_factory=dict)
    front_end: tuple[str, ...] = ()
    gpus: dict[str, int] = field(default_factory=dict)
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsFile:
    """``terms.json`` as it is written; ``report`` is for people. The groups are those of ``perf.term_groups``."""

    __pydantic_config__ = FORBID

    shared: Numbers
    architectures: dict[str, Numbers]
    gpus: dict[str, Numbers]
    siblings: Texts
    links: dict[str, Numbers]
    engines: dict[str, Numbers]
    formats: dict[str, Numbers]
    origins: Origins
    report: dict[str, Any] = field(default_factory=dict)


@cache
def shipped() -> dict[str, Any]:
    """The terms that the package ships: the content of ``coefficients/terms.json``.

    Raises:
        DataError: the file is missing, is no JSON, or holds what it may not; one line for each fault.
    """
    return checked(content("terms.json", AGAIN), "perf/coefficients/terms.json")


def checked(document: dict[str, Any], where: str) -> dict[str, Any]:
    """The content of a file of terms, as it is, once everything in it is known to be right.

    Raises:
        DataErrors: unknown keys, and values of another kind; one line each.
    """
    read_as(TermsFile, document, where)
    words = vocabulary(document["architectures"], {*document["formats"], *FITTED})
    faults = []
    for group, owner, key, term in terms_by_key(document, words):
        path = f"{where}: {'.'.join(part for part in (group, owner, key) if part)}"
        number = document[group][owner][key] if owner else document[group][key]
        if term is None:
            near = difflib.get_close_matches(key, known_keys(group), n=2, cutoff=0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else "every term is described in perf/fitted_terms.py"
            faults.append(f"{path}: unknown key; {hint}")
        elif not 0 <= number < math.inf:
            faults.append(f"{path}: {number} is no number from 0")
    DataErrors.raise_if(faults)
    return document


def terms_of(deployment: Deployment) -> dict[str, Any]:
    """The shipped terms, with the deployment's calibration over them."""
    calibration = deployment.calibration
    return shipped() if calibration is None else overlaid(shipped(), calibration, deployment.gpu.name)
