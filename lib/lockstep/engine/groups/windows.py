"""Memory that other ranks can read without the owner's participation (one-sided MPI, RMA).

    rank 0  window |.....a.....|   <--- get a --- rank 1

This is what Single-to-Multi, section 3.3.2, lists as RDMA, in the form that MPI offers on any network. When ranks read,
and how the owner learns that all have read, is decided in `lockstep.engine.sync.transports.rma`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lockstep.engine.groups.library import MPI
from lockstep.engine.groups.mpi import MpiGroup


class Window:
    """`length` float32 numbers of every rank of `group`, open to all of them; `tensor` is this rank's own. Collective.

    All are zero at first.
    """

    def __init__(self, group: MpiGroup, length: int) -> None:
        self._group = group
        group.barrier()  # because Allocate itself would spin while it waits
        self._window = MPI.Win.Allocate(max(length, 1) * 4, 4, comm=group.comm)
        memory = np.asarray(self._window.tomemory()).view(np.float32)[:length]
        self.tensor: Tensor = torch.from_numpy(memory)
        self.tensor.zero_()
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self._all_here()

    def close(self) -> None:
        """Collective: afterwards no rank reads here."""
        self._all_here()
        self._window.Unlock_all()
        self._window.Free()

    def _all_here(self) -> None:
        """Makes what each rank has written to its own window visible to all others. Collective."""
        self._window.Sync()
        self._group.barrier()
        self._window.Sync()
