"""``infer`` of the v2 protocol (KServe's open inference protocol): what Triton, MLServer and KServe's servers answer for any model.

A request holds tensors of so many items. The inputs' names, types and shapes are what the server's metadata says, or what the caller
says where it leaves lengths open. Tensors travel as JSON, as bytes behind the JSON (the binary tensor extension), or in a message of gRPC.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.bench.grpc import infer_message
from tonnage.errors import InputError, option
from tonnage.spec.service import Tensor
from tonnage.spec.service_file import read_tensor

MOST_BODY = 256_000_000
"""Bytes of a request."""

KINDS_OF_NUMPY = {
    "BOOL": "bool",
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """Makes the bodies of inferences: random values, the same for every request of so many items.

    Attributes:
        inputs: of the model, with the dimensions of one item.
        batched: whether items are the first dimension; a model without batches takes one.
        binary: whether values travel as bytes.
        called: the model's name where requests are messages of gRPC; "" over HTTP.
        seed: of the values.
    """

    inputs: tuple[Tensor, ...]
    batched: bool = True
    binary: bool = False
    called: str = ""
    seed: int = 0
    counter: None = None
    characters: float = 1.0
    exact: bool = True
    _made: dict[int, tuple[bytes, bytes]] = field(default_factory=dict, compare=False)

    def text(self, number: int, tokens: int) -> str:
        """No text: a request is its tensors."""
        return ""

    def body(self, items: int, extra: dict[str, Any]) -> tuple[bytes, bytes]:
        """The header lines that a request of so many items needs, and its body.

        Raises:
            InputError: several items for a model without batches, or a body beyond ``MOST_BODY``.
        """
        if items not in self._made:
            if items > 1 and not self.batched:
                raise InputError(f"{option('items')}: {items}: the model takes no batches; leave it out")
            self._made[items] = self._body(items, extra)
        return self._made[items]

    def _body(self, items: int, extra: dict[str, Any]) -> tuple[bytes, bytes]:
        import numpy as np

        rng = np.random.default_rng(self.seed)
        parts, described = [], []
        for tensor in self.inputs:
            shape = [items, *tensor.dims] if self.batched else list(tensor.dims)
            if int(np.prod(shape)) * 4 > MOST_BODY:
                raise InputError(f"{option('items')}: {items} items of '{tensor.name}' are more than {MOST_BODY:,} bytes; ask for fewer")
            values = _values(tensor.data_type, shape, rng)
            one: dict[str, Any] = {"name": tensor.name, "shape": shape, "datatype": tensor.data_type}
            if self.binary or self.called:
                parts.append(_bytes_of(values))
                one["parameters"] = {"binary_data_size": len(parts[-1])}
            else:
                one["data"] = values.ravel().tolist()
            described.append(one)
        if self.called:
            return b"", infer_message(self.called, described, parts)
        head = json.dumps({"inputs": described, **extra}, separators=(",", ":")).encode()
        if not self.binary:
            return b"", head
        return b"Inference-Header-Content-Length: %d\r\n" % len(head), head + b"".join(parts)


def _values(data_type: str, shape: list[int], rng: Any) -> Any:
    import numpy as np

    if data_type == "BYTES":
        return np.full(shape, "tonnage", dtype=object)
    kind = np.dtype(KINDS_OF_NUMPY[data_type])
    if kind.kind == "f":
        return np.round(rng.random(shape), 3).astype(kind)
    return rng.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)


def _bytes_of(values: Any) -> bytes:
    """Row by row in little-endian; texts each behind their length in four bytes."""
    if values.dtype != object:
        return bytes(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return b"".join(len(text).to_bytes(4, "little") + text.encode() for text in values.ravel())


def tensors(page: str, metadata: str, *, written: tuple[str, ...], binary: bool, seed: int, called: str = "") -> Tensors:
    """The inputs of a model: as ``written`` ("pixels=FP32[3,224,224]", the dimensions of one item), the rest as the server describes them.

    Args:
        page: address of the model's metadata, for messages.
        metadata: the text there; "" where there is none.
        binary: whether values travel as bytes.
        called: the model's name where requests are messages of gRPC.

    Raises:
        InputError: no such model, no inputs known, or a length that neither says.
    """
    where = option("tensor")
    given = dict(_written(text) for text in written)
    described, batched = _described(metadata)
    unknown = [name for name in given if described and name not in described]
    if unknown:
        raise InputError(f"{where}: '{unknown[0]}' is no input of the model; it has {', '.join(described)}")
    inputs = tuple((described | given).values())
    if not inputs:
        raise InputError(f"{where}: {page} describes no inputs; write them, such as {where} 'pixels=FP32[3,224,224]'")
    for one in inputs:
        if any(length < 0 for length in one.dims):
            raise InputError(f"{where}: '{one.name}' has an open length; write one, such as '{one.name}={one.data_type}[128]'")
        if one.data_type not in KINDS_OF_NUMPY and one.data_type != "BYTES":
            raise InputError(f"{where}: '{one.name}' is {one.data_type}, of which no values are made; send another type")
    return Tensors(inputs=inputs, batched=batched or bool(given), binary=binary, called=called, seed=seed)


def _written(text: str) -> tuple[str, Tensor]:
    name, _, rest = text.partition("=")
    tensor = read_tensor(name, rest)
    if not name or tensor is None:
        raise InputError(
            f"{option('tensor')}: '{text}' is no tensor; write its name, type and the dimensions of one item: x=FP32[3,224,224]"
        )
    return name, tensor


def _described(metadata: str) -> tuple[dict[str, Tensor], bool]:
    """The inputs that the server's metadata has, and whether their first dimension is that of items."""
    try:
        document = json.loads(metadata or "{}")
        rows = [(str(one["name"]), str(one["datatype"]), tuple(map(int, one["shape"]))) for one in document.get("inputs") or ()]
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}, True
    found = {name: Tensor(name=name, data_type=kind, dims=shape) for name, kind, shape in rows}
    batched = all(one.dims and one.dims[0] < 0 for one in found.values())
    return ({name: replace(one, dims=one.dims[1:]) for name, one in found.items()} if batched else found), batched
