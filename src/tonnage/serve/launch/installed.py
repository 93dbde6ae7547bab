"""Where the command of an engine is."""

from __future__ import annotations

import shutil
from pathlib import Path

from tonnage.errors import InputError, option

COMMANDS = {"vllm": "vllm", "tensorrt-llm": "trtllm-serve", "sglang": "python3", "triton": "tritonserver", "nim": "docker"}
"""The program that starts each family of engines; SGLang is a module of its environment's Python."""

PACKAGES = {"sglang": "sglang"}
"""The package that must stand beside the Python of an environment."""


def found_command(family: str, where: Path | None) -> str:
    """The path of the program that starts an engine; "" where it is not installed.

    Args:
        family: of the engine.
        where: folder of the engine's environment, or of its programs; None to look along the PATH.
    """
    program = COMMANDS[family]
    if where is None:
        found = shutil.which(program)
    else:
        found = shutil.which(program, path=f"{where / 'bin'}:{where}") or shutil.which("python", path=str(where / "bin"))
        found = found if found and (family == "sglang" or not found.endswith("python")) else None
    if found is None or (family in PACKAGES and not _has_package(Path(found), PACKAGES[family])):
        return ""
    return found


def _has_package(python: Path, package: str) -> bool:
    """Whether a package lies in the environment of a Python, without running it."""
    return any((python.parent.parent / "lib").glob(f"python3*/site-packages/{package}/__init__.py"))


def needed_command(family: str, where: Path | None) -> str:
    """The same, refused where it is not installed.

    Raises:
        InputError: naming the program, and how to say where it is.
    """
    found = found_command(family, where)
    if not found:
        place = f"in {where}" if where is not None else "along the PATH"
        program = "the package sglang" if family == "sglang" else f"'{COMMANDS[family]}'"
        raise InputError(
            f"{option('engine')}: {family} is not installed: there is no {program} {place}; install it, or give the folder of its "
            f"environment as {option('engine_path')}"
        )
    return found
