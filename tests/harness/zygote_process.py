"""The program of a zygote: it has imported torch and the engine, and forks a worker for every connection.

    test process --- connects ---> zygote --- forks ---> worker     the reply is the worker's process id and then, when
    rank_client  --- connects --->    |------ forks ---> rank       it has ended, its exit code or minus its signal

A connection that closes ends its worker, as the death of a parent would. The zygote ends with its standard input.

It never computes: a fork after torch has started threads would hang in the first parallel operation of the child. What
is read when a library is loaded (numbers of threads, settings of malloc) is the zygote's own environment; the rest of
the environment comes with each connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from typing import Any

LENGTH = struct.Struct("!I")
NUMBER = struct.Struct("!q")
MOST_HANDLES = 250
_ABOVE = 2000  # descriptors are moved out of the way of each other to here
# These load or start MPI, Spark, IPython or TensorFlow, which a worker does itself.
_NOT_LOADED = ("tensorflow", "launch.spark", "launch.mpi", "groups.mpi", "groups.library", "groups.hybrid")
_NOT_LOADED += ("groups.windows", "transports.rma")
_ALSO_LOADED = ("cloudpickle", "torch.distributed.pipelining", "torch.nn.parallel", "PIL.Image", "PIL.JpegImagePlugin")


def load() -> None:
    """Import what every worker imports. Raises RuntimeError if that has started a thread."""
    import lockstep.engine

    for module in pkgutil.walk_packages(lockstep.engine.__path__, "lockstep.engine."):
        if not any(name in module.name for name in _NOT_LOADED):
            importlib.import_module(module.name)
    for name in _ALSO_LOADED:
        importlib.import_module(name)
    if threads := own_threads():
        raise RuntimeError(f"threads after the imports: {threads}; their locks would be held for ever in a fork")
    gc.collect()
    gc.freeze()  # these objects stay: a collection in a worker would only copy their pages


def own_threads() -> list[str]:
    """Names of threads beside the main one and Arrow's allocator's, which knows of forks and starts its own anew."""
    names = [Path(f"/proc/self/task/{each}/comm").read_text().strip() for each in os.listdir("/proc/self/task")]
    return [name for name in names[1:] if name != "jemalloc_bg_thd"]


class Zygote:
    """Workers by process id, each with the connection that asked for it."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(64)
        self.workers: dict[int, socket.socket] = {}
        self.wakeup, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        signal.set_wakeup_fd(self._write_end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tests decide what Ctrl-C means

    def serve(self) -> None:
        """Until standard input closes."""
        while True:
            ready = select.select([0, self.wakeup, self.listener, *self.workers.values()], [], [])[0]
            if 0 in ready:
                break
            if self.wakeup in ready:
                os.read(self.wakeup, 4096)
                self._reap()
            for pid, connection in list(self.workers.items()):
                if connection in ready:  # nobody sends anything more, so it has closed
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    self._forget(pid)
            if self.listener in ready:
                self._start(self.listener.accept()[0])
        for pid in self.workers:
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if pid in self.workers:
                    with contextlib.suppress(OSError):
                        self.workers[pid].sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
                    self._forget(pid)

    def _forget(self, pid: int) -> None:
        self.workers.pop(pid).close()

    def _start(self, connection: socket.socket) -> None:
        request, handles = receive(connection)
        pid = os.fork()
        if pid == 0:
            self._become(connection, request, handles)
        for handle in handles:
            os.close(handle)
        self.workers[pid] = connection
        with contextlib.suppress(OSError):
            connection.sendall(NUMBER.pack(pid))

    def _become(self, connection: socket.socket, request: dict[str, Any], handles: list[int]) -> None:
        """In the fork: take over descriptors, folder and environment, and run the program."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for each in (connection, self.listener, *self.workers.values()):
                each.close()
            os.close(self.wakeup)
            os.close(self._write_end)
            take_over(handles, request["numbers"])
            run(request)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request and the descriptors that came with it."""
    head, handles, _, _ = socket.recv_fds(connection, LENGTH.size, MOST_HANDLES)
    (length,) = LENGTH.unpack(head)
    body = b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return json.loads(body), list(handles)


def take_over(handles: list[int], numbers: list[int]) -> None:
    """Give each of `handles` the number that it had where it came from; none of them is in another one's way."""
    above = [fcntl.fcntl(handle, fcntl.F_DUPFD, _ABOVE) for handle in handles]
    for handle in handles:
        os.close(handle)
    for handle, number in zip(above, numbers, strict=True):
        os.dup2(handle, number)
        os.close(handle)


def run(request: dict[str, Any]) -> None:
    """The program, as `python -c` would run it."""
    import numpy as np

    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["-c", *(str(os.getppid()) if word == "PARENT" else word for word in request["arguments"])]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = paths + [path for path in sys.path if path not in paths]
    np.random.seed(None)
    main = sys.modules["__main__"].__dict__
    main.pop("__file__", None)
    exec(compile(request["code"], "<string>", "exec"), main)


def main() -> None:
    """`zygote_process.py SOCKET`; says "ready" once it listens."""
    load()
    zygote = Zygote(sys.argv[1])
    print("ready", flush=True)
    zygote.serve()


if __name__ == "__main__":
    main()
