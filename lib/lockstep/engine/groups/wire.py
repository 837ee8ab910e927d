"""A tensor as one message: [tag, type, shape | padding | data], in a single buffer that MPI sends without pickling."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups.base import GroupError

HEAD = struct.Struct("!HBB8q")  # bytes of the tag, type, dimensions, shape
_ALIGNMENT = 64
_MOST_DIMENSIONS = 8
_TYPES = (
    *(torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool),
    *(torch.bfloat16, torch.float16, torch.int8, torch.int16),
)


def number_of(tag: str) -> int:
    """MPI's tags are numbers; 32767 is the largest that every library allows. The text travels along."""
    return 1 + zlib.crc32(tag.encode()) % 32766


def head_of(tensor: Tensor, tag: str) -> bytes:
    if tensor.dtype not in _TYPES or tensor.dim() > _MOST_DIMENSIONS:
        raise GroupError(f"a tensor of {tensor.dtype} with {tensor.dim()} dimensions can't be sent over MPI")
    shape = [*tensor.shape, *[0] * (_MOST_DIMENSIONS - tensor.dim())]
    return HEAD.pack(len(tag.encode()), _TYPES.index(tensor.dtype), tensor.dim(), *shape)


def header_of(head: bytes) -> tuple[int, torch.dtype, list[int]]:
    """(bytes of the tag, type, shape)."""
    length, kind, dimensions, *shape = HEAD.unpack(head)
    return length, _TYPES[kind], shape[:dimensions]


def packed(tensor: Tensor, tag: str) -> np.ndarray:
    own = tensor.detach().cpu().contiguous()
    head = head_of(own, tag) + tag.encode()
    start = -(-len(head) // _ALIGNMENT) * _ALIGNMENT
    message = np.empty(start + own.nbytes, np.uint8)
    message[: len(head)] = np.frombuffer(head, np.uint8)
    message[start:] = bytes_of(own)
    return message


def unpacked(message: np.ndarray) -> tuple[str, Tensor]:
    length, kind, shape = header_of(message[: HEAD.size].tobytes())
    head = HEAD.size + length
    tag = message[HEAD.size : head].tobytes().decode()
    return tag, tensor_of(message[-(-head // _ALIGNMENT) * _ALIGNMENT :], kind, shape)


def bytes_of(tensor: Tensor) -> np.ndarray:
    return tensor.view(-1).view(torch.uint8).numpy()


def tensor_of(data: np.ndarray, kind: torch.dtype, shape: list[int]) -> Tensor:
    if not len(data):
        return torch.empty(shape, dtype=kind)
    return torch.from_numpy(data).view(kind).view(shape)
