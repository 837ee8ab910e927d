"""Runs one rank's program and tells the launcher how it ended, before mpiexec hears of it. Without packages.

    mpiexec --- seat --- rank          rank ends: seat tells the launcher, then ends the same way,
                 |                     then mpiexec ends the whole job
                 +--> launcher

mpiexec knows that some rank ended first, but of several that it kills itself it may name the wrong one.

Where no launcher watches, the seat also ends a rank that stays stopped: before MPI has started, or alone on its host,
nobody else would.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

_SET_PDEATHSIG = 1
_STOPPED_SECONDS = 5.0  # ranks that watch each other say sooner, and with the phase
_LOOK_SECONDS = 0.2
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # who says which rank this is


def main() -> None:
    """`seat.py SOCKET COMMAND...`; with `-` for the socket it says on stderr how a rank was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)  # with the proxy goes the seat, and with it the rank
    # All descriptors are passed on: MPI's own are among them.
    process = subprocess.Popen(sys.argv[2:], close_fds=False)
    if sys.argv[1] == "-":
        code = watch(process.pid)
    else:
        code = process.wait()
        tell(f"{process.pid} {code}")
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def watch(pid: int) -> int:
    """The exit code of process `pid`, or minus the signal that killed it, also said on stderr. Ends a stopped one."""
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "?")
    told = False
    while True:
        status = os.waitpid(pid, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            break
        if (after := while_stopped(pid)) is None:
            print(f"lockstep: rank {rank} was stopped (SIGSTOP), nobody continued it", file=sys.stderr, flush=True)
            told = True
            os.kill(pid, signal.SIGKILL)
        elif not os.WIFCONTINUED(after):
            status = after
            break
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and not told:
        print(f"lockstep: rank {rank} was killed by {signal.Signals(-code).name}", file=sys.stderr, flush=True)
    return code


def while_stopped(pid: int) -> int | None:
    """The status of process `pid` once it goes on or ends; None if it is stopped for too long."""
    end = time.monotonic() + _STOPPED_SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG | os.WCONTINUED)
        if found:
            return status
        time.sleep(_LOOK_SECONDS)
    return None


def tell(text: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller, contextlib.suppress(OSError):
        teller.sendto(text.encode(), sys.argv[1])  # refused: the launcher has gone


if __name__ == "__main__":
    main()
