"""Lines as people type them."""

from __future__ import annotations

from tonnage.cli.main import VERBS, _options, app

KNOWN = {verb: set(_options(app, verb)) for verb in VERBS}
