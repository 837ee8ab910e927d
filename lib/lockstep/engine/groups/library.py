"""mpi4py, imported without starting MPI: otherwise the import alone does, in whatever process needs only a name."""

import mpi4py

mpi4py.rc.initialize = False

from mpi4py import MPI  # noqa: E402 - after the line above

__all__ = ["MPI", "start_mpi"]


def start_mpi() -> None:
    """Start MPI in this process, for several threads, unless it runs."""
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
