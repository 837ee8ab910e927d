"""In place of `rank_parent`, and of the rank below it: asks a zygote for the rank, and stands for it towards mpiexec.

    mpiexec --- rank_client - - -> zygote --- rank         `rank_client.py EXIT_REPORTS ZYGOTE python -c CODE ARGUMENTS`

It hands on all of its descriptors, since MPI's own are among them, tells the launcher how the rank has ended, and ends
in the same way. When mpiexec kills it, its connection closes, and the zygote kills the rank. It runs without
site-packages, as the real one does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import sys

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!q")
_SET_PDEATHSIG = 1


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    reports, path, _, _, code, *arguments = sys.argv[1:]
    numbers = open_handles()
    zygote = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    zygote.connect(path)
    request = {"code": code, "arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    body = json.dumps(request | {"numbers": numbers}).encode()
    socket.send_fds(zygote, [_LENGTH.pack(len(body))], numbers)
    zygote.sendall(body)
    pid, status = _NUMBER.unpack(read(zygote))[0], _NUMBER.unpack(read(zygote))[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(f"{pid} {status}".encode(), reports)
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status if status >= 0 else 128 - status)


def open_handles() -> list[int]:
    """Of this process, but for the one that lists them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.fstat(int(name))
            found.append(int(name))
    return sorted(found)


def read(zygote: socket.socket) -> bytes:
    found = b""
    while len(found) < _NUMBER.size:
        more = zygote.recv(_NUMBER.size - len(found))
        if not more:
            os._exit(1)  # the zygote has ended, and the rank with it
        found += more
    return found


if __name__ == "__main__":
    main()
