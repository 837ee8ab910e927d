"""Runs the commands of a launcher and sees to it that nothing of them stays. A program of its own, without packages.

    launcher --- guard --- mpiexec --- proxy --- ranks          guard adopts whoever loses its parent
       |  pid       |----- ipcontroller ...

It ends everything below it, stopped processes too, and removes the files they left, when
- the launcher has gone, even by kill -9 (the kernel says so through a pidfd),
- it is told to (SIGTERM), or
- a command ends: its exit code is then this program's (128 + n for signal n).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_LIBRARY_FILES = ("mpich_shm_", "ucx_shm_", "sm_segment.", "vader_segment.")  # what MPI libraries make in /dev/shm
_PROXY_FILES = ("hydra_hwloc_xmlfile_",)  # what MPICH's Hydra makes in /tmp
_PROXIES = ("hydra_", "mpiexec", "prte", "orted")
_GENTLE_SECONDS, _KILL_SECONDS = 1.0, 5.0
_LOOK_SECONDS = 1.0  # only where the kernel knows no pidfd


def main() -> None:
    """`guard.py {"parent": pid, "commands": {name: [...]}, "remove": [folder], "quiet": false}`."""
    told = json.loads(sys.argv[1])
    began = time.time()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means
    ending: list[int] = []
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, lambda *_: ending.append(143))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
    code = 1
    commands: list[subprocess.Popen[bytes]] = []
    try:
        parent = _open(told["parent"])
        for command in told["commands"].values():
            commands.append(subprocess.Popen(command, preexec_fn=_die_with_guard))
        while not ending and not _gone(told["parent"], parent):
            select.select([woken, *([parent] if parent is not None else [])], [], [], _wait(parent))
            for name, ended in zip(told["commands"], commands, strict=True):
                if (status := ended.poll()) is not None:
                    ending.append(status if status >= 0 else 128 - status)
                    if not told["quiet"]:
                        print(f"guard: {name} ended with {status}", flush=True)
        code = ending[0] if ending else 1
    except (OSError, subprocess.SubprocessError) as error:
        print(f"can't start: {error}", file=sys.stderr, flush=True)
        code = 127
    finally:
        _end_all([command.pid for command in commands if command.poll() is None])
        _sweep(began)
        for folder in told["remove"]:
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def _die_with_guard() -> None:
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


def _open(pid: int) -> int | None:
    """A descriptor that becomes readable when process `pid` ends."""
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None


def _gone(pid: int, handle: int | None) -> bool:
    if handle is None:
        return os.getppid() != pid
    return bool(select.select([handle], [], [], 0)[0])


def _wait(handle: int | None) -> float | None:
    return _LOOK_SECONDS if handle is None else None


def _end_all(commands: list[int]) -> None:
    """Kill all descendants until none is left; those without a parent have become this program's children.

    The leaves first: what started them then ends by itself, and cleans up (Hydra keeps a file in /tmp).
    """
    _kill(_leaves())
    for pid in commands:
        _send(pid, signal.SIGTERM)
    end = time.monotonic() + _GENTLE_SECONDS
    while _descendants() and time.monotonic() < end:
        time.sleep(0.01)
        _reap()
    end = time.monotonic() + _KILL_SECONDS
    while (pids := set(_descendants())) and time.monotonic() < end:
        _kill(pids)
        _reap()
        time.sleep(0.01)


def _kill(pids: set[int]) -> None:
    for pid in pids:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _descendants() -> dict[int, int]:
    """Process id: parent, of all below this program; zombies only where they are ours to reap."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
                if state != "Z" or int(parent) == os.getpid():
                    parents[int(name)] = int(parent)
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: parents[pid] for pid in found - {os.getpid()}}


def _leaves() -> set[int]:
    """Descendants without children, except proxies of mpiexec: those end when their ranks have, and tidy up."""
    below = _descendants()
    return {pid for pid in set(below) - set(below.values()) if not _name(pid).startswith(_PROXIES)}


def _name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as comm:
        return comm.read()
    return ""


def _sweep(began: float) -> None:
    """Remove what MPI libraries made in /dev/shm since `began` and no living process uses."""
    ours = _ours("/dev/shm", _LIBRARY_FILES, began)
    for name in ours - _in_use() if ours else set():
        with contextlib.suppress(OSError):
            os.unlink(f"/dev/shm/{name}")
    ours = _ours("/tmp", _PROXY_FILES, began)
    if ours and not any(_name(int(pid)).startswith("hydra_") for pid in os.listdir("/proc") if pid.isdigit()):
        for name in ours:  # mpiexec was killed before its proxy could remove it; no other job runs that needs one
            with contextlib.suppress(OSError):
                os.unlink(f"/tmp/{name}")


def _ours(folder: str, starts: tuple[str, ...], began: float) -> set[str]:
    """Files of this user in `folder`, made since `began`, whose names start so."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.startswith(starts):
                made = entry.stat(follow_symlinks=False)
                if made.st_uid == os.getuid() and made.st_ctime >= began - 1:
                    found.add(entry.name)
    return found


def _in_use() -> set[str]:
    """Names in /dev/shm that some process maps or has open."""
    used: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps") as maps:
                used.update(line.split("/dev/shm/", 1)[1].split()[0] for line in maps if "/dev/shm/" in line)
            for handle in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{handle}")
                if target.startswith("/dev/shm/"):
                    used.add(target[len("/dev/shm/") :])
        except OSError:
            continue
    return used


if __name__ == "__main__":
    main()
