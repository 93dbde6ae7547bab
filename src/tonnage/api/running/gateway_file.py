"""The settings of a gateway from a YAML file, which is read again when the gateway gets SIGHUP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.running.gateway import gateway_settings
from tonnage.errors import InputError, InputErrors, option
from tonnage.spec.typed_values import FORBID, parse_yaml, read_as

if TYPE_CHECKING:
    from tonnage.gateway.keys import Key
    from tonnage.gateway.settings import Settings

SHA256_DIGITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """A key, as a file names it.

    Attributes:
        name: of the key, in logs and metrics.
        sha256: of the key, in 64 hexadecimal digits; the key itself stands nowhere.
        requests_per_minute, tokens_per_minute, concurrency: limits; none if not given.
    """

    name: str
    sha256: str
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrency: int = 0

    __pydantic_config__ = FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFile:
    """What a file may say; every key is a flag of the command with the same meaning, but for keys and aliases.

    Attributes:
        backends, plan, plan_host, policy, max_in_flight, max_body_mb, first_byte_timeout, idle_timeout, seed, access_log, tls_cert,
            tls_key, backend_ca, verify_backends, workers, hedge_after, host, port: as in ``gateway_settings``.
        keys: who may ask.
        aliases: further names of models.
    """

    backends: tuple[str, ...] = ()
    plan: str | None = None
    plan_host: tuple[str, ...] = ()
    policy: str | None = None
    max_in_flight: int | None = None
    max_body_mb: int | None = None
    first_byte_timeout: float | None = None
    idle_timeout: float | None = None
    seed: int | None = None
    access_log: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    backend_ca: str | None = None
    verify_backends: bool | None = None
    workers: int | None = None
    hedge_after: str | None = None
    host: str | None = None
    port: int | None = None
    keys: tuple[KeyEntry, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)

    __pydantic_config__ = FORBID


def gateway_from(path: str | Path, given: Mapping[str, Any]) -> Settings:
    """The settings in a file.

    Args:
        path: of the file.
        given: arguments of ``gateway_settings`` that stand in place of the file's.

    Raises:
        InputError: anything that cannot be used, each fault in one line with its place.
    """
    said = read_as(GatewayFile, _values(Path(path)), str(path), InputErrors)
    names = [one.name for one in fields(said) if one.name not in ("backends", "keys", "aliases")]
    values = {name: getattr(said, name) for name in names if getattr(said, name) is not None}
    if {"backends", "plan"} & set(given):  # a flag of either kind stands in place of both
        values = {name: value for name, value in values.items() if not name.startswith("plan")}
    else:
        values["backends"] = said.backends
    values |= {"keys": [_key(entry, path) for entry in said.keys], "aliases": said.aliases}
    _check_names([entry.name for entry in said.keys], path)
    return gateway_settings(**{**values, **given})


def _values(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{option('config')}: {path} cannot be read ({error})") from None
    return parse_yaml(text, str(path)) or {}


def _key(entry: KeyEntry, path: str | Path) -> Key:
    from tonnage.gateway.keys import Key

    try:
        digest = bytes.fromhex(entry.sha256)
    except ValueError:
        digest = b""
    if len(entry.sha256) != SHA256_DIGITS or 2 * len(digest) != SHA256_DIGITS:
        raise InputError(f"{path}: keys: {entry.name}: sha256 is not {SHA256_DIGITS} hexadecimal digits; make it with sha256sum")
    limits = {name: getattr(entry, name) for name in ("requests_per_minute", "tokens_per_minute", "concurrency")}
    for name, value in limits.items():
        if value < 0:
            raise InputError(f"{path}: keys: {entry.name}: {name}: {value} is not possible; write 1 or more, or leave it out")
    return Key(name=entry.name, sha256=digest, **limits)


def _check_names(names: list[str], path: str | Path) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: keys: two are called '{twice}'; give each a name of its own")
