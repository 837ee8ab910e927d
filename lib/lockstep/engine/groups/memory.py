"""A process's memory, and memory that all ranks of a node see: an anonymous file that each of them maps.

    rank 0   makes a file without a name          /proc/<pid of rank 0>/fd/<n>
    others   open it there                        then all close it: it lives as long as its last mapping

Nothing is left behind, whoever is killed, and it is as fast as an MPI window: both are pages of one file.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os

import torch
from torch import Tensor

from lockstep.engine.groups.base import Group, GroupError
from lockstep.engine.groups.board import anonymous_file

_HUGE_PAGE_BYTES = 2 << 20


def release_memory() -> None:
    """Give the free heap back to the system, so that an idle process does not keep the memory of its last call."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def common_file(group: Group, length_bytes: int) -> int:
    """A descriptor of the same zeroed file on every rank of `group`, which must be on one node. Collective.

    Raises GroupError where a rank can't open it.
    """
    place = torch.zeros(2, dtype=torch.int64)
    if group.rank == 0:
        handle = anonymous_file(length_bytes)
        place = torch.tensor([os.getpid(), handle])
    group.broadcast(place)
    if group.rank != 0:
        try:
            handle = os.open(f"/proc/{int(place[0])}/fd/{int(place[1])}", os.O_RDWR)
        except OSError as error:
            raise GroupError(
                f"rank {group.rank} can't map memory of process {int(place[0])}: {error}; shared memory between "
                f"processes needs Linux's /proc and one user; use sync='allreduce' instead"
            ) from error
    group.barrier()  # all have it open
    return handle


def share_among(group: Group, length: int) -> list[Tensor]:
    """`Group.share` for ranks that are processes: a buffer each, on huge pages where the kernel gives them."""
    stride = -(-length * 4 // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    handle = common_file(group, stride * group.size)
    memory = mmap.mmap(handle, stride * group.size)
    os.close(handle)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.float32)
    return [whole[r * stride // 4 : r * stride // 4 + length] for r in range(group.size)]
