"""The parent of one rank: it runs the rank's program, and reports its exit status before mpiexec learns of it.

    mpiexec --- rank parent --- rank     the rank ends: its parent first tells the launcher, then ends in the same
                     |                   way, and only then does mpiexec end the whole job
                     +--> launcher

mpiexec knows that some rank has ended, but of several ranks that it kills itself it may name the wrong one.

Where no launcher exists (`lockstep mpi`), the parent also ends a rank that stays stopped: before MPI has started, or
where the rank is alone on its host, nobody else would. The program runs without site-packages, to start quickly.
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

NO_LAUNCHER = "-"  # in place of a socket: failures are reported on stderr
_SET_PDEATHSIG = 1
_STOPPED_SECONDS = 5.0  # ranks that watch each other notice it sooner, and name the phase
_POLL_SECONDS = 0.2
_FORWARD_SECONDS = 0.5  # mpiexec ends with the job, and drops what its proxies have not handed on by then
_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # by MPI library


def rank_parent_command(socket_path: str) -> list[str]:
    """What goes before the command of a rank: its parent, which reports to the launcher at `socket_path`."""
    return [sys.executable, "-I", "-S", __file__, socket_path]


def main() -> None:
    """`rank_parent.py SOCKET COMMAND...`; with `-` as SOCKET, stderr tells how a rank was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)  # The proxy's end is this program's, and then the rank's.
    # All descriptors are passed on, because MPI's own are among them.
    process = subprocess.Popen(sys.argv[2:], close_fds=False)
    if sys.argv[1] == NO_LAUNCHER:
        code = _watch(process.pid)
    else:
        code = process.wait()
        _report_to_launcher(f"{process.pid} {code}")
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _watch(pid: int) -> int:
    """The exit code of process `pid`, or minus the signal that killed it, which stderr names. Ends a stopped one."""
    rank = next((os.environ[name] for name in _RANK_VARIABLES if name in os.environ), "?")
    reported = False
    while True:
        status = os.waitpid(pid, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            break
        if (next_status := _wait_while_stopped(pid)) is None:
            print(f"lockstep: rank {rank} was stopped (SIGSTOP), nobody continued it", file=sys.stderr, flush=True)
            reported = True
            os.kill(pid, signal.SIGKILL)
        elif not os.WIFCONTINUED(next_status):
            status = next_status
            break
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and not reported:
        print(f"lockstep: rank {rank} was killed by {signal.Signals(-code).name}", file=sys.stderr, flush=True)
    time.sleep(_FORWARD_SECONDS if code else 0)
    return code


def _wait_while_stopped(pid: int) -> int | None:
    """The status of process `pid` once it continues or ends; None if it is stopped for too long."""
    end = time.monotonic() + _STOPPED_SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG | os.WCONTINUED)
        if found:
            return status
        time.sleep(_POLL_SECONDS)
    return None


def _report_to_launcher(text: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(text.encode(), sys.argv[1])  # refused if the launcher has gone


if __name__ == "__main__":
    main()
