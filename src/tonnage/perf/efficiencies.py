"""What one deployment reaches of its datasheets, and its host's times: the terms that its coefficients are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tonnage.perf.attention import AttentionTerms, attention_terms
from tonnage.perf.experts import ExpertTerms, expert_terms
from tonnage.perf.host import HostTerms, host_terms
from tonnage.perf.links import LinkTerms, link_terms
from tonnage.perf.matrices import MatrixTerms, matrix_terms
from tonnage.perf.term_groups import groups_of

if TYPE_CHECKING:
    from tonnage.spec.deployment import Parallelism
    from tonnage.spec.hardware import Gpu
    from tonnage.spec.model import Model
    from tonnage.spec.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one (model, GPU, precision, parallelism, engine); those of attention by kind of layer, in the model's order."""

    matrices: MatrixTerms
    attention: tuple[AttentionTerms, ...]
    links: LinkTerms
    experts: ExpertTerms
    host: HostTerms


def resolve(terms: dict[str, Any], model: Model, gpu: Gpu, precision: Precision, parallelism: Parallelism, preset: str) -> Terms:
    """The terms of one deployment out of the groups of ``coefficients/terms.json``.

    Raises:
        DataError: there are no terms of that engine preset.
    """
    precision, tp, groups = gpu.executes(precision), parallelism.tp, groups_of(terms, gpu, preset)
    return Terms(
        matrices=matrix_terms(groups, model, precision),
        attention=tuple(attention_terms(groups, some.mixer, precision) for some in model.by_kind),
        links=link_terms(groups, tp),
        experts=expert_terms(groups, model, precision, parallelism.stage_gpus),
        host=host_terms(groups, model, precision, tp),
    )
