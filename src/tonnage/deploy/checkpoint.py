"""The checkpoint that an engine loads: the model's published one where that has the plan's number format."""

from __future__ import annotations

from tonnage.errors import InputError, option
from tonnage.spec.catalog import find_model
from tonnage.spec.catalog.published import hub_names
from tonnage.spec.precision import find_precision

HALF = ("fp16", "bf16")
TUNED = ("-instruct", "-it", "-chat")


def checkpoint_of(model: str, precision: str, asked: str | None) -> str:
    """The checkpoint of a model in a number format.

    Args:
        model: catalog id, or path of a config.json.
        precision: the plan's number format.
        asked: what the caller named; None for the published one.

    Raises:
        InputError: none was named, and none is published in that format as far as the catalog knows.
    """
    if asked is not None:
        if not asked.strip() or asked.startswith("-") or any(letter.isspace() for letter in asked.strip()):
            raise InputError(f"{option('checkpoint')}: '{asked}' is no name of a checkpoint; write owner/name or a folder")
        return asked.strip()
    names = hub_names(model)
    wanted = find_precision(precision).weight_format
    released = find_model(model).released.partition("+")[0]
    if not names:
        raise InputError(f"{option('checkpoint')}: no published name of {model} is known; name the checkpoint in {wanted}")
    if released != wanted and not (released in HALF and wanted in HALF):
        told = f"{names[0]} is published in {released}" if released else f"the format of {names[0]} is not known"
        raise InputError(f"{option('checkpoint')}: the plan runs {model} in {wanted}, and {told}; name a checkpoint in {wanted}")
    return next((name for name in names if name.lower().endswith(TUNED)), names[0])
