"""The names under which a model's checkpoints are published, among the spellings that the catalog knows."""

from __future__ import annotations

from tonnage.spec.catalog import entries
from tonnage.spec.catalog.lookup import find_model


def hub_names(model: str) -> tuple[str, ...]:
    """The names "owner/name" of a model, in the catalog's order; empty for a model that is not in it.

    Raises:
        UnknownName: no such model.
    """
    shelf = entries.model_shelf()
    found = find_model(model).name
    return tuple(alias for alias, name in shelf.aliases.items() if name == found and "/" in alias and not alias.startswith("meta/"))
