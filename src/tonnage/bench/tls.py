"""Whom an encrypted connection trusts."""

from __future__ import annotations

import ssl
from pathlib import Path


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """A context that checks certificates and names, by the system's authorities or by those of a file in PEM.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    return ssl.create_default_context(cafile=ca_file)
