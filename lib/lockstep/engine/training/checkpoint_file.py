"""The bytes of a checkpoint: plain values and tensors behind a checksum, and nothing that could run.

    lockstep checkpoint, format 2\\n | length | description (JSON, compressed) | bytes of every tensor ... | BLAKE2b

The description holds every value but the tensors, of which it has type and shape, in the order of their bytes; a tensor
takes its own bytes, whatever memory it is a view of. The checksum is of everything before it. A pickle, such as torch's
own files are, would be larger, and reading a damaged one can fail in many ways, or not at all.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups.wire import bytes_of, tensor_of

FORMAT = 2
CONTENT = ("job", "model", "optimiser", "parts", "parameters", "buffers", "others", "cuts", "sync")
"""What every checkpoint holds."""
PARTS = frozenset({"workers", "ranks", "slices", "shards"})
_FIRST = b"lockstep checkpoint, format "
_LENGTH = struct.Struct("!Q")
_CHECKSUM_BYTES = 32


def packed_content(content: Any) -> Iterator[Any]:
    """The pieces of a file that holds `content`: None, numbers, texts, lists, tuples and dicts of them, and tensors.

    Raises TypeError for anything else.
    """
    tensors: list[Tensor] = []
    description = zlib.compress(json.dumps(_described(content, tensors)).encode())
    checksum = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    head = b"".join((_FIRST, str(FORMAT).encode(), b"\n", _LENGTH.pack(len(description)), description))
    checksum.update(head)
    yield head
    for tensor in tensors:
        piece = bytes_of(tensor.detach().cpu().contiguous()).data
        checksum.update(piece)
        yield piece
    yield checksum.digest()


def unpacked_content(data: bytes) -> Any:
    """The inverse of `packed_content`. Raises ValueError, which says what is wrong with a file of these bytes."""
    first, _, rest = data[: len(_FIRST) + 20].partition(b"\n")
    if not first.startswith(_FIRST) or not rest:
        raise ValueError("it is not one of Lockstep's, or of an earlier format")
    if first[len(_FIRST) :] != str(FORMAT).encode():
        written = first[len(_FIRST) :].decode(errors="replace")
        raise ValueError(f"it was written in format {written!r}, and this Lockstep reads format '{FORMAT}'")
    checksum = hashlib.blake2b(memoryview(data)[:-_CHECKSUM_BYTES], digest_size=_CHECKSUM_BYTES).digest()
    if checksum != data[-_CHECKSUM_BYTES:]:
        raise ValueError("its content does not match its checksum: it is damaged, or was cut off")
    try:
        return _content(data, len(first) + 1)
    except Exception as error:  # with a right checksum only somebody who means it gets here
        raise ValueError(f"its content makes no sense ({error})") from error


def misshapen(content: Any) -> str:
    """What is wrong with the structure of a checkpoint's content, whose checksum is right; empty if nothing is."""
    if not isinstance(content, dict) or not set(CONTENT) <= set(content):
        return f"it lacks some of {', '.join(CONTENT)}"
    for name, (fits, wanted) in _SHAPES.items():
        if name in content and not fits(content[name]):
            shown = " ".join(repr(content[name]).split())
            return f"its {name} is {shown[:60]}{'...' if len(shown) > 60 else ''}, not {wanted}"
    return ""


def _is_dict(value: Any, of: Any = object) -> bool:
    return isinstance(value, dict) and all(isinstance(n, str) and isinstance(each, of) for n, each in value.items())


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_whole(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_whole, value))


def _is_entry(value: Any) -> bool:
    """Name, kind, shape and type of a tensor (`lockstep.engine.replica.layout.Entry`)."""
    if not isinstance(value, list | tuple) or len(value) != 4:
        return False
    return all(isinstance(value[place], str) for place in (0, 1, 3)) and _are_whole(value[2])


def _is_flat(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 1 and value.dtype == torch.float32


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "job": (_is_dict, "values by name"),
    "model": (lambda value: isinstance(value, list) and all(map(_is_entry, value)), "a list of tensors"),
    "optimiser": (lambda value: _is_dict(value, str) and "class" in value, "a class and its settings"),
    "parts": (lambda value: _is_dict(value, int) and set(value) <= PARTS, f"numbers of {', '.join(sorted(PARTS))}"),
    "parameters": (_is_flat, "a vector of float32"),
    "buffers": (_is_flat, "a vector of float32"),
    "others": (lambda value: _is_dict(value, Tensor | None), "tensors by name"),
    "cuts": (lambda value: value is None or _are_whole(value), "numbers"),
    "sync": (lambda value: _is_dict(value) and _is_whole(value.get("step", 0)), "a state with a step from 0"),
    "epochs": (lambda value: isinstance(value, list) and all(map(_is_dict, value)), "a list of rows"),
    "data": (lambda value: isinstance(value, str), "a text"),
}


def _content(data: bytes, start: int) -> Any:
    (length,) = _LENGTH.unpack_from(data, start)
    begin = start + _LENGTH.size + length
    description = json.loads(zlib.decompress(data[start + _LENGTH.size : begin]))
    return _restored(description, _Tensors(np.frombuffer(data, np.uint8)[begin:-_CHECKSUM_BYTES]))


def _described(value: Any, tensors: list[Tensor]) -> Any:
    """`value` as JSON, with its tensors appended to `tensors`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape)]}
    if isinstance(value, dict):
        return {"dict": [[_described(name, tensors), _described(each, tensors)] for name, each in value.items()]}
    if isinstance(value, list | tuple):
        found = [_described(each, tensors) for each in value]
        return found if isinstance(value, list) else {"tuple": found}
    raise TypeError(f"a checkpoint holds numbers, texts and tensors, and can't hold a {type(value).__name__}")


def _restored(value: Any, tensors: _Tensors) -> Any:
    if isinstance(value, list):
        return [_restored(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tensor":
        return tensors.next(*held)
    if kind == "dict":
        return {_restored(name, tensors): _restored(each, tensors) for name, each in held}
    if kind == "tuple":
        return tuple(_restored(each, tensors) for each in held)
    raise ValueError(f"a value of unknown kind {kind!r}")


class _Tensors:
    """Tensors one after the other from the bytes that follow the description, each in memory of its own."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.place = data, 0

    def next(self, name: str, shape: list[int]) -> Tensor:
        kind = getattr(torch, name, None)
        if not isinstance(kind, torch.dtype) or any(size < 0 for size in shape):
            raise ValueError(f"a tensor of type {name!r} and shape {shape}")
        stop = self.place + math.prod(shape) * kind.itemsize
        if stop > len(self.data):
            raise ValueError("a tensor that ends behind the file")
        piece, self.place = self.data[self.place : stop].copy(), stop
        return tensor_of(piece, kind, shape)
