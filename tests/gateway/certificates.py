"""Certificates made by openssl for one test."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def certificate(folder: Path, name: str = "one", subject: str = "IP:127.0.0.1") -> Path:
    """A file with a new certificate, signed by itself, and its key.

    Args:
        folder: where it is made.
        name: of the file.
        subject: whom it names, as openssl's subjectAltName.
    """
    key, path = folder / f"{name}.key", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command += ["-subj", f"/CN={name}", "-addext", f"subjectAltName={subject}", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


def trusting(path: Path) -> ssl.SSLContext:
    """A client that trusts this certificate and no other."""
    return ssl.create_default_context(cafile=path)


def showing(path: Path) -> ssl.SSLContext:
    """A server that shows it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context
