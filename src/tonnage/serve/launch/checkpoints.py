"""What is known of a checkpoint that is on this machine."""

from __future__ import annotations

from pathlib import Path

from tonnage.errors import InputError, option

COMPILED = ("*.engine", "*.plan")


def check_folder(text: str, *, where: str = "checkpoint") -> None:
    """Refuse a folder that is no checkpoint; names at a hub pass.

    Raises:
        InputError: it holds an engine that was compiled for one kind of GPU, or no ``config.json``.
    """
    path = Path(text)
    if not path.is_dir():
        if text.startswith(("/", "./", "../", "~")):
            raise InputError(f"{option(where)}: there is no folder {text}")
        return
    compiled = next((file.name for pattern in COMPILED for file in path.glob(pattern)), None)
    if compiled is not None:
        raise InputError(
            f"{option(where)}: {text} holds {compiled}, an engine that TensorRT compiled for one kind of GPU; give the checkpoint itself"
        )
    if not (path / "config.json").is_file():
        raise InputError(f"{option(where)}: {text} holds no config.json, so it is no checkpoint")


def folder_bytes(text: str) -> int:
    """Bytes of the weights in a folder; 0 for a name at a hub."""
    path = Path(text)
    return sum(file.stat().st_size for pattern in ("*.safetensors", "*.bin") for file in path.glob(pattern)) if path.is_dir() else 0
