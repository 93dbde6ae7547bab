"""``tonnage completion``: what a shell needs to complete verbs and flags."""

from __future__ import annotations

import sys
from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the completion of a shell, to be written where it looks for it, such as ~/.local/share/bash-completion/completions/tonnage.

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from tonnage.cli.main import app

    sys.stdout.write(app.generate_completion(prog_name="tonnage", shell=shell).rstrip() + "\n")
