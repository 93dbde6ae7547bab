"""How long a context a model file allows."""

from __future__ import annotations

import json
from pathlib import Path

from tonnage.errors import InputError, option

KEY = "max_position_embeddings"


def context_of(model: Path) -> int:
    """Prompt plus output tokens at most, as a GGUF file or the config.json of a folder says.

    Raises:
        InputError: no such file, or one that does not say it.
    """
    if not model.exists():
        raise InputError(f"{option('model')}: {model} does not exist; give a GGUF file, or a folder with a model in OpenVINO's format")
    try:
        found = _of_folder(model) if model.is_dir() else _of_gguf(model)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{option('model')}: {model} cannot be read as a model ({error})") from None
    if found < 1:
        raise InputError(f"{option('model')}: {model} does not say how long a context it allows; give {option('max_model_len')}")
    return found


def _of_folder(model: Path) -> int:
    said = json.loads((model / "config.json").read_text(encoding="utf-8"))
    inner = said.get("text_config") or {}
    return int(said.get(KEY) or inner.get(KEY) or 0)


def _of_gguf(model: Path) -> int:
    from gguf import GGUFReader

    fields = GGUFReader(model).fields
    architecture = str(fields["general.architecture"].contents())
    field = fields.get(f"{architecture}.context_length")
    return 0 if field is None else int(field.contents())
