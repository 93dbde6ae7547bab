"""TLS on both sides of a gateway: its own certificate, and whom it trusts among its backends."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tonnage.errors import InputError, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files in PEM.

    Attributes:
        certificate: of the gateway, with the certificates between it and its authority; None where clients speak plain HTTP.
        key: its private key, without a password; None where the certificate's file holds it.
        backend_ca: the authorities of the backends' certificates; None for those of the system.
        verify: whether the certificates and names of https backends are checked.
    """

    certificate: Path | None = None
    key: Path | None = None
    backend_ca: Path | None = None
    verify: bool = True

    def server_context(self) -> ssl.SSLContext | None:
        """How clients are met: TLS 1.2 or newer, HTTP/1.1; None without a certificate.

        Raises:
            InputError: a file cannot be read or holds something else.
        """
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Read the certificate again; connections that are opened from now on get it.

        Raises:
            InputError: as above.
        """
        if self.certificate is None:
            return
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (OSError, ValueError) as error:
            files = str(self.certificate) if self.key is None else f"{self.certificate} and {self.key}"
            raise InputError(
                f"{option('tls_cert')}: {files} cannot be used ({_why(error)}); give a certificate and its key in PEM, without a password"
            ) from None

    def backend_context(self) -> ssl.SSLContext:
        """How https backends are met: their certificates and names are checked, unless that was turned off.

        Raises:
            InputError: the file of authorities cannot be read or holds no certificate.
        """
        try:
            context = ssl.create_default_context(cafile=self.backend_ca)
        except OSError as error:
            raise InputError(
                f"{option('backend_ca')}: {self.backend_ca} cannot be used ({_why(error)}); give certificates in PEM"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _no_password() -> str:
    """Instead of asking at the terminal."""
    raise ValueError("the key has a password")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "no certificate, key or authority that fits is in it"
    return getattr(error, "strerror", None) or str(error)
