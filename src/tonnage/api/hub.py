"""Reads a model from its repository at a hub: config.json, hf_quant_config.json and the size of the
weights, a few kB.

Its settings are those of the hub's own tools: ``HF_ENDPOINT``, ``HF_TOKEN`` (or the file at
``HF_TOKEN_PATH``), ``HF_HUB_OFFLINE``, and a revision behind "@". The files are kept in
``$XDG_CACHE_HOME/tonnage/hub``, laid out as the hub's own cache, from which repositories are read
as well; a kept revision needs no network. Whatever a hub does, it costs at most ``LIMIT_S`` seconds
and ``MOST_BYTES`` a file.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tonnage.errors import InputError
from tonnage.spec.config_json import MAX_FILE_BYTES, read_config
from tonnage.spec.model import Model
from tonnage.spec.precision import find_precision

LIMIT_S = 8.0  # Seconds that all files of a repository may take together
SOCKET_S = 4.0  # Seconds without a byte after which a connection is given up
MOST_BYTES = MAX_FILE_BYTES
INDEX_BYTES = 65_536  # Of an index of weights, which begins with their size
MOST_REDIRECTS = 4
# Share by which the weights as counted may differ from the sum in the index without a word
APART = 0.03

CONFIG, QUANTIZATION, INDEX, WEIGHTS = (
    "config.json",
    "hf_quant_config.json",
    "model.safetensors.index.json",
    "model.safetensors",
)
ABOUT = "tonnage-hub.json"  # further facts of a kept repository: the bytes of its weights

# why a repository was not read, by name, and why the hub itself could not be reached, by its
# address
_refused: dict[str, str] = {}


def read_from_hub(name: str, layout: str = "") -> Model | str:
    """The model of a repository, "owner/name" or "owner/name@revision"; or why there is none, as a
    clause.

    Raises UnsupportedModel, InputError: the repository's config.json cannot be read as a model.
    """
    repository, _, revision = name.partition("@")
    revision = revision or "main"
    folder, reason = _cached_folder(repository, revision), ""
    if folder is None:
        endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
        reason = (
            "the hub is not read (offline)"
            if _offline()
            else _refused.get(name) or _refused.get(endpoint) or ""
        )
        reason = reason or _fetch(endpoint, repository, revision, name)
        folder = None if reason else _cached_folder(repository, revision)
    if folder is None:
        place = _root() / _folder_of(repository) / "snapshots" / revision
        return (
            f"{reason}; download {endpoint}/{repository}/resolve/{revision}/{CONFIG} into {place},"
            " or give its path"
        )
    return _model(folder, repository, layout)


def _offline() -> bool:
    return any(
        os.environ.get(name, "").strip().lower() in ("1", "true", "yes", "on")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _root() -> Path:
    """The folder of what was read here."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tonnage" / "hub"


def _folder_of(repository: str) -> str:
    return f"models--{repository.replace('/', '--')}"


def _cached_folder(repository: str, revision: str) -> Path | None:
    """The folder of a repository in this cache or the hub's own; None where neither has its
    config.json.
    """
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    for root in (_root(), Path(os.environ.get("HF_HUB_CACHE") or home / "hub")):
        folder = root / _folder_of(repository)
        try:
            commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()[:100]
        except (OSError, ValueError):
            commit = revision
        if re.fullmatch(r"[\w.-]+", commit) and (folder / "snapshots" / commit / CONFIG).is_file():
            return folder / "snapshots" / commit
    return None


def _model(folder: Path, repository: str, layout: str) -> Model:
    """The model of a kept repository, with where it is from, and whether its weights are as large
    as its index says.
    """
    try:
        model = read_config(folder, layout)
    except InputError as error:
        raise type(error)(
            str(error).replace(str(folder / CONFIG), f"{CONFIG} of {repository}, from the hub")
        ) from None
    where = f"{CONFIG} of {repository}, revision {folder.name[:12]}, from the hub"
    model = replace(
        model,
        name=repository.rpartition("/")[2].lower(),
        repository=repository,
        source=model.source.replace(str(folder / CONFIG), where),
    )
    return replace(
        model,
        reading="; ".join(filter(None, (where, model.reading, _apart(model, folder / ABOUT)))),
    )


def _apart(model: Model, about: Path) -> str:
    """How far the counted weights are from the total in the repository's index; "" where they
    agree, or the index has no total.
    """
    from tonnage.api.question.deployment import deployment_of
    from tonnage.perf.images_and_adapters import encoder_bytes
    from tonnage.perf.memory import weight_bytes

    try:
        indexed = json.loads(about.read_text(encoding="utf-8"))["weight_bytes"]
        alone = deployment_of(model="llama-3.1-8b", gpu="b300", tp=1, engine="vllm")
        placed = replace(alone, model=model, precision=find_precision(model.usual_precision))
        counted = weight_bytes(placed) + encoder_bytes(placed)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, InputError):
        return ""
    if not isinstance(indexed, int) or indexed <= 0 or abs(counted / indexed - 1) <= APART:
        return ""
    return (
        f"its index says {indexed / 1e9:,.2f} GB of weights, {counted / 1e9:,.2f} GB are counted"
        f" ({counted / indexed - 1:+.0%})"
    )


def _fetch(endpoint: str, repository: str, revision: str, name: str) -> str:
    """Read a repository's files into the cache in a thread that is waited for so long and no
    longer; why not, or "".
    """
    files: dict[str, Any] = {}
    reader = threading.Thread(
        target=_read_all, args=(endpoint, repository, revision, files), daemon=True
    )
    reader.start()
    reader.join(LIMIT_S)
    files = dict(files)
    if CONFIG not in files:
        reason: str = (
            files.get("reason")
            or f"{urlsplit(endpoint).netloc} did not answer within {LIMIT_S:g} s"
        )
        _refused[endpoint if files.get("unreachable") or "reason" not in files else name] = reason
        return reason
    try:
        _write(repository, revision, files)
    except OSError as error:
        return f"what the hub says cannot be kept in {_root()}: {error.strerror}"
    return ""


def _write(repository: str, revision: str, files: dict[str, Any]) -> None:
    """Keep the files of one commit; each is whole or absent."""
    commit = files["commit"] or revision.replace("/", "-")
    folder = _root() / _folder_of(repository)
    texts = {
        f"snapshots/{commit}/{name}": files[name]
        for name in (QUANTIZATION, ABOUT, CONFIG)
        if name in files
    }
    for place, text in (texts | {f"refs/{revision}": commit.encode()}).items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_bytes(text)
        new.replace(path)


def _read_all(endpoint: str, repository: str, revision: str, files: dict[str, Any]) -> None:
    """Fill ``files`` with the bytes of each file by name, the "commit", or the "reason" why there
    are none.
    """
    import urllib.error
    from http import HTTPStatus
    from http.client import HTTPException

    where = f"{endpoint}/{quote(repository)}/resolve/{quote(revision, safe='')}"
    host = urlsplit(endpoint).netloc
    try:
        text, headers = _get(f"{where}/{CONFIG}", MOST_BYTES)
        commit = str(headers.get("X-Repo-Commit") or "")
        read = {"commit": commit if re.fullmatch(r"[\w-]{1,64}", commit) else "", CONFIG: text}
        if not isinstance(json.loads(text), dict):
            raise ValueError("is no JSON object")
    except urllib.error.HTTPError as error:
        error.close()
        token = (
            "request access on its page"
            if _token()
            else "request access on its page, and set HF_TOKEN"
        )
        reasons = {
            401: f"{host} has no such repository, or it is gated: {token}",
            403: f"{repository} is gated at {host}: {token}",
        }
        files["reason"] = reasons.get(
            error.code, f"{host} has no {CONFIG} of {repository} at {revision} (HTTP {error.code})"
        )
        return
    except (ValueError, RecursionError, HTTPException) as error:
        files["reason"] = (
            f"what {host} sent as {CONFIG} of {repository} is not used:"
            f" {' '.join(str(error).split())[:120]}"
        )
        return
    except OSError as error:
        files.update(
            reason=f"{host} cannot be reached ({' '.join(str(error).split())[:80]})",
            unreachable=True,
        )
        return
    try:
        read[QUANTIZATION] = _quantization(where)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != HTTPStatus.NOT_FOUND:
            files["reason"] = (
                f"{host} does not say the number format of {repository} ({QUANTIZATION}: HTTP"
                f" {error.code})"
            )
            return
    except (OSError, ValueError, RecursionError, HTTPException) as error:
        files["reason"] = (
            f"{host} does not say the number format of {repository} ({QUANTIZATION}:"
            f" {' '.join(str(error).split())[:80]})"
        )
        return
    files.update(read)  # an index that comes too late is no reason to refuse the rest
    try:
        files[ABOUT] = _about(where)
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError, RecursionError, HTTPException):
        return


def _quantization(where: str) -> bytes:
    text, _ = _get(f"{where}/{QUANTIZATION}", MOST_BYTES)
    json.loads(text)
    return text


def _about(where: str) -> bytes:
    """The bytes of all weights: of the index, or of the only file."""
    import urllib.error

    try:
        text, _ = _get(f"{where}/{INDEX}", INDEX_BYTES, begins=True)
        match = re.search(rb'"total_size"\s*:\s*(\d{1,16})\b', text)
        size = match[1].decode() if match else 0
    except urllib.error.HTTPError as error:
        error.close()
        _, headers = _get(f"{where}/{WEIGHTS}", 0, begins=True)
        size = headers.get("X-Linked-Size") or headers.get("Content-Length") or 0
    return json.dumps({"weight_bytes": int(size)}).encode()


def _token() -> str:
    """The token of the hub's own tools; "" where there is none."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    token = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    if not token:
        try:
            token = Path(os.environ.get("HF_TOKEN_PATH") or home / "token").read_text(
                encoding="utf-8"
            )
        except (OSError, ValueError):
            token = ""
    token = token.strip()
    return token if token.isascii() and token.isprintable() and " " not in token else ""


def _get(address: str, most_bytes: int, *, begins: bool = False) -> tuple[bytes, Any]:
    """Fetch at most ``most_bytes`` bytes of an address, and its headers; with ``begins`` the first
    bytes are enough, and with no bytes the headers alone.

    The token goes to the host of the address alone, and no redirect leads from https to http.

    Raises OSError (HTTPError among them): no answer, or one that is an error; ValueError: more
    bytes, or no address.
    """
    import urllib.request

    class Redirects(urllib.request.HTTPRedirectHandler):
        max_redirections = max_repeats = MOST_REDIRECTS

        def redirect_request(  # noqa: PLR0917 its signature
            self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Any:
            new, old = urlsplit(newurl), urlsplit(req.full_url)
            if new.scheme not in ("https", old.scheme):
                raise ValueError(f"it leads to {new.scheme}:")
            redirect = super().redirect_request(req, fp, code, msg, headers, newurl)
            if redirect is not None and (new.scheme, new.netloc) != (old.scheme, old.netloc):
                redirect.remove_header("Authorization")
            return redirect

    if urlsplit(address).scheme not in ("http", "https"):
        raise ValueError("HF_ENDPOINT is no address that begins with https://")
    headers = {"User-Agent": "tonnage", "Accept-Encoding": "identity"}
    headers |= {"Range": f"bytes=0-{most_bytes - 1}"} if begins and most_bytes else {}
    if token := _token():
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(
        address, headers=headers, method="GET" if most_bytes else "HEAD"
    )
    ends, text = time.monotonic() + LIMIT_S, b""
    with urllib.request.build_opener(Redirects).open(request, timeout=SOCKET_S) as response:
        while (
            len(text) <= most_bytes
            and time.monotonic() < ends
            and (part := response.read1(most_bytes + 1 - len(text)))
        ):
            text += part
        if len(text) > most_bytes and not begins:
            raise ValueError(f"it is larger than {most_bytes:,} bytes")
        return text[:most_bytes], response.headers
